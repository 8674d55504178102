//! A local MLX checkpoint: `config.json`, the shards behind `model.safetensors.index.json` (or one
//! `model.safetensors`), and the tokenizer files beside them.
//!
//! Opening reads the headers only and checks that index and shards tell the same story. Links are followed here, since
//! download caches are made of them; what they lead to must be a regular file, and shard names must be plain names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::config::{self, Quantization, TextConfig};
use super::known::{self, Known};
use crate::format::files::shorten;
use crate::format::hash::{hex, sha256};
use crate::format::json::{self, Value};
use crate::format::safetensors::{Header, TensorInfo};
use crate::sys::file::read_exact_at;
use crate::{Error, Result};

pub(crate) const INDEX: &str = "model.safetensors.index.json";
pub(crate) const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX_CAP: u64 = 16 << 20;
/// Every shard stays open, and some systems allow 256 open files.
const MAX_SHARDS: usize = 128;
/// Prefixes of tensors that belong to sight and hearing, which this program leaves out.
const DROPPED: [&str; 4] = ["vision_tower.", "embed_vision.", "audio_tower.", "embed_audio."];

/// Files copied to `tokenizer/`, with their caps in bytes. Only `config.json` must be there.
pub(crate) const SIDECARS: [(&str, u64); 6] = [
    ("config.json", config::CONFIG_CAP),
    ("tokenizer.json", 64 << 20),
    ("tokenizer_config.json", 4 << 20),
    ("special_tokens_map.json", 1 << 20),
    ("chat_template.jinja", 4 << 20),
    ("chat_template.json", 4 << 20),
];

/// A tensor and the shard that has it.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) shard: usize,
    pub(crate) info: TensorInfo,
}

/// A shard, without its tensors of other senses' names being told apart.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) name: String,
    /// Absent where the bytes come over a network.
    file: Option<File>,
    #[cfg_attr(not(feature = "install"), expect(dead_code, reason = "asked for over a network only"))]
    pub(crate) header: Header,
}

/// An open checkpoint.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    dir: PathBuf,
    shards: Vec<Shard>,
    tensors: HashMap<String, Located>,
    dropped: usize,
    /// Facts of `config.json`.
    pub(crate) config: TextConfig,
    /// Its `quantization` block.
    pub(crate) quantization: Quantization,
    /// `sha256:` and the hash of the index file; without one, of the header text of `model.safetensors`.
    pub(crate) snapshot_hash: String,
}

