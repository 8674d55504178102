//! A checkpoint in memory that tests can bend, and helpers to look at what was installed.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use fieldfare::Result;
use fieldfare::format::Layout;
use fieldfare::install::{ConvertOptions, InstallOptions, Installed, Progress, convert, install_local};
pub(crate) use fieldfare_testing::{contents, names as listing};
use serde_json::{Map, Value, json};

pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// Type, shape and bytes of a tensor.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// A whole (tiny) checkpoint.
#[derive(Clone)]
pub(crate) struct Checkpoint {
    pub(crate) tensors: BTreeMap<String, Tensor>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

impl Checkpoint {
    pub(crate) fn tiny() -> Self {
        let dir = fieldfare_testing::tiny_checkpoint();
        let bytes = fs::read(dir.join("model.safetensors")).expect("fixture");
        let len =
            usize::try_from(u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))).expect("small");
        let header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + len]).expect("fixture");
        let number = |v: &Value| v.as_u64().expect("number");
        let tensors = header
            .iter()
            .filter(|(name, _)| *name != "__metadata__")
            .map(|(name, t)| {
                let at = |i: usize| 8 + len + usize::try_from(number(&t["data_offsets"][i])).expect("small");
                let tensor = Tensor {
                    dtype: t["dtype"].as_str().expect("string").into(),
                    shape: t["shape"].as_array().expect("array").iter().map(number).collect(),
                    bytes: bytes[at(0)..at(1)].to_vec(),
                };
                (name.clone(), tensor)
            })
            .collect();
        let files = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
            .map(|name| (name.to_owned(), fs::read(dir.join(name)).expect("fixture")));
        Self { tensors, files: files.into() }
    }

    pub(crate) fn config(&mut self, edit: impl Fn(&mut Value)) {
        let mut value: Value = serde_json::from_slice(&self.files["config.json"]).expect("json");
        edit(&mut value);
        self.files.insert("config.json".into(), value.to_string().into_bytes());
    }

    /// Writes shards, given the names of their tensors in order, and the index.
    pub(crate) fn write(&self, dir: &Path, shards: &[Vec<String>]) {
        fs::create_dir_all(dir).expect("create");
        let mut map = Map::new();
        for (i, names) in shards.iter().enumerate() {
            let shard = format!("model-{:05}-of-{:05}.safetensors", i + 1, shards.len());
            fs::write(dir.join(&shard), self.shard(names)).expect("write");
            map.extend(names.iter().map(|name| (name.clone(), json!(shard))));
        }
        fs::write(dir.join(INDEX), json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string())
            .expect("write");
        self.write_files(dir);
    }

    pub(crate) fn write_files(&self, dir: &Path) {
        fs::create_dir_all(dir).expect("create");
        for (name, bytes) in &self.files {
            fs::write(dir.join(name), bytes).expect("write");
        }
    }

    /// The bytes of one shard with these tensors in this order.
    pub(crate) fn shard(&self, names: &[String]) -> Vec<u8> {
        let mut header = Map::new();
        let mut payload = Vec::new();
        for name in names {
            let t = &self.tensors[name];
            let offsets = json!([payload.len(), payload.len() + t.bytes.len()]);
            header.insert(name.clone(), json!({"dtype": t.dtype, "shape": t.shape, "data_offsets": offsets}));
            payload.extend_from_slice(&t.bytes);
        }
        let text = Value::Object(header).to_string();
        let mut out = (text.len() as u64).to_le_bytes().to_vec();
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(&payload);
        out
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    /// All tensors in one shard, in order of their names.
    pub(crate) fn write_plain(&self, dir: &Path) {
        self.write(dir, &[self.names()]);
    }
}

pub(crate) fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub(crate) fn options(from: &Path, output: &Path, layout: Layout) -> InstallOptions {
    InstallOptions { from: from.into(), output: output.into(), layout, overwrite: false }
}

pub(crate) fn install(from: &Path, output: &Path, layout: Layout) -> Result<Installed> {
    install_local(&options(from, output, layout), &mut go_on)
}

pub(crate) fn install_over(from: &Path, output: &Path) -> Result<Installed> {
    install_local(&InstallOptions { overwrite: true, ..options(from, output, Layout::V1) }, &mut go_on)
}

pub(crate) fn to(src: &Path, output: &Path, layout: Layout) -> Result<Installed> {
    convert(src, &ConvertOptions { layout, output: output.into(), overwrite: false }, &mut go_on)
}
