//! The one source whose files are known by hash: `mlx-community/gemma-4-26b-a4b-it-4bit` at revision
//! `0d77464eeb233a2da68ebf9d7dc4edaac7db956d`, recognised by the hash of its index.
//!
//! Headers that say where every tensor lies must be the published ones. Another `config.json` or tokenizer file may be
//! meant, so it is a warning.

/// Repository id in manifests.
pub(crate) const ID: &str = "mlx-community/gemma-4-26b-a4b-it-4bit";

/// Shard and SHA-256 of its header text.
const HEADERS: [(&str, &str); 3] = [
    ("model-00001-of-00003.safetensors", "228d184bd285a79f9b5953f81d1f4e13d302264a20aa1c1db7840286e397676c"),
    ("model-00002-of-00003.safetensors", "e24e953b8363c11331d0fd1ee0249bf7e2bd67f80cf296c5ac11fad17a86faa6"),
    ("model-00003-of-00003.safetensors", "f9010ed1a67279c1d54f454e8ad5e56394e30777b027f5bcaa8de61c4d2537fd"),
];

/// Sidecar and its SHA-256.
const SIDECARS: [(&str, &str); 4] = [
    ("config.json", "419e13a27ec359654c1ce7dd06d1a87149fd07d0c8af9f770494185e62e1b2ba"),
    ("tokenizer.json", "cc8d3a0ce36466ccc1278bf987df5f71db1719b9ca6b4118264f45cb627bfe0f"),
    ("tokenizer_config.json", "080d9e1aff284e2f6043889cd05367966f7c7b80e025fbc0b06745e218158656"),
    ("chat_template.jinja", "36e3a42e5cf14cd0020e72d92e1fdd9970f59b82170e421f0cbe1bb42bead3f0"),
];

/// The published hash of a shard's header, if the shard is one of the three.
pub(crate) fn header(shard: &str) -> Option<&'static str> {
    HEADERS.iter().find(|(name, _)| *name == shard).map(|(_, hash)| *hash)
}

/// The published hash of a sidecar, if the revision has it.
pub(crate) fn sidecar(name: &str) -> Option<&'static str> {
    SIDECARS.iter().find(|(known, _)| *known == name).map(|(_, hash)| *hash)
}
