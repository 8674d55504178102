//! Telling the page cache which experts are about to be read (`POSIX_FADV_WILLNEED`, `F_RDADVISE`), for buffered reads while
//! tokens are generated. The names and bounds are those of TurboFieldfare's option of the same name.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// When a layer's missing experts are announced to the page cache before they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RdAdvise {
    /// Never.
    #[default]
    Off,
    /// Always.
    Default,
    /// Up to 12 experts; for the rest of a token not after a call of more than a quarter of a millisecond.
    Bounded,
    /// Up to 12 experts and 384 MiB a token; for the rest of a token not after a call of a millisecond or more.
    Adaptive,
}

impl RdAdvise {
    /// Every mode, in the order of the help text.
    pub const ALL: [Self; 4] = [Self::Off, Self::Default, Self::Bounded, Self::Adaptive];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Default => "default",
            Self::Bounded => "bounded",
            Self::Adaptive => "adaptive",
        }
    }
}

impl fmt::Display for RdAdvise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RdAdvise {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| {
            Error::bad("rdadvise", format!("{text:?} is none of off, default, bounded, adaptive"))
        })
    }
}

/// Most experts announced at once.
const MOST_EXPERTS: usize = 12;
/// Most bytes announced for a token.
const MOST_BYTES: u64 = 384 << 20;

/// Decides what is announced.
#[derive(Debug, Default)]
pub(super) struct Advice {
    mode: RdAdvise,
    layer: usize,
    /// Bytes announced for this token.
    bytes: u64,
    /// A call was slow; nothing more for this token.
    pauses: bool,
}

impl Advice {
    pub(super) fn new(mode: RdAdvise) -> Self {
        Self { mode, ..Self::default() }
    }

    pub(super) fn mode(&self) -> RdAdvise {
        self.mode
    }

    /// Whether so many experts of a layer are announced, which are so many bytes.
    pub(super) fn wants(&mut self, layer: usize, experts: usize, bytes: u64) -> bool {
        if layer <= self.layer {
            (self.bytes, self.pauses) = (0, false); // the next token
        }
        self.layer = layer;
        let few = experts <= MOST_EXPERTS && !self.pauses;
        experts > 0
            && match self.mode {
                RdAdvise::Off => false,
                RdAdvise::Default => true,
                RdAdvise::Bounded => few,
                RdAdvise::Adaptive => few && self.bytes.saturating_add(bytes) <= MOST_BYTES,
            }
    }

    /// They were announced; the slowest call took so long.
    pub(super) fn note(&mut self, bytes: u64, slowest: Duration) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.pauses |= match self.mode {
            RdAdvise::Off | RdAdvise::Default => false,
            RdAdvise::Bounded => slowest > Duration::from_micros(250),
            RdAdvise::Adaptive => slowest >= Duration::from_millis(1),
        };
    }
}

/// The ranges of blobs at these ranks, in order, neighbours as one: offset and length.
pub(super) fn ranges(mut ranks: Vec<u64>, stride: u64) -> Vec<(u64, u64)> {
    ranks.sort_unstable();
    ranks.dedup();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for rank in ranks {
        let offset = rank.saturating_mul(stride);
        match ranges.last_mut() {
            Some((start, len)) if *start + *len == offset => *len += stride,
            _ => ranges.push((offset, stride)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for mode in RdAdvise::ALL {
            assert_eq!(mode.to_string().parse::<RdAdvise>().unwrap(), mode);
        }
        assert!("on".parse::<RdAdvise>().is_err());
    }

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(ranges(vec![5, 1, 2, 9, 2, 3], 10), [(10, 30), (50, 10), (90, 10)]);
        assert!(ranges(Vec::new(), 10).is_empty());
    }

    #[test]
    fn bounds_and_pauses_end_with_the_token() {
        const MB: u64 = 1 << 20;
        let (slow, slower) = (Duration::from_micros(300), Duration::from_millis(1));
        let mut off = Advice::new(RdAdvise::Off);
        assert!(!off.wants(0, 1, MB));
        let mut always = Advice::new(RdAdvise::Default);
        assert!(always.wants(0, 100, 1000 * MB) && !always.wants(1, 0, 0));
        always.note(MB, slower);
        assert!(always.wants(1, 100, MB));

        let mut bounded = Advice::new(RdAdvise::Bounded);
        assert!(bounded.wants(0, 12, MB) && !bounded.wants(1, 13, MB) && bounded.wants(2, 12, 1000 * MB));
        bounded.note(MB, slow);
        assert!(!bounded.wants(3, 1, MB) && bounded.wants(0, 1, MB));

        let mut adaptive = Advice::new(RdAdvise::Adaptive);
        assert!(adaptive.wants(0, 12, 300 * MB) && !adaptive.wants(1, 13, MB));
        adaptive.note(300 * MB, slow);
        assert!(adaptive.wants(2, 1, 84 * MB) && !adaptive.wants(3, 1, 85 * MB));
        adaptive.note(MB, slower);
        assert!(!adaptive.wants(4, 1, MB) && adaptive.wants(0, 1, MB));
    }
}
