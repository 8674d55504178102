//! Loops that the compiler vectorizes well from the scalar source.

crate::arch::x86::recompiled!("avx2,fma,f16c");
