//! `verified-install.json`: that the files were hashed once and agreed with the manifest.
//!
//! A v1 receipt has upstream's form and binds the absolute path, so moving the directory invalidates it. The receipt
//! of a tiled directory has no path and stays valid where it goes.

use super::files::{FileEntry, files_to_value, parse_entries, shorten};
use super::json::{self, Fields, Value};
use super::{CAP_RECEIPT, Layout, MANIFEST, Manifest, RECEIPT, fault, hash};
use crate::Result;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// `verified-install.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// SHA-256 of the manifest's bytes.
    pub manifest_sha256: [u8; 32],
    /// v1 only: the absolute path of the directory as it was named.
    pub model_directory_path: Option<String>,
    /// Repository of the source, where known.
    pub source_repo_id: Option<String>,
    /// Commit of the source, or its snapshot hash.
    pub source_revision: Option<String>,
    /// `YYYY-MM-DDThh:mm:ssZ`
    pub verification_timestamp: String,
    /// Name of the program that hashed.
    pub tool_version: String,
    /// Every entry of the manifest, and the manifest.
    pub files: BTreeMap<String, FileEntry>,
}

impl Receipt {
    /// The receipt for a manifest whose files have just been hashed. `path` is the directory's absolute path
    /// ([`crate::sys::file::lexical_absolute`]); it is used for v1 only.
    pub fn new(manifest: &Manifest, manifest_bytes: &[u8], path: &str, tool: &str, now: SystemTime) -> Self {
        let manifest_sha256 = hash::sha256(manifest_bytes);
        let mut files = manifest.files.clone();
        let entry = FileEntry { size: manifest_bytes.len() as u64, sha256: manifest_sha256 };
        files.insert(MANIFEST.to_owned(), entry);
        Self {
            manifest_sha256,
            model_directory_path: (manifest.layout == Layout::V1).then(|| path.to_owned()),
            source_repo_id: None,
            source_revision: manifest.source_snapshot_hash.clone(),
            verification_timestamp: timestamp(now),
            tool_version: tool.to_owned(),
            files,
        }
    }

    /// Parses a receipt.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let value = json::parse(RECEIPT, bytes, CAP_RECEIPT)?;
        let fields = Fields::new(RECEIPT, "", &value)?;
        fields.need("schemaVersion", "1", |v| v.as_int().filter(|n| *n == 1))?;
        Ok(Self {
            manifest_sha256: fields
                .need("manifestSha256", "64 hexadecimal digits", |v| hash::parse_hex(v.as_str()?))?,
            model_directory_path: fields.optional_text("modelDirectoryPath")?,
            source_repo_id: fields.optional_text("sourceRepoID")?,
            source_revision: fields.optional_text("sourceRevision")?,
            verification_timestamp: fields
                .need("verificationTimestamp", "a string", Value::as_str)?
                .to_owned(),
            tool_version: fields.need("toolVersion", "a string", Value::as_str)?.to_owned(),
            files: parse_entries(&fields.object("files")?)?,
        })
    }

    /// Checks that this receipt speaks of this manifest and, for v1, of the directory at `path`.
    pub fn check(&self, manifest: &Manifest, manifest_bytes: &[u8], path: &str) -> Result<()> {
        let wrong = |field: &str, reason: &str| Err(fault(RECEIPT, field, reason));
        if self.manifest_sha256 != hash::sha256(manifest_bytes) {
            return wrong("manifestSha256", "is not the hash of this manifest");
        }
        match (manifest.layout, &self.model_directory_path) {
            (Layout::V1, None) => return wrong("modelDirectoryPath", "missing"),
            (Layout::V1, Some(named)) if named != path => {
                return wrong("modelDirectoryPath", "the directory was verified under another path");
            }
            _ => {}
        }
        let expected = Self::new(manifest, manifest_bytes, path, "", UNIX_EPOCH).files;
        for (name, entry) in &expected {
            match self.files.get(name) {
                None => return wrong("files", &format!("{name} is missing")),
                Some(found) if found != entry => {
                    return wrong("files", &format!("{name} differs from the manifest"));
                }
                Some(_) => {}
            }
        }
        if let Some(name) = self.files.keys().find(|name| !expected.contains_key(*name)) {
            return wrong("files", &format!("{} is not in the manifest", shorten(name)));
        }
        Ok(())
    }

    /// The receipt as JSON.
    pub fn to_value(&self) -> Value {
        let mut members = vec![
            ("files".to_owned(), files_to_value(&self.files)),
            ("manifestSha256".to_owned(), hash::hex(&self.manifest_sha256).as_str().into()),
            ("schemaVersion".to_owned(), 1u8.into()),
            ("toolVersion".to_owned(), self.tool_version.as_str().into()),
            ("verificationTimestamp".to_owned(), self.verification_timestamp.as_str().into()),
        ];
        for (key, text) in [
            ("modelDirectoryPath", &self.model_directory_path),
            ("sourceRepoID", &self.source_repo_id),
            ("sourceRevision", &self.source_revision),
        ] {
            if let Some(text) = text {
                members.push((key.to_owned(), text.as_str().into()));
            }
        }
        Value::Object(members)
    }

    /// The bytes of the file, in canonical form.
    pub fn encode(&self) -> Vec<u8> {
        json::canonical(&self.to_value()).into_bytes()
    }
}

/// `YYYY-MM-DDThh:mm:ssZ`, UTC.
fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a date by eras of 400 years (146,097 days) that start on 1 March, so the leap day comes last.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153; // 0 is March
    let date = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    format!("{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn round_trip_and_every_disagreement() {
        let (manifest, bytes) = super::super::manifest::tests::reference();
        let receipt = Receipt::new(&manifest, &bytes, "/models/a", "tool", UNIX_EPOCH);
        assert_eq!(Receipt::parse(&receipt.encode()).unwrap(), receipt);
        receipt.check(&manifest, &bytes, "/models/a").unwrap();
        let fails = |receipt: &Receipt, field: &str| {
            let message = receipt.check(&manifest, &bytes, "/models/a").unwrap_err().to_string();
            assert!(message.starts_with("verified-install.json") && message.contains(field), "{message}");
        };
        fails(&Receipt { manifest_sha256: [0; 32], ..receipt.clone() }, "manifestSha256");
        fails(&Receipt { model_directory_path: None, ..receipt.clone() }, "modelDirectoryPath");
        fails(&Receipt { model_directory_path: Some("/b".into()), ..receipt.clone() }, "modelDirectoryPath");
        let mut other = receipt.clone();
        other.files.remove("model_weights.bin");
        fails(&other, "model_weights.bin is missing");
        let mut other = receipt.clone();
        other.files.get_mut("manifest.json").unwrap().size += 1;
        fails(&other, "manifest.json differs");
        let mut other = receipt.clone();
        let extra = other.files["manifest.json"].clone();
        other.files.insert("extra".into(), extra);
        fails(&other, "extra is not in the manifest");

        let tiled = Manifest { layout: Layout::Tiled, ..manifest.clone() };
        let tiled_bytes = tiled.encode();
        let receipt = Receipt::new(&tiled, &tiled_bytes, "/models/a", "tool", UNIX_EPOCH);
        assert_eq!(receipt.model_directory_path, None);
        receipt.check(&tiled, &tiled_bytes, "/elsewhere").unwrap();
    }
}
