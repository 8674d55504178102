//! The header of a safetensors file: 8 bytes of length, a JSON object, then the payload.
//!
//! The header comes from elsewhere and says where gigabytes lie, so it is checked before anything is read by it:
//! a capped length, no repeated name, whole numbers only, byte counts that agree with shape and type, and tensors that
//! tile the payload exactly (no gap, no overlap, nothing behind the last one). Only the four types of an MLX
//! 4-bit checkpoint are accepted.

use std::io::Read;

use super::files::shorten;
use super::json::{self, Value};
use crate::{Error, Result};

/// Largest header accepted, in bytes. That of the 26B-A4B checkpoint's longest shard has 90,235.
pub const HEADER_CAP: u64 = 16 << 20;

/// Most dimensions of a tensor. Those of a checkpoint have at most three (experts, rows, columns).
const MAX_DIMENSIONS: usize = 8;

/// Element type of a source tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// Packed quantised values, little-endian words.
    U32,
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
}

impl Dtype {
    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Self::U32 | Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// As the header writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::U32 => "U32",
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F32 => "F32",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::U32, Self::Bf16, Self::F16, Self::F32].into_iter().find(|d| d.name() == text)
    }
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, slowest first; empty for a scalar.
    pub shape: Vec<u64>,
    /// Offset of the first byte, from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A checked header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The tensors, in the order of their data.
    pub tensors: Vec<TensorInfo>,
    /// The bytes of the JSON text.
    pub json: Vec<u8>,
}

impl Header {
    /// Reads and checks the header at the start of `reader`. `file` names the file in errors, `file_len` is its length
    /// in bytes.
    ///
    /// # Errors
    /// [`Error::Damaged`] naming `file` and the tensor, or [`Error::Io`].
    pub fn read(file: &str, reader: &mut impl Read, file_len: u64) -> Result<Self> {
        if file_len < 8 {
            return Err(Error::damaged(
                file,
                format!("{file_len} bytes are no safetensors file (truncated?)"),
            ));
        }
        let mut word = [0u8; 8];
        reader.read_exact(&mut word).map_err(Error::io("read", file))?;
        if &word == b"version " {
            return Err(Error::damaged(
                file,
                "a Git LFS pointer, not the file it points to; fetch the real file",
            ));
        }
        let len = u64::from_le_bytes(word);
        if len > HEADER_CAP || len > file_len - 8 {
            let what = format!("header length {len} exceeds {}", HEADER_CAP.min(file_len - 8));
            return Err(Error::damaged(file, format!("{what}: not a safetensors file, or cut short")));
        }
        // Within the cap, so this cannot be made to allocate much by a lie.
        let mut text = vec![0u8; usize::try_from(len).unwrap_or(0)];
        reader.read_exact(&mut text).map_err(Error::io("read", file))?;
        Self::parse(file, text, file_len - 8 - len)
    }

    /// Checks header text `json` of a file with `payload` bytes behind it.
    ///
    /// # Errors
    /// [`Error::Damaged`] naming `file` and the tensor.
    pub fn parse(file: &str, json: Vec<u8>, payload: u64) -> Result<Self> {
        let start = 8 + json.len() as u64;
        let value = json::parse(file, &json, HEADER_CAP)?;
        let Value::Object(map) = value else {
            return Err(Error::damaged(file, "the header is not a JSON object"));
        };
        let mut tensors = Vec::with_capacity(map.len());
        for (name, entry) in map {
            if name == "__metadata__" {
                continue;
            }
            let fail = |what: String| Error::damaged(format!("{file}: header: {}", shorten(&name)), what);
            let (dtype, shape, offset, len) = tensor(&entry).map_err(fail)?;
            tensors.push(TensorInfo { name, dtype, shape, offset, len });
        }
        tensors.sort_by(|a, b| (a.offset, a.len, &a.name).cmp(&(b.offset, b.len, &b.name)));
        let mut end = 0u64;
        for t in &mut tensors {
            if t.offset != end {
                let what =
                    if t.offset < end { "overlaps the tensor before it" } else { "leaves a gap before it" };
                let what = format!("data at {} {what}, which ends at {end}", t.offset);
                return Err(Error::damaged(format!("{file}: header: {}", shorten(&t.name)), what));
            }
            // The parts were checked to add up without overflow.
            end = t.offset + t.len;
            t.offset += start;
        }
        if end != payload {
            let what = if end > payload { "cut short" } else { "followed by bytes that no tensor owns" };
            return Err(Error::damaged(
                file,
                format!("tensors need {end} bytes, {payload} are there: {what}"),
            ));
        }
        Ok(Self { tensors, json })
    }
}

