//! JSON as the format wants it: a strict reader and the canonical writer.
//!
//! The reader works through a [`Cursor`], so a large document (8.45 MB of expert layout) need not become a tree;
//! small ones become a [`Value`]. It takes any well-formed JSON, but refuses duplicate keys and nesting deeper than
//! [`MAX_DEPTH`]. The writer produces upstream's bytes: two-space indent, `"key" : value`, keys sorted without
//! regard to case and with runs of digits compared as numbers, no final newline.

mod cursor;
mod fields;
mod write;

pub use cursor::{Cursor, MAX_DEPTH};
pub(crate) use fields::Fields;
pub use write::{canonical, canonical_into, compare_keys};

use crate::Result;

/// A JSON value. Object members keep the order of the document; keys are unique.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number written without fraction or exponent, within the range of `i64` or `u64`.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// The member of an object; `None` for other values, absent keys and `null`.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => {
                members.iter().find(|(k, v)| k == key && *v != Self::Null).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&[(String, Self)]> {
        if let Self::Object(members) = self { Some(members) } else { None }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(elements) = self { Some(elements) } else { None }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// `true` or `false`.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// A whole number; one written `16384.0` counts, up to 2^53.
    pub fn as_int(&self) -> Option<i128> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self {
            Self::Int(value) => Some(*value),
            #[allow(clippy::cast_possible_truncation)] // integral and below 2^53
            Self::Float(value) if value.fract() == 0.0 && value.abs() <= EXACT => Some(*value as i128),
            _ => None,
        }
    }

    /// A whole number that fits `u64`.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_int().and_then(|value| u64::try_from(value).ok())
    }

    /// Any number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            #[allow(clippy::cast_precision_loss)] // a JSON number is a double to its readers
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// What kind of value this is and, if short, its text: for messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::String(text) if text.chars().count() <= 60 => format!("{text:?}"),
            Self::String(_) => "a long string".into(),
            Self::Array(_) => "an array".into(),
            Self::Object(_) => "an object".into(),
        }
    }
}

macro_rules! from_int {
    ($($int:ty),*) => {$(
        impl From<$int> for Value {
            fn from(value: $int) -> Self { Self::Int(i128::from(value)) }
        }
    )*};
}
from_int!(u8, u16, u32, u64, i64);

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Int(value as i128)
    }
}
impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}
impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}
impl From<Vec<Self>> for Value {
    fn from(value: Vec<Self>) -> Self {
        Self::Array(value)
    }
}

/// An object from pairs; for writers.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// Parses a whole document of at most `cap` bytes. `file` is for messages.
pub fn parse(file: &str, bytes: &[u8], cap: u64) -> Result<Value> {
    let mut cursor = Cursor::new(file, bytes, cap)?;
    let value = cursor.value()?;
    cursor.end()?;
    Ok(value)
}

#[cfg(test)]
pub(super) mod tests;
