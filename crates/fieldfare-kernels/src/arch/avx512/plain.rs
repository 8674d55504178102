//! Loops that the compiler vectorizes well from the scalar source.

crate::arch::x86::recompiled!("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");