/// Type, shape, offset in the payload and length of one header entry.
fn tensor(entry: &Value) -> Result<(Dtype, Vec<u64>, u64, u64), String> {
    let members = entry.as_object().ok_or("not an object")?;
    if let Some((key, _)) =
        members.iter().find(|(k, _)| !["dtype", "shape", "data_offsets"].contains(&k.as_str()))
    {
        return Err(format!("unknown key {}", shorten(key)));
    }
    let text = entry.get("dtype").and_then(Value::as_str).ok_or("dtype is missing")?;
    let dtype =
        Dtype::parse(text).ok_or_else(|| format!("dtype {} is not U32, BF16, F16 or F32", shorten(text)))?;
    let shape = numbers(entry, "shape")?;
    if shape.len() > MAX_DIMENSIONS {
        return Err(format!("shape has {} dimensions, more than {MAX_DIMENSIONS}", shape.len()));
    }
    let offsets = numbers(entry, "data_offsets")?;
    let [begin, end] = offsets[..] else {
        return Err(format!("data_offsets has {} numbers, not 2", offsets.len()));
    };
    let len =
        end.checked_sub(begin).ok_or_else(|| format!("data_offsets run backwards: {begin} to {end}"))?;
    if end > i64::MAX as u64 {
        return Err(format!("data_offsets end at {end}, beyond any file"));
    }
    let bytes = shape.iter().try_fold(dtype.size(), |n, d| n.checked_mul(*d));
    if bytes != Some(len) {
        return Err(format!("{} of shape {shape:?} does not fill {len} bytes", dtype.name()));
    }
    Ok((dtype, shape, begin, len))
}

/// An array of whole numbers; `1.0` is none here, whatever JSON thinks of it.
fn numbers(entry: &Value, key: &str) -> Result<Vec<u64>, String> {
    let list =
        entry.get(key).and_then(Value::as_array).ok_or_else(|| format!("{key} is missing or no array"))?;
    list.iter()
        .map(|v| match v {
            Value::Int(n) => u64::try_from(*n).map_err(|_| n.to_string()),
            other => Err(other.describe()),
        })
        .map(|n| n.map_err(|v| format!("{key} holds {v}, not a whole number")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, payload: u64) -> Result<Header> {
        Header::parse("m.safetensors", text.as_bytes().to_vec(), payload)
    }

    fn fault(text: &str, payload: u64) -> String {
        parse(text, payload).expect_err("accepted").to_string()
    }

    const TWO: &str = r#"{"b":{"dtype":"U32","shape":[2,3],"data_offsets":[4,28]},"__metadata__":{"format":"mlx"},
        "a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}"#;

    #[test]
    fn reads_tensors_in_data_order() {
        let header = parse(TWO, 28).expect("valid");
        let start = 8 + TWO.len() as u64;
        assert_eq!(header.tensors.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((header.tensors[1].offset, header.tensors[1].len), (start + 4, 24));
        let mut file = (TWO.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(TWO.as_bytes());
        file.extend_from_slice(&[0; 28]);
        let len = file.len() as u64;
        assert_eq!(Header::read("m.safetensors", &mut &file[..], len).expect("valid"), header);
    }

    #[test]
    fn refuses_each_lie() {
        let one = |dtype: &str, shape: &str, offsets: &str| {
            format!(r#"{{"a":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        for (text, payload, want) in [
            (one(r#""I64""#, "[1]", "[0,8]"), 8, "dtype I64"),
            (one(r#""U32""#, "[2]", "[0,4]"), 4, "does not fill"),
            (one(r#""U32""#, "[1.0]", "[0,4]"), 4, "not a whole number"),
            (one(r#""U32""#, "[-1]", "[0,4]"), 4, "not a whole number"),
            (one(r#""U32""#, "[1]", "[0,1e30]"), 4, "not a whole number"),
            (one(r#""U32""#, "[4294967296,4294967296,4]", "[0,4]"), 4, "does not fill"),
            (one(r#""U32""#, "[1]", "[4,0]"), 4, "backwards"),
            (one(r#""U32""#, "[1]", "[0,4,8]"), 4, "3 numbers"),
            (one(r#""U32""#, "[1]", "[4,8]"), 8, "gap"),
            (one(r#""U32""#, "[1]", "[0,4]"), 3, "cut short"),
            (one(r#""U32""#, "[1]", "[0,4]"), 5, "no tensor owns"),
            (one(r#""U32""#, "[0,1]", "[18446744073709551615,18446744073709551615]"), 0, "beyond any file"),
            (one(r#""U32""#, "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "9 dimensions"),
            (r#"{"\u001b[2J":{"dtype":"U32","shape":[1]}}"#.into(), 4, "m.safetensors: header: ?[2J"),
            (r#"{"a":{"dtype":"U32","shape":[1]}}"#.into(), 4, "data_offsets is missing"),
            (r#"{"a":3}"#.into(), 4, "not an object"),
            ("[]".into(), 0, "not a JSON object"),
            (TWO.replace("[4,28]", "[2,26]"), 26, "overlaps"),
            (TWO.replace("\"b\":", "\"a\":"), 28, "a"),
        ] {
            let got = fault(&text, payload);
            assert!(got.contains(want) && got.contains("m.safetensors"), "{text}: {got}");
        }
    }

    #[test]
    fn refuses_what_is_no_safetensors_file() {
        let read = |bytes: &[u8]| {
            let len = bytes.len() as u64;
            Header::read("m.safetensors", &mut &bytes[..], len).expect_err("accepted").to_string()
        };
        assert!(read(b"version https://git-lfs.github.com/spec/v1\n").contains("LFS pointer"));
        assert!(read(b"<!doctype html><html>").contains("header length"));
        assert!(read(b"abc").contains("3 bytes"));
        assert!(read(&[255; 16]).contains("header length"));
    }
}
