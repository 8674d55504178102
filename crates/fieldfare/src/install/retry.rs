//! Which failures of the network are tried again, and after how long.

use std::time::Duration;

use crate::Error;

/// A failed try.
#[derive(Debug)]
pub(crate) enum Fault {
    /// May work the next time; the server may have said how long to wait.
    Again { reason: String, after: Option<Duration> },
    /// The address where the bytes lie is no longer good; the source must be asked for a new one.
    Expired { reason: String },
    /// Will not get better.
    Fatal(Error),
}

impl Fault {
    pub(crate) fn again(reason: impl Into<String>) -> Self {
        Self::Again { reason: reason.into(), after: None }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

/// How patient an install is. A try that brought bytes starts the count anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Tries in a row that bring nothing before it is an error.
    pub tries: u32,
    /// Wait after the first.
    pub first: Duration,
    /// Longest wait. A longer one asked for by the server ([`Patience::LONGEST`] at most) is granted.
    pub longest: Duration,
    /// Time without a byte after which a connection counts as dead.
    pub stall: Duration,
}

impl Default for Patience {
    /// About four minutes without any progress.
    fn default() -> Self {
        Self {
            tries: 12,
            first: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            stall: Duration::from_secs(30),
        }
    }
}

impl Patience {
    /// A server that asks for a longer wait than this is told no.
    pub const LONGEST: Duration = Duration::from_secs(3600);

    /// The wait after the failed try number `failed` (from 1), doubling; `dice` in `0..=u32::MAX` takes up to half of it
    /// away, so that many connections do not come back at once. `None` if that was the last try.
    pub(crate) fn wait(&self, failed: u32, after: Option<Duration>, dice: u32) -> Option<Duration> {
        if failed >= self.tries || after.is_some_and(|asked| asked > Self::LONGEST) {
            return None;
        }
        let full = self.first.saturating_mul(1 << failed.saturating_sub(1).min(20)).min(self.longest);
        let wait = full - full.mul_f64(f64::from(dice) / f64::from(u32::MAX) / 2.0);
        Some(wait.max(after.unwrap_or_default()))
    }
}

/// `Retry-After` in seconds; a date, or anything else, counts as not said: the ordinary wait is used then, whatever
/// the clocks say.
pub(crate) fn retry_after(value: Option<&str>) -> Option<Duration> {
    value?.trim().parse::<u32>().ok().map(|seconds| Duration::from_secs(u64::from(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_heed_the_server() {
        let patience = Patience::default();
        let at = |failed, dice| patience.wait(failed, None, dice);
        assert_eq!(at(1, 0), Some(Duration::from_millis(500)));
        assert_eq!(at(1, u32::MAX), Some(Duration::from_millis(250)));
        assert_eq!(at(3, 0), Some(Duration::from_secs(2)));
        assert_eq!(at(11, 0), Some(Duration::from_secs(30)));
        assert_eq!(at(12, 0), None);
        assert_eq!(patience.wait(1, retry_after(Some("7")), 9), Some(Duration::from_secs(7)));
        assert_eq!(patience.wait(1, retry_after(Some("3601")), 9), None);
        assert_eq!(retry_after(Some("Wed, 21 Oct 2015 07:28:00 GMT")), None);
    }
}
