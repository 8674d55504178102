//! Typed access to the members of an object, with errors that name file and field.

use super::Value;
use crate::{Error, Result, format::fault};

/// The members of one object and where it stands: `manifest.json`, `arch`.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    file: &'a str,
    at: String,
    object: &'a Value,
}

impl<'a> Fields<'a> {
    /// The members of `object`, which stands at `at` (empty for the document itself) in `file`.
    pub(crate) fn new(file: &'a str, at: impl Into<String>, object: &'a Value) -> Result<Self> {
        let at = at.into();
        if object.as_object().is_none() {
            let reason = format!("expected an object, found {}", object.describe());
            return Err(if at.is_empty() { Error::damaged(file, reason) } else { fault(file, &at, reason) });
        }
        Ok(Self { file, at, object })
    }

    pub(crate) fn path(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }

    /// A fault in the member `key`.
    pub(crate) fn fault(&self, key: &str, reason: impl Into<String>) -> Error {
        fault(self.file, &self.path(key), reason)
    }

    fn wrong(&self, key: &str, expected: &str) -> Error {
        let found =
            self.get(key).map_or_else(|| "it is missing".to_owned(), |v| format!("found {}", v.describe()));
        self.fault(key, format!("expected {expected}, {found}"))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key)
    }

    /// A member that `read` accepts; `expected` completes the message "expected …".
    pub(crate) fn need<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T> {
        self.get(key).and_then(read).ok_or_else(|| self.wrong(key, expected))
    }

    /// Like [`Fields::need`], but the member may be absent or `null`.
    pub(crate) fn optional<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        self.get(key).is_some().then(|| self.need(key, expected, read)).transpose()
    }

    /// An integer > 0 that fits a signed 64-bit one and this machine's sizes.
    pub(crate) fn positive(&self, key: &str) -> Result<usize> {
        self.need(key, "an integer > 0", |v| {
            v.as_int()
                .filter(|n| (1..=i128::from(i64::MAX)).contains(n))
                .and_then(|n| usize::try_from(n).ok())
        })
    }

    pub(crate) fn u64(&self, key: &str) -> Result<u64> {
        self.need(key, "an unsigned 64-bit integer", Value::as_u64)
    }

    pub(crate) fn bool(&self, key: &str) -> Result<bool> {
        self.need(key, "true or false", Value::as_bool)
    }

    /// A non-empty string.
    pub(crate) fn text(&self, key: &str) -> Result<String> {
        self.need(key, "a non-empty string", |v| v.as_str().filter(|s| !s.is_empty())).map(str::to_owned)
    }

    /// A string that may be absent.
    pub(crate) fn optional_text(&self, key: &str) -> Result<Option<String>> {
        Ok(self.optional(key, "a string", Value::as_str)?.map(str::to_owned))
    }

    /// A finite number.
    pub(crate) fn number(&self, key: &str) -> Result<f64> {
        self.need(key, "a finite number", |v| v.as_f64().filter(|n| n.is_finite()))
    }

    pub(crate) fn object(&self, key: &str) -> Result<Fields<'a>> {
        let value = self.need(key, "an object", |v| v.as_object().map(|_| v))?;
        Fields::new(self.file, self.path(key), value)
    }

    /// A member, got from [`Fields::members`], that must be an object. Looking it up by its name takes time with the
    /// number of members, which a document chooses.
    pub(crate) fn member(&self, key: &str, value: &'a Value) -> Result<Fields<'a>> {
        Fields::new(self.file, self.path(key), value)
    }

    /// The elements of an array of objects.
    pub(crate) fn objects(
        &self,
        key: &str,
    ) -> Result<impl ExactSizeIterator<Item = Result<Fields<'a>>> + use<'a>> {
        let elements = self.need(key, "an array", Value::as_array)?;
        let (file, at) = (self.file, self.path(key));
        Ok(elements
            .iter()
            .enumerate()
            .map(move |(i, element)| Fields::new(file, format!("{at}[{i}]"), element)))
    }

    pub(crate) fn members(&self) -> &'a [(String, Value)] {
        self.object.as_object().unwrap_or_default()
    }
}
