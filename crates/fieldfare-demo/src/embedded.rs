//! The files of the checkpoint, as they are in the program.

use fieldfare::Result;
use fieldfare::format::safetensors::Header;

/// SHA-256, in hex, over names, lengths and bytes of the embedded files: tells the models of two builds apart.
pub const IDENTITY: &str = env!("FIELDFARE_DEMO_IDENTITY");

/// The shape of the model.
pub(crate) const CONFIG: &str = "config.json";
/// The weights.
const WEIGHTS: &str = "model.safetensors";
/// Values that share a scale, in every 4-bit checkpoint that the installer takes.
const GROUP: u64 = 64;

macro_rules! files {
    ($($name:literal),* $(,)?) => { [$(($name, include_bytes!(concat!("../model/", $name)))),*] };
}

/// Names and bytes, in the order in which `build.rs` hashes them.
pub(crate) static FILES: [(&str, &[u8]); 6] = files![
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// Number of parameters, counted from the header of the weights.
///
/// # Errors
/// [`fieldfare::Error::Damaged`] if the embedded file is no checkpoint.
pub fn parameters() -> Result<u64> {
    let weights = FILES.iter().find(|(name, _)| *name == WEIGHTS).map_or(&[][..], |(_, bytes)| bytes);
    let mut reader = weights;
    let header = Header::read(WEIGHTS, &mut reader, weights.len() as u64)?;
    let names: std::collections::HashSet<&str> = header.tensors.iter().map(|t| t.name.as_str()).collect();
    let mut count = 0;
    for tensor in &header.tensors {
        let elements: u64 = tensor.shape.iter().product();
        count += match tensor.name.rsplit_once('.') {
            // One scale for each group says how many values are packed, whatever their width.
            Some((_, "scales")) => elements * GROUP,
            Some((_, "biases")) => 0,
            Some((module, "weight")) if names.contains(format!("{module}.scales").as_str()) => 0,
            _ => elements,
        };
    }
    Ok(count)
}

/// The number of parameters as people say it: `18 million`.
pub fn size_in_words() -> String {
    match parameters() {
        Ok(count) => format!("{} million", (count + 500_000) / 1_000_000),
        Err(_) => "a few million".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fieldfare::format::hash::{hex, sha256};
    use fieldfare::format::json::{self, Value};

    #[test]
    fn the_identity_is_that_of_the_files() {
        let mut all = Vec::new();
        for (name, bytes) in FILES {
            all.extend_from_slice(name.as_bytes());
            all.push(0);
            all.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            all.extend_from_slice(bytes);
        }
        assert_eq!(hex(&sha256(&all)), IDENTITY);
    }

    #[test]
    fn parameters_are_counted_as_the_checkpoint_says() {
        let count = parameters().expect("a header");
        let file = |end: &str| FILES.iter().find(|(name, _)| name.ends_with(end)).expect("a file").1;
        // Four bits and a share of scale and bias for each, or a little more.
        let bytes = file("model.safetensors").len() as u64;
        assert!(bytes < count && count < 2 * bytes, "{count} in {bytes} bytes");
        let index = json::parse("index", file(".index.json"), 16 << 20).expect("JSON");
        let said = index.get("metadata").and_then(|m| m.get("total_parameters"));
        if let Some(said) = said.and_then(Value::as_u64) {
            // Converters differ on whether vectors count.
            assert!(said.abs_diff(count) <= count / 500, "{count}, said {said}");
        }
        assert!(size_in_words().ends_with(" million"));
    }
}
