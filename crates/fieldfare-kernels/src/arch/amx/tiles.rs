#![allow(unsafe_code)] // instructions that the compiler has no stable names for

//! The tile registers: 8 of 16 rows of 64 bytes. Rust has no stable intrinsics for them and never uses them by itself, so
//! what one `asm!` leaves in them is there for the next, as is their configuration, until [`Tiles`] is dropped.
//!
//! Registers 0 to 3 are two sets of sums (a plane each), 4 and 5 planes of activations, 6 and 7 blocks of weights.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

/// Rows of a register, words of a row.
pub(super) const ROWS: usize = 16;

/// 16 matrix rows of one group: a word of 4 columns of each, 16 times; as a register holds weights.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Weights(pub(super) [[u32; ROWS]; ROWS]);

/// Integer sums of a register: a row of activations in each row, a matrix row in each column.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Sums(pub(super) [[i32; ROWS]; ROWS]);

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// True if the CPU has them and the system lets this process use them. It has to be asked, once for all threads.
pub(super) fn are_here() -> bool {
    static HERE: OnceLock<bool> = OnceLock::new();
    *HERE.get_or_init(|| {
        const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
        // Leaf 7 is there: AVX2 was asked for before.
        __cpuid_count(7, 0).edx & TILE_AND_INT8 == TILE_AND_INT8 && permitted()
    })
}

/// `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`: from then on the system keeps the registers of every thread.
/// It refuses where it cannot.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    let result: i64;
    // SAFETY: the call takes two numbers and touches no memory; the system clobbers rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result == 0
}

/// Elsewhere nobody has tried how to ask.
#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// The registers of this thread, configured for some rows of activations.
pub(super) struct Tiles(());

impl Tiles {
    /// For `rows` rows of activations at a time.
    ///
    /// # Safety
    /// [`are_here`], and `rows` is 1 to 16. There is one at a time on a thread.
    pub(super) unsafe fn new(rows: usize) -> Tiles {
        let mut config =
            Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        config.row_bytes[..8].fill(64);
        config.rows[..6].fill(rows as u8);
        config.rows[6..8].fill(ROWS as u8);
        // SAFETY: a configuration that is valid for palette 1; by the caller the CPU has the instruction.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
        Tiles(())
    }

    /// Takes in the weights of one group of the first block, or of both.
    ///
    /// # Safety
    /// As [`Tiles::new`], which has made `self`.
    #[inline(always)]
    pub(super) unsafe fn weights<const B: usize>(&self, blocks: &[Weights; 2]) {
        let first: *const Weights = blocks.as_ptr();
        // SAFETY: 16 rows of 64 bytes each.
        unsafe {
            asm!("tileloadd tmm6, [{} + {}*1]", in(reg) first, in(reg) 64_usize, options(nostack, readonly));
            if B == 2 {
                let second = first.add(1);
                asm!("tileloadd tmm7, [{} + {}*1]", in(reg) second, in(reg) 64_usize, options(nostack, readonly));
            }
        }
    }

    /// Takes in rows of activations, `P` planes of a group at `acts` and every `stride` bytes on.
    ///
    /// # Safety
    /// As [`Tiles::new`]; as many rows are there as it was made for.
    #[inline(always)]
    pub(super) unsafe fn acts<const P: usize>(&self, acts: *const u8, stride: usize) {
        // SAFETY: by the caller.
        unsafe {
            asm!("tileloadd tmm4, [{} + {}*1]", in(reg) acts, in(reg) stride, options(nostack, readonly));
            if P == 2 {
                asm!("tileloadd tmm5, [{} + {}*1 + 64]", in(reg) acts, in(reg) stride, options(nostack, readonly));
            }
        }
    }

    /// Begins the products of the activations that were taken in with block `b` of the weights in one set of sums, and
    /// writes the other set, of the call before, to the first `P` of `sums`: a plane each. Registers are ready to be written some 50 cycles
    /// after a product was begun.
    ///
    /// # Safety
    /// As [`Tiles::new`].
    #[inline(always)]
    pub(super) unsafe fn multiply<const P: usize>(&self, b: usize, set: usize, sums: &mut [Sums; 2]) {
        let to: *mut u8 = sums.as_mut_ptr().cast();
        /// Registers of a set, and of the other one; of the block's weights.
        macro_rules! step {
            ($high:literal, $low:literal, $other_high:literal, $other_low:literal, $weights:literal) => {
                if P == 2 {
                    asm!(
                        concat!("tilezero ", $high),
                        concat!("tilezero ", $low),
                        concat!("tdpbsud ", $high, ", tmm4, ", $weights),
                        concat!("tilestored [{to} + {line}*1], ", $other_high),
                        concat!("tdpbsud ", $low, ", tmm5, ", $weights),
                        concat!("tilestored [{to} + {line}*1 + 1024], ", $other_low),
                        to = in(reg) to, line = in(reg) 64_usize, options(nostack)
                    )
                } else {
                    asm!(
                        concat!("tilezero ", $high),
                        concat!("tdpbsud ", $high, ", tmm4, ", $weights),
                        concat!("tilestored [{to} + {line}*1], ", $other_high),
                        to = in(reg) to, line = in(reg) 64_usize, options(nostack)
                    )
                }
            };
        }
        // SAFETY: sums have room for 16 rows of 64 bytes each.
        unsafe {
            match (set, b) {
                (0, 0) => step!("tmm0", "tmm1", "tmm2", "tmm3", "tmm6"),
                (0, _) => step!("tmm0", "tmm1", "tmm2", "tmm3", "tmm7"),
                (_, 0) => step!("tmm2", "tmm3", "tmm0", "tmm1", "tmm6"),
                (_, _) => step!("tmm2", "tmm3", "tmm0", "tmm1", "tmm7"),
            }
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: there is a `Tiles`, so the CPU has the instruction. Threads without tiles in use cost the system nothing.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}