impl Checkpoint {
    /// Opens the checkpoint in `dir`.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let meta = std::fs::metadata(dir).map_err(Error::io("open", dir))?;
        if !meta.is_dir() {
            return Err(Error::bad(dir.display().to_string(), "not a directory"));
        }
        let index = read_small(dir, INDEX, INDEX_CAP)?;
        if index.is_none() && open_regular(dir, SINGLE)?.is_none() {
            let reason = if open_regular(dir, "manifest.json")?.is_some() {
                "a model directory already, not a checkpoint (`fieldfare convert` changes its layout)"
            } else {
                "no checkpoint: neither model.safetensors.index.json nor model.safetensors is here"
            };
            return Err(Error::bad(dir.display().to_string(), reason));
        }
        let text = read_small(dir, "config.json", config::CONFIG_CAP)?
            .ok_or_else(|| Error::damaged("config.json", format!("missing in {}", dir.display())))?;
        let (config, quantization) = config::parse(&text)?;
        let weight_map = index.as_deref().map(weight_map).transpose()?;
        let mut this = Self::empty(dir.to_path_buf(), config, quantization, index.as_deref());
        for name in shard_names(weight_map.as_ref())? {
            let (mut file, len) = open_regular(dir, &name)?
                .ok_or_else(|| Error::damaged(&name, format!("missing; weight_map of {INDEX} names it")))?;
            let header = Header::read(&name, &mut file, len)?;
            this.add_shard(name, Some(file), header, weight_map.as_ref())?;
        }
        this.finish(weight_map.as_ref())
    }

    /// A checkpoint whose payload is elsewhere: `header` is asked for the header of each shard.
    #[cfg(feature = "install")]
    pub(crate) fn remote(
        place: &str,
        config: &[u8],
        index: Option<&[u8]>,
        header: &mut dyn FnMut(&str) -> Result<Header>,
    ) -> Result<Self> {
        let (config, quantization) = config::parse(config)?;
        let weight_map = index.map(weight_map).transpose()?;
        let mut this = Self::empty(PathBuf::from(place), config, quantization, index);
        for name in shard_names(weight_map.as_ref())? {
            let header = header(&name)?;
            this.add_shard(name, None, header, weight_map.as_ref())?;
        }
        this.finish(weight_map.as_ref())
    }

    fn empty(dir: PathBuf, config: TextConfig, quantization: Quantization, index: Option<&[u8]>) -> Self {
        Self {
            dir,
            shards: Vec::new(),
            tensors: HashMap::new(),
            dropped: 0,
            config,
            quantization,
            snapshot_hash: index.map(snapshot).unwrap_or_default(),
        }
    }

    /// Everything the index names must be there.
    fn finish(mut self, weight_map: Option<&BTreeMap<String, String>>) -> Result<Self> {
        for (tensor, shard) in weight_map.into_iter().flatten() {
            if !self.tensors.contains_key(tensor) {
                let what = format!("{shard} does not hold it");
                return Err(Error::damaged(format!("{INDEX}: weight_map.{}", shorten(tensor)), what));
            }
        }
        self.drop_media()?;
        Ok(self)
    }

    fn add_shard(
        &mut self,
        name: String,
        file: Option<File>,
        header: Header,
        weight_map: Option<&BTreeMap<String, String>>,
    ) -> Result<()> {
        if weight_map.is_none() {
            self.snapshot_hash = snapshot(&header.json);
        }
        if let Some(known) = self.known()
            && known.header(&name) != Some(hex(&sha256(&header.json)).as_str())
        {
            return Err(Error::damaged(&name, "its header is not the published one, though the index is"));
        }
        let shard = self.shards.len();
        for info in &header.tensors {
            if let Some(map) = weight_map
                && map.get(&info.name) != Some(&name)
            {
                let what = match map.get(&info.name) {
                    Some(other) => format!("{INDEX} says it is in {other}"),
                    None => format!("{INDEX} does not list it"),
                };
                return Err(Error::damaged(format!("{name}: {}", info.name), what));
            }
            self.tensors.insert(info.name.clone(), Located { shard, info: info.clone() });
        }
        self.shards.push(Shard { name, file, header });
        Ok(())
    }

    /// Forgets the tensors of other senses; anything else must be the language model's.
    fn drop_media(&mut self) -> Result<()> {
        let before = self.tensors.len();
        self.tensors.retain(|name, _| !DROPPED.iter().any(|p| name.starts_with(p)));
        self.dropped = before - self.tensors.len();
        let strange = self.tensors.keys().filter(|n| !n.starts_with("language_model.")).min();
        match strange {
            Some(name) => Err(Error::Unsupported(format!("tensor {name}: not of a Gemma 4 MLX checkpoint"))),
            None => Ok(()),
        }
    }

    /// The known checkpoint that has this index.
    pub(crate) fn known(&self) -> Option<&'static Known> {
        known::by_snapshot(&self.snapshot_hash)
    }

    /// The shards, in order of their names.
    #[cfg(feature = "install")]
    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Number of vision and audio tensors left out.
    pub(crate) fn dropped(&self) -> usize {
        self.dropped
    }

    /// Names of the language tensors.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A tensor by name.
    pub(crate) fn tensor(&self, name: &str) -> Option<&Located> {
        self.tensors.get(name)
    }

    /// `shard: tensor`, for messages.
    pub(crate) fn place(&self, at: &Located) -> String {
        format!("{}: {}", self.shards[at.shard].name, at.info.name)
    }

    /// Reads `buf.len()` bytes from `offset` inside the tensor.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the range is not inside the tensor, [`Error::Io`] if the file is now shorter.
    pub(crate) fn read(&self, at: &Located, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Shard { name, file, .. } = &self.shards[at.shard];
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > at.info.len) {
            return Err(Error::damaged(
                self.place(at),
                format!("{} bytes at {offset} are outside it", buf.len()),
            ));
        }
        let file =
            file.as_ref().ok_or_else(|| Error::Unsupported(format!("{name} is not on this machine")))?;
        read_exact_at(file, buf, at.info.offset + offset).map_err(Error::io("read", self.dir.join(name)))
    }

    /// Opens a file beside the shards, with its length; `None` if there is none.
    ///
    /// # Errors
    /// If it is no regular file, larger than `cap`, or plainly not what its name says.
    pub(crate) fn sidecar(&self, name: &str, cap: u64) -> Result<Option<(File, u64)>> {
        let Some((file, len)) = open_regular(&self.dir, name)? else { return Ok(None) };
        if len > cap {
            return Err(Error::damaged(name, format!("{len} bytes exceed the {cap}-byte cap")));
        }
        let mut head = [0u8; 64];
        let head = &mut head[..usize::try_from(len.min(64)).unwrap_or(0)];
        read_exact_at(&file, head, 0).map_err(Error::io("read", self.dir.join(name)))?;
        check_sidecar(name, head)?;
        Ok(Some((file, len)))
    }
}

