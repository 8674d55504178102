//! Which instruction set runs: found once, one table of function pointers each, an override for tests and support.
//!
//! The functions of a table are `unsafe` to call for two reasons, both settled in this folder: the CPU must have
//! the table's features ([`Kernels::for_isa`] is the only way to a table and asks the CPU), and shapes must fit
//! (`ops`, the safe entry points, check them before they call).

mod attention;
mod integer;
mod ops;

pub use attention::{AttendScratch, Attention, KvSpan};

use crate::arch::{self, Table};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// Environment variable that names the instruction set to use, see [`Kernels::detect`].
pub const ISA_VARIABLE: &str = "FIELDFARE_ISA";

/// An instruction set with kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust, everywhere: the meaning of each operation.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-VNNI beside what [`Isa::Avx2`] needs.
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, DQ and VL (and what [`Isa::Avx2`] needs); VNNI is used where it is.
    Avx512,
    /// x86-64 with AMX (tiles and their byte products) beside AVX-512 with VNNI.
    Amx,
    /// AArch64 Advanced SIMD; `sdot` is used where it is.
    Neon,
    /// AArch64 with products of small matrices of bytes (i8mm) beside Advanced SIMD and `sdot`.
    I8mm,
}

impl Isa {
    const ALL: [Isa; 7] = [Isa::Scalar, Isa::Neon, Isa::I8mm, Isa::Avx2, Isa::AvxVnni, Isa::Avx512, Isa::Amx];
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
            Isa::Neon => "neon",
            Isa::I8mm => "i8mm",
        })
    }
}

/// A name that is no instruction set, or one that this CPU does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// Not one of the names.
    #[error("{0:?} is not an instruction set: scalar, avx2, avxvnni, avx512, amx, neon or i8mm")]
    Unknown(String),
    /// A name, but not on this machine.
    #[error("this CPU cannot run {0} kernels")]
    Missing(Isa),
}

impl FromStr for Isa {
    type Err = IsaError;

    fn from_str(name: &str) -> Result<Isa, IsaError> {
        let found = Isa::ALL.into_iter().find(|isa| isa.to_string() == name);
        found.ok_or_else(|| IsaError::Unknown(name.to_string()))
    }
}

/// The kernels of one instruction set. The operations are its methods.
pub struct Kernels {
    isa: Isa,
    table: Table,
}

