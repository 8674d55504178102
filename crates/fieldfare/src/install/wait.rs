//! A failed try that will be repeated, for those who look on.

use std::fmt;
use std::time::Duration;

/// Why a try failed, in few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The host's name cannot be resolved.
    NoHost,
    /// No connection.
    NoConnection,
    /// No answer, or no byte, in time.
    NoAnswer,
    /// The connection ended before its answer did.
    Broken,
    /// The server answered with this status.
    Status(u16),
    /// Signed addresses expire again and again.
    Expired,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHost => f.write_str("the host is not known; is there a network?"),
            Self::NoConnection => f.write_str("cannot connect"),
            Self::NoAnswer => f.write_str("no answer in time"),
            Self::Broken => f.write_str("the connection ended early"),
            Self::Status(status) => write!(f, "HTTP status {status}"),
            Self::Expired => f.write_str("the signed address expired"),
        }
    }
}

/// A wait before the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How long it still takes.
    pub left: Duration,
    /// Why the last try failed.
    pub trouble: Trouble,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is left of a second is a second.
        let seconds = self.left.as_millis().div_ceil(1000).max(1);
        write!(f, "trying again in {seconds} s ({})", self.trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_said_in_whole_seconds() {
        let said = |millis, trouble| Waiting { left: Duration::from_millis(millis), trouble }.to_string();
        assert_eq!(said(7_001, Trouble::Status(503)), "trying again in 8 s (HTTP status 503)");
        assert_eq!(said(0, Trouble::NoAnswer), "trying again in 1 s (no answer in time)");
        assert!(said(500, Trouble::NoHost).contains("in 1 s (the host is not known"));
    }
}
