//! How values on the command line are read: numbers within bounds that the message names, sizes, seeds.

use fieldfare::engine::MemoryBudget;
use fieldfare::model::TOGETHER;
use fieldfare::sys::size;

/// A whole number within bounds that the message names.
pub(super) fn integer<const MIN: usize, const MAX: usize>(text: &str) -> Result<usize, String> {
    match text.parse::<i128>() {
        Ok(value) => usize::try_from(value).ok().filter(|value| (MIN..=MAX).contains(value)),
        Err(error)
            if matches!(
                error.kind(),
                std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow
            ) =>
        {
            None
        }
        Err(_) => return Err("not a whole number".to_owned()),
    }
    .ok_or_else(|| format!("must be from {MIN} to {MAX}"))
}

/// `auto` or a size.
pub(super) fn memory(text: &str) -> Result<MemoryBudget, String> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(MemoryBudget::Auto);
    }
    size::parse(text).map(MemoryBudget::Bytes)
}

/// A size.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    size::parse(text)
}

/// How many requests side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parallel {
    /// What the memory suggests.
    Auto,
    /// So many.
    Most(usize),
}

/// `auto` or a number.
pub(super) fn parallel(text: &str) -> Result<Parallel, String> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(Parallel::Auto);
    }
    integer::<1, TOGETHER>(text).map(Parallel::Most)
}

pub(super) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("not a whole number from 0 to {}", u64::MAX))
}

/// A finite number within bounds that the message names.
pub(super) fn number(text: &str, min: f32, max: f32) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|_| "not a number".to_owned())?;
    // NaN is in no range.
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    // The smallest positive float stands for "more than 0".
    if min == f32::MIN_POSITIVE {
        return Err(format!("must be more than 0 and at most {max}"));
    }
    Err(format!("must be from {min} to {max}"))
}