impl Kernels {
    /// The best kernels for this CPU, or those that `FIELDFARE_ISA` names if the CPU has them. Decided at the first
    /// call. A name that cannot be had is ignored here; [`Kernels::detect_named`] tells.
    pub fn detect() -> &'static Kernels {
        static CHOICE: OnceLock<&'static Kernels> = OnceLock::new();
        CHOICE.get_or_init(|| {
            let name = std::env::var(ISA_VARIABLE).ok();
            Kernels::detect_named(name.as_deref()).unwrap_or_else(|_| Kernels::best())
        })
    }

    /// The kernels with this name, or the best for no name or an empty one.
    ///
    /// # Errors
    /// [`IsaError`] if the name means nothing or not on this CPU.
    pub fn detect_named(name: Option<&str>) -> Result<&'static Kernels, IsaError> {
        match name {
            None | Some("") => Ok(Kernels::best()),
            Some(name) => {
                let isa = name.parse()?;
                Kernels::for_isa(isa).ok_or(IsaError::Missing(isa))
            }
        }
    }

    /// The kernels of one instruction set, if this CPU can run them.
    pub fn for_isa(isa: Isa) -> Option<&'static Kernels> {
        match isa {
            Isa::Scalar => {
                static SCALAR: Kernels = Kernels { isa: Isa::Scalar, table: arch::scalar::TABLE };
                Some(&SCALAR)
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                static AVX2: Kernels = Kernels { isa: Isa::Avx2, table: arch::avx2::TABLE };
                arch::avx2::is_here().then_some(&AVX2)
            }
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => {
                static VNNI: Kernels = Kernels { isa: Isa::AvxVnni, table: arch::avxvnni::TABLE };
                arch::avxvnni::is_here().then_some(&VNNI)
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                static PLAIN: Kernels = Kernels { isa: Isa::Avx512, table: arch::avx512::TABLE };
                static VNNI: Kernels = Kernels { isa: Isa::Avx512, table: arch::avx512::TABLE_VNNI };
                let best = if arch::avx512::has_vnni() { &VNNI } else { &PLAIN };
                arch::avx512::is_here().then_some(best)
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => {
                static AMX: Kernels = Kernels { isa: Isa::Amx, table: arch::amx::TABLE };
                arch::amx::is_here().then_some(&AMX)
            }
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => {
                static PLAIN: Kernels = Kernels { isa: Isa::Neon, table: arch::neon::TABLE };
                static DOTPROD: Kernels = Kernels { isa: Isa::Neon, table: arch::neon::TABLE_DOTPROD };
                let best = if arch::neon::has_dotprod() { &DOTPROD } else { &PLAIN };
                arch::neon::is_here().then_some(best)
            }
            #[cfg(target_arch = "aarch64")]
            Isa::I8mm => {
                static I8MM: Kernels = Kernels { isa: Isa::I8mm, table: arch::i8mm::TABLE };
                arch::i8mm::is_here().then_some(&I8MM)
            }
            #[allow(unreachable_patterns)] // which arms exist depends on the target
            _ => None,
        }
    }

    /// Which instruction set this is.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    fn best() -> &'static Kernels {
        // `ALL` is in rising order of speed and starts with scalar, which is always there.
        let found = Isa::ALL.into_iter().rev().find_map(Kernels::for_isa);
        found.expect("scalar kernels run on every CPU")
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels").field("isa", &self.isa).finish_non_exhaustive()
    }
}

/// The instruction sets that this CPU can run, slowest first, [`Isa::Scalar`] always among them.
pub fn isas() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|&isa| Kernels::for_isa(isa).is_some()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for isa in Isa::ALL {
            assert_eq!(isa.to_string().parse(), Ok(isa));
        }
        assert_eq!("sse9".parse::<Isa>(), Err(IsaError::Unknown("sse9".into())));
        assert_eq!("AVX2".parse::<Isa>(), Err(IsaError::Unknown("AVX2".into())));
    }

    #[test]
    fn what_is_listed_can_be_had_and_the_best_is_last() {
        let list = isas();
        assert_eq!(list[0], Isa::Scalar);
        for &isa in &list {
            assert_eq!(Kernels::for_isa(isa).unwrap().isa(), isa);
            assert_eq!(Kernels::detect_named(Some(&isa.to_string())).unwrap().isa(), isa);
        }
        assert_eq!(Kernels::detect_named(None).unwrap().isa(), list[list.len() - 1]);
        assert_eq!(Kernels::detect_named(Some("")).unwrap().isa(), list[list.len() - 1]);
        for isa in Isa::ALL.into_iter().filter(|isa| !list.contains(isa)) {
            assert_eq!(Kernels::detect_named(Some(&isa.to_string())).unwrap_err(), IsaError::Missing(isa));
        }
        assert!(list.contains(&Kernels::detect().isa()));
    }

    /// Under emulation each of the three is some CPU's (`scripts/test-targets`).
    #[cfg(target_arch = "aarch64")]
    #[test]
    fn the_best_of_an_arm_is_what_its_cpu_has() {
        let dotprod = std::arch::is_aarch64_feature_detected!("dotprod");
        let i8mm = dotprod && std::arch::is_aarch64_feature_detected!("i8mm");
        let best = Kernels::best();
        assert_eq!(best.isa(), if i8mm { Isa::I8mm } else { Isa::Neon });
        let product = |table: &Table| table.matmul_q as usize;
        let neon = product(&Kernels::for_isa(Isa::Neon).unwrap().table);
        assert_eq!(neon != product(&arch::scalar::TABLE), dotprod, "sdot exactly where it is");
        assert_eq!(neon != product(&best.table), i8mm, "usmmla exactly where it is");
    }
}
