//! Which version of a file a plain server sends: what it says that changes when the file does.

use std::fmt;

use ureq::http::HeaderMap;

use super::hub::text;
use super::retry::http_date;

/// A validator. Two replies with the same one are of the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// A strong `ETag`.
    Tag(String),
    /// `Last-Modified`, where the reply's own `Date` is a second later at least: a change within the same second would not show
    /// otherwise (RFC 9110, 8.8.2.2).
    Date(String),
}

impl Version {
    /// The version that a reply names. A weak `ETag` counts for nothing: it stays the same while bytes change.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let tag = text(headers, "etag").filter(|tag| tag.starts_with('"') && tag.len() > 2);
        if let Some(tag) = tag {
            return Some(Self::Tag(tag.to_owned()));
        }
        let modified = text(headers, "last-modified")?;
        let (then, now) = (http_date(modified)?, http_date(text(headers, "date")?)?);
        (now > then).then(|| Self::Date(modified.to_owned()))
    }

    /// Whether a reply is of this version.
    pub(crate) fn is_of(&self, headers: &HeaderMap) -> bool {
        match self {
            Self::Tag(tag) => text(headers, "etag") == Some(tag),
            Self::Date(date) => text(headers, "last-modified") == Some(date),
        }
    }
}

impl fmt::Display for Version {
    /// What it is called.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tag(_) => "ETag",
            Self::Date(_) => "Last-Modified",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("name"), value.parse().expect("value")))
            .collect()
    }

    #[test]
    fn strong_tags_and_dates_that_are_past() {
        let (noon, later) = ("Sun, 06 Nov 1994 12:00:00 GMT", "Sun, 06 Nov 1994 12:00:01 GMT");
        let of = |pairs: &[(&'static str, &str)]| Version::of(&headers(pairs));
        let tag = Version::Tag("\"a\"".into());
        assert_eq!(of(&[("etag", "\"a\""), ("last-modified", noon), ("date", later)]), Some(tag.clone()));
        let date = Version::Date(noon.into());
        for weak in ["W/\"a\"", "a", "\"\""] {
            assert_eq!(of(&[("etag", weak), ("last-modified", noon), ("date", later)]), Some(date.clone()));
        }
        // Within one second a file may change twice.
        assert_eq!(of(&[("last-modified", noon), ("date", noon)]), None);
        assert_eq!(of(&[("last-modified", noon)]), None);
        assert_eq!(of(&[]), None);
        assert!(tag.is_of(&headers(&[("etag", "\"a\"")])) && !tag.is_of(&headers(&[("etag", "W/\"a\"")])));
        assert!(date.is_of(&headers(&[("last-modified", noon)])) && !date.is_of(&headers(&[])));
    }
}
