//! Which failures of the network are tried again, and after how long.

use std::time::Duration;

use super::wait::Trouble;
use crate::Error;

/// Tries while not even the name of the first host can be resolved: then it is mistyped, or there is no network.
pub(crate) const NO_HOST_TRIES: u32 = 4;

/// A failed try.
#[derive(Debug)]
pub(crate) enum Fault {
    /// May work the next time; the server may have said how long to wait.
    Again { reason: String, trouble: Trouble, after: Option<Duration> },
    /// The address where the bytes lie is no longer good; the source must be asked for a new one.
    Expired { reason: String },
    /// Will not get better.
    Fatal(Error),
}

impl Fault {
    pub(crate) fn again(trouble: Trouble, reason: impl Into<String>) -> Self {
        Self::Again { reason: reason.into(), trouble, after: None }
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

/// `Retry-After` in seconds, or as a date. A date is held against the server's own `Date` of the same reply, never against the
/// clock of this machine, which may be wrong and may jump. Anything else counts as not said, and the ordinary wait is used.
pub(crate) fn retry_after(value: Option<&str>, date: Option<&str>) -> Option<Duration> {
    let value = value?.trim();
    if let Ok(seconds) = value.parse::<u32>() {
        return Some(Duration::from_secs(u64::from(seconds)));
    }
    Some(Duration::from_secs(http_date(value)?.saturating_sub(http_date(date?)?)))
}

/// Seconds since 1970 of a date in one of the three forms that HTTP knows.
pub(crate) fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split([' ', ',', '-']).filter(|word| !word.is_empty()).collect();
    let month = MONTHS.iter().position(|name| words.contains(name))? as u64 + 1;
    // All three have the day before the year.
    let mut numbers = words.iter().filter_map(|word| word.parse::<u64>().ok());
    let (day, year) = (numbers.next()?, numbers.next()?);
    let year = match year {
        0..70 => 2000 + year,
        70..100 => 1900 + year,
        1970..10_000 => year,
        _ => return None,
    };
    let mut time = words.iter().find(|word| word.contains(':'))?.split(':').map(str::parse::<u64>);
    let (Some(Ok(hours)), Some(Ok(minutes)), Some(Ok(seconds)), None) =
        (time.next(), time.next(), time.next(), time.next())
    else {
        return None;
    };
    if !(1..=31).contains(&day) || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    // Years that begin in March, so that the odd day is at the end.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
    // 719,468 days from 1 March of the year 0 to 1970.
    Some(days.checked_sub(719_468)? * 86_400 + hours * 3600 + minutes * 60 + seconds)
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
        assert_eq!(patience.wait(1, retry_after(Some("7"), None), 9), Some(Duration::from_secs(7)));
        assert_eq!(patience.wait(1, retry_after(Some("3601"), None), 9), None);
    }

    #[test]
    fn dates_are_held_against_the_servers_own_clock() {
        let at = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(http_date("Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(http_date("Sun Nov  6 08:49:37 1994"), Some(784_111_777));
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date("Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        let after = |value: &str| retry_after(Some(value), at);
        assert_eq!(after("Sun, 06 Nov 1994 08:50:07 GMT"), Some(Duration::from_secs(30)));
        // In the past: at once, as far as the server goes.
        assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        // Without the server's date nobody knows how long that is.
        assert_eq!(retry_after(Some("Wed, 21 Oct 2015 07:28:00 GMT"), None), None);
        for wrong in [
            "",
            "soon",
            "-1",
            "06 Nov",
            "06 Nov 1994",
            "99 Nov 1994 08:49:37",
            "06 Nov 1994 8",
            "06 Nov 1994 25:00:00",
        ] {
            assert_eq!(after(wrong), None, "{wrong}");
        }
    }
}
