//! Checkpoints known by hash. This is data: another one is another entry of [`KNOWN`].
//!
//! A source is recognised by the hash of its index. Headers, which say where every tensor lies, must then be the published
//! ones, and so must shards and sidecars that come over a network; in a local directory another `config.json` or
//! tokenizer may be meant and is a warning.

#[cfg(feature = "install")]
use crate::{Error, Result};

/// A published checkpoint.
pub(crate) struct Known {
    /// Repository id, also in manifests.
    pub(crate) id: &'static str,
    /// The commit.
    #[cfg_attr(not(feature = "install"), expect(dead_code, reason = "asked for over a network only"))]
    pub(crate) revision: &'static str,
    /// `sha256:` and the hash of `model.safetensors.index.json`.
    pub(crate) snapshot: &'static str,
    /// Name, bytes, SHA-256 and SHA-256 of the header text of each shard.
    pub(crate) shards: &'static [(&'static str, u64, &'static str, &'static str)],
    /// Name and SHA-256 of the small files that are installed.
    pub(crate) sidecars: &'static [(&'static str, &'static str)],
}

/// All of them; the first is the default of `fieldfare install`.
pub(crate) const KNOWN: [Known; 1] = [Known {
    id: "mlx-community/gemma-4-26b-a4b-it-4bit",
    revision: "0d77464eeb233a2da68ebf9d7dc4edaac7db956d",
    snapshot: crate::format::PINNED_SNAPSHOT,
    shards: &[
        (
            "model-00001-of-00003.safetensors",
            5_320_218_487,
            "683f420ee09550b8027bf0335c4202e196b37eb520b60a4bcbe8690b9e388c07",
            "228d184bd285a79f9b5953f81d1f4e13d302264a20aa1c1db7840286e397676c",
        ),
        (
            "model-00002-of-00003.safetensors",
            5_363_328_422,
            "feab2873c2976fb7ed666f8462549564a29409364388e0c8f6b015729d165e15",
            "e24e953b8363c11331d0fd1ee0249bf7e2bd67f80cf296c5ac11fad17a86faa6",
        ),
        (
            "model-00003-of-00003.safetensors",
            4_657_658_867,
            "bc607486deb1de5bc7e459932fda5c776a4f816b368feaa661bab8cfbb47e567",
            "f9010ed1a67279c1d54f454e8ad5e56394e30777b027f5bcaa8de61c4d2537fd",
        ),
    ],
    sidecars: &[
        ("config.json", "419e13a27ec359654c1ce7dd06d1a87149fd07d0c8af9f770494185e62e1b2ba"),
        ("tokenizer.json", "cc8d3a0ce36466ccc1278bf987df5f71db1719b9ca6b4118264f45cb627bfe0f"),
        ("tokenizer_config.json", "080d9e1aff284e2f6043889cd05367966f7c7b80e025fbc0b06745e218158656"),
        ("chat_template.jinja", "36e3a42e5cf14cd0020e72d92e1fdd9970f59b82170e421f0cbe1bb42bead3f0"),
    ],
}];

/// The known checkpoint whose index has this hash.
pub(crate) fn by_snapshot(snapshot: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.snapshot == snapshot)
}

impl Known {
    /// The published hash of a shard's header.
    pub(crate) fn header(&self, shard: &str) -> Option<&'static str> {
        self.shards.iter().find(|(name, ..)| *name == shard).map(|(.., hash)| *hash)
    }

    /// Bytes and published hash of a shard.
    #[cfg(feature = "install")]
    pub(crate) fn shard(&self, shard: &str) -> Option<(u64, &'static str)> {
        self.shards.iter().find(|(name, ..)| *name == shard).map(|(_, size, hash, _)| (*size, *hash))
    }

    /// A shard that a source offers must have the published length, and if the source links it by a hash, the published one.
    ///
    /// # Errors
    /// [`Error::Damaged`] if not.
    #[cfg(feature = "install")]
    pub(crate) fn check_shard(&self, shard: &str, found: u64, linked: Option<&str>) -> Result<()> {
        let Some((size, sha256)) = self.shard(shard) else { return Ok(()) };
        if found != size {
            return Err(Error::damaged(shard, format!("has {found} bytes, the published one {size}")));
        }
        if linked.is_some_and(|linked| linked != sha256) {
            return Err(Error::damaged(shard, "the source links it to other content than the published one"));
        }
        Ok(())
    }

    /// The published hash of a sidecar, if the revision has it.
    pub(crate) fn sidecar(&self, name: &str) -> Option<&'static str> {
        self.sidecars.iter().find(|(known, _)| *known == name).map(|(_, hash)| *hash)
    }
}

#[cfg(all(test, feature = "install"))]
mod tests {
    use super::*;

    #[test]
    fn a_shard_of_another_length_or_linked_to_other_content_is_refused() {
        for known in &KNOWN {
            for (name, size, sha256, _) in known.shards {
                known.check_shard(name, *size, Some(sha256)).expect("the published one");
                known.check_shard(name, *size, None).expect("nothing else is said of it");
                let other = "0".repeat(64);
                for (size, linked) in [
                    (*size - 1, Some(*sha256)),
                    (*size + 1, None),
                    (*size, Some(other.as_str())),
                    (*size, Some("")),
                ] {
                    let error = known.check_shard(name, size, linked).expect_err("another one").to_string();
                    assert!(error.starts_with(name) && error.contains("published"), "{error}");
                }
            }
        }
    }
}
