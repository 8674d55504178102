//! Synthetic models: the shapes of Gemma 4 26B-A4B (or smaller ones), with weights from a seed instead of training.
//!
//! They exist so that speed, memory and correctness can be worked on without the download. What they write is noise, but
//! activations, logits and routing are made to behave like a trained model's ([`recipe`] says how). The same seed
//! gives the same files, whatever the number of threads; only the receipt's time differs.

mod recipe;
mod rng;
mod shape;
mod weights;
mod write;

use crate::wrong_use;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use fieldfare::{
    format::{
        EXPERTS_DIR, FileEntry, Layout, MANIFEST, Manifest, Quant, QuantSlot, RECEIPT, Receipt, SIDECAR_DIR,
        plan,
    },
    sys::file::lexical_absolute,
};
use recipe::{Model, Tuning};
use shape::Preset;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Instant, SystemTime},
};

/// Version of the recipe: raised whenever the same seed gives other bytes than before.
const RECIPE_VERSION: u32 = 1;

/// Options of `fieldfare-lab synth`.
#[derive(Args)]
pub(crate) struct Options {
    /// The shape.
    #[arg(long, value_enum)]
    preset: Preset,
    /// Where all numbers come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The directory to write; must not exist.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Order of the bytes of quantized matrices.
    #[arg(long, value_enum, default_value_t = Order::Tiled)]
    layout: Order,
    /// A tokenizer.json to put into the directory (and the tokenizer_config.json beside it, if there is one).
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Threads; by default one for each processor.
    #[arg(long)]
    threads: Option<usize>,
    /// Other values of what was tuned, for experiments: NAME=VALUE, NAME being `popularity`, `recency` or `context` (what
    /// attention adds, relative to the default).
    #[arg(long = "set", value_name = "NAME=VALUE")]
    overrides: Vec<String>,
}

/// [`Layout`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    V1,
    Tiled,
}

impl From<Order> for Layout {
    fn from(order: Order) -> Self {
        match order {
            Order::V1 => Self::V1,
            Order::Tiled => Self::Tiled,
        }
    }
}

/// Writes the model directory.
pub(crate) fn run(options: &Options) -> Result<()> {
    let started = Instant::now();
    let tuning = tuning(&options.overrides)?;
    let threads = match options.threads {
        Some(0) => return Err(wrong_use("--threads must be at least 1")),
        Some(n) => n,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let bytes = write_model(options, tuning, threads)?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{}: {} preset, seed {}, {} layout, {:.2} GB in {seconds:.1} s ({:.2} GB/s)",
        options.output.display(),
        options.preset.name(),
        options.seed,
        Layout::from(options.layout),
        bytes as f64 / 1e9,
        bytes as f64 / 1e9 / seconds
    );
    Ok(())
}

fn tuning(overrides: &[String]) -> Result<Tuning> {
    let mut tuning = Tuning::default();
    for text in overrides {
        let wrong =
            || wrong_use(format!("--set {text}: not NAME=VALUE with a known name and a positive number"));
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let value: f32 = value.parse().ok().filter(|v: &f32| v.is_finite() && *v > 0.0).ok_or_else(wrong)?;
        match name {
            "popularity" if value < 1.0 => tuning.popularity = value,
            "recency" => tuning.recency = value,
            "context" => tuning.attention = tuning.attention.map(|weight| weight * value),
            _ => return Err(wrong()),
        }
    }
    Ok(tuning)
}

/// Writes everything and returns the number of bytes.
fn write_model(options: &Options, tuning: Tuning, threads: usize) -> Result<u64> {
    let (output, layout) = (&options.output, Layout::from(options.layout));
    let model = Model::new(options.preset.shape(), options.seed, tuning);
    let arch = model.shape.arch();
    let quant = Quant {
        embedding: QuantSlot::affine(4),
        attention: QuantSlot::affine(4),
        router: QuantSlot::affine(8),
        shared_expert: QuantSlot::affine(4),
        routed_expert: QuantSlot::affine(4),
    };
    let index = plan::resident_index(&plan::inventory(&arch, &quant)?, layout)?;
    let experts = plan::expert_layout(&arch, quant.routed_expert.weight_bits, layout)?;
    create(output)?;
    let mut files = sidecars(output, options, &model)?;
    let encoded = experts.encode();
    files.insert(fieldfare::format::LAYOUT.to_owned(), put(output, fieldfare::format::LAYOUT, &encoded)?);
    let job =
        write::Job { model: &model, arch: &arch, quant: &quant, layout, index: &index, experts: &experts };
    files.extend(job.run(output, threads)?);
    let manifest = Manifest {
        layout,
        version_minor: 0,
        flags: Manifest::default_flags(),
        model_id: format!("fieldfare/synthetic-{}", options.preset.name()),
        source_snapshot_hash: Some(format!("synthetic-{RECIPE_VERSION}-seed-{}", options.seed)),
        arch,
        quant: Some(quant),
        files,
        expert_stride: experts.expert_stride,
        bit_width_overrides_honored: None,
    };
    let bytes = manifest.encode();
    let path = lexical_absolute(output).with_context(|| format!("cannot name {}", output.display()))?;
    let receipt =
        Receipt::new(&manifest, &bytes, &path.to_string_lossy(), "fieldfare-lab synth", SystemTime::now());
    put(output, RECEIPT, &receipt.encode())?;
    put(output, MANIFEST, &bytes)?; // last: its presence means "complete"
    Ok(manifest.files.values().map(|file| file.size).sum())
}

/// Makes the directory and its folders; an existing one is left alone.
fn create(output: &Path) -> Result<()> {
    if output.symlink_metadata().is_ok() {
        bail!("{} exists already; remove it or name another --output", output.display());
    }
    for folder in [EXPERTS_DIR, SIDECAR_DIR] {
        let path = output.join(folder);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    }
    Ok(())
}

/// Writes a small file and returns its entry.
fn put(output: &Path, name: &str, bytes: &[u8]) -> Result<FileEntry> {
    let path = output.join(name);
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(FileEntry { size: bytes.len() as u64, sha256: fieldfare::format::hash::sha256(bytes) })
}

/// `config.json`, and the tokenizer if one was named.
fn sidecars(output: &Path, options: &Options, model: &Model) -> Result<BTreeMap<String, FileEntry>> {
    let mut files = BTreeMap::new();
    let mut add = |name: &str, bytes: &[u8]| -> Result<()> {
        let name = format!("{SIDECAR_DIR}/{name}");
        let entry = put(output, &name, bytes)?;
        files.insert(name, entry);
        Ok(())
    };
    add("config.json", serde_json::to_string_pretty(&model.shape.config())?.as_bytes())?;
    if let Some(tokenizer) = &options.tokenizer {
        let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        add("tokenizer.json", &read(tokenizer)?)?;
        let settings = tokenizer.with_file_name("tokenizer_config.json");
        if settings.is_file() {
            add("tokenizer_config.json", &read(&settings)?)?;
        }
    }
    Ok(files)
}

/// A tiny model, for tests of the other commands.
#[cfg(test)]
pub(crate) fn tiny(output: &Path) -> Result<u64> {
    let options = Options {
        preset: Preset::Tiny,
        seed: 1,
        output: output.to_path_buf(),
        layout: Order::Tiled,
        tokenizer: None,
        threads: None,
        overrides: Vec::new(),
    };
    write_model(&options, Tuning::default(), 1)
}

#[cfg(test)]
mod tests;