/// Refuses a sidecar that is plainly not what its name says, from its first bytes.
pub(crate) fn check_sidecar(name: &str, head: &[u8]) -> Result<()> {
    if head.starts_with(b"version https://git-lfs") {
        return Err(Error::damaged(
            name,
            "a Git LFS pointer, not the file it points to; fetch the real file",
        ));
    }
    if name.ends_with(".json") && head.trim_ascii_start().first() != Some(&b'{') {
        return Err(Error::damaged(name, "does not start like a JSON object"));
    }
    Ok(())
}

/// The shards that the index names; without one, the only file there is.
fn shard_names(weight_map: Option<&BTreeMap<String, String>>) -> Result<BTreeSet<String>> {
    let names: BTreeSet<String> = match weight_map {
        Some(map) => map.values().cloned().collect(),
        None => [SINGLE.to_owned()].into(),
    };
    if names.len() > MAX_SHARDS {
        return Err(Error::Unsupported(format!("{INDEX}: {} shards, at most {MAX_SHARDS}", names.len())));
    }
    Ok(names)
}

fn snapshot(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&sha256(bytes)))
}

/// The shard of every tensor.
pub(super) fn weight_map(bytes: &[u8]) -> Result<BTreeMap<String, String>> {
    let value = json::parse(INDEX, bytes, INDEX_CAP)?;
    let map = value.get("weight_map").and_then(Value::as_object);
    let map =
        map.ok_or_else(|| Error::damaged(format!("{INDEX}: weight_map"), "missing or not an object"))?;
    if map.is_empty() {
        return Err(Error::damaged(format!("{INDEX}: weight_map"), "empty"));
    }
    map.iter()
        .map(|(tensor, shard)| {
            let plain = |s: &&str| s.ends_with(".safetensors") && !s.contains(['/', '\\', '\0', ':']);
            match shard.as_str().filter(plain) {
                Some(shard) => Ok((tensor.clone(), shard.to_owned())),
                None => {
                    let at = format!("{INDEX}: weight_map.{}", shorten(tensor));
                    Err(Error::damaged(
                        at,
                        format!("{} is not the plain name of a .safetensors file", shard.describe()),
                    ))
                }
            }
        })
        .collect()
}

/// Opens `dir/name` with its length if it exists. Anything but a regular file is refused before it is opened: opening a
/// FIFO would wait for ever.
fn open_regular(dir: &Path, name: &str) -> Result<Option<(File, u64)>> {
    let path = dir.join(name);
    let meta = match std::fs::metadata(&path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && std::fs::symlink_metadata(&path).is_ok() => {
            return Err(Error::damaged(path.display().to_string(), "a symbolic link to nothing"));
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("open", &path)(e)),
    };
    if !meta.is_file() {
        return Err(Error::damaged(path.display().to_string(), "not a regular file"));
    }
    let file = File::open(&path).map_err(Error::io("open", &path))?;
    let len = file.metadata().map_err(Error::io("open", &path))?.len();
    Ok(Some((file, len)))
}

fn read_small(dir: &Path, name: &str, cap: u64) -> Result<Option<Vec<u8>>> {
    let Some((file, len)) = open_regular(dir, name)? else { return Ok(None) };
    if len > cap {
        return Err(Error::damaged(name, format!("{len} bytes exceed the {cap}-byte cap")));
    }
    let mut bytes = Vec::new();
    file.take(cap).read_to_end(&mut bytes).map_err(Error::io("read", dir.join(name)))?;
    Ok(Some(bytes))
}
