//! What this machine can do at most, and what a model could therefore reach on it.
//!
//! [`memory`], [`disk`] and [`products`] measure: the rate of reading memory, of reading experts, of multiplying.
//! [`traffic`] knows what bytes a token needs of a model, [`bound`] turns both into a time that no program can beat.
//! [`routing`] makes experts as real text asks for them, for models whose weights do not; [`work`] is what a row runs. Nothing here changes a model or
//! a result; benchmarks and advice are made of it.

pub mod bound;
pub mod disk;
pub mod memory;
pub mod products;
pub mod routing;
pub mod traffic;
pub mod work;

pub use fieldfare_kernels::{Isa, Kernels, Planes, isas};

/// The middle of some values (the mean of the two middle ones); `None` if there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The largest of some values; 0 if there are none.
pub fn best(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_best() {
        assert_eq!((median(&[]), best(&[])), (None, 0.0));
        assert_eq!((median(&[3.0, 1.0, 2.0]), best(&[3.0, 1.0, 2.0])), (Some(2.0), 3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
