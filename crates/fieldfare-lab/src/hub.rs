//! A source for the installer at full size: the real headers over files of zeros, and a hub on the loopback interface.

use anyhow::{Context, Result};
use clap::Args;
use fieldfare_testing::fake_hub::{Content, FakeHub, Fault, REPO, Served};
use fieldfare_testing::gemma4;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where hashes of large files are kept from one run to the next.
const HASHES: &str = "SHA256SUMS";
/// Files from this size on are linked by hash and redirected.
const LARGE: u64 = 10 << 20;

/// `sparse-source`.
#[derive(Args)]
pub(crate) struct SparseOptions {
    /// Folder to make
    #[arg(long)]
    out: PathBuf,
    /// A tokenizer.json to put beside the shards
    #[arg(long)]
    tokenizer: Option<PathBuf>,
}

/// `hub`.
#[derive(Args)]
pub(crate) struct HubOptions {
    /// Folder with the checkpoint
    #[arg(long)]
    dir: PathBuf,
    /// Port
    #[arg(long, default_value_t = 8099)]
    port: u16,
    /// Every so many requests to the storage the connection breaks in the middle (0: never)
    #[arg(long, default_value_t = 0)]
    break_every: usize,
}

/// `plain-copy`.
#[derive(Args)]
pub(crate) struct CopyOptions {
    /// Folder with the checkpoint
    #[arg(long)]
    dir: PathBuf,
    /// File to make
    #[arg(long)]
    out: PathBuf,
    /// Bytes to copy: what an install of 26B-A4B fetches of the shards
    #[arg(long, default_value_t = 14_200_055_868)]
    bytes: u64,
}

/// What an install is compared with: the same number of bytes read, hashed and written by one thread, and flushed.
pub(crate) fn copy(options: &CopyOptions) -> Result<()> {
    let started = Instant::now();
    let mut out = File::create_new(&options.out)?;
    let (mut hasher, mut buffer, mut left) = (Sha256::new(), vec![0; 1 << 20], options.bytes);
    let mut names: Vec<_> =
        fs::read_dir(&options.dir)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    names.sort();
    for path in names.iter().filter(|path| path.extension().is_some_and(|e| e == "safetensors")) {
        let mut file = File::open(path)?;
        while left > 0 {
            let most = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
            let n = file.read(&mut buffer[..most])?;
            if n == 0 {
                break;
            }
            hasher.update(&buffer[..n]);
            out.write_all(&buffer[..n])?;
            left -= n as u64;
        }
    }
    out.sync_all()?;
    let sum = fieldfare::format::hash::hex(&hasher.finalize());
    let seconds = started.elapsed().as_secs_f64();
    println!("{} bytes in {seconds:.1} s, SHA-256 {sum}", options.bytes - left);
    Ok(())
}

/// Writes the source.
pub(crate) fn sparse(options: &SparseOptions) -> Result<()> {
    let out = &options.out;
    fs::create_dir(out).with_context(|| out.display().to_string())?;
    for (name, json, payload) in gemma4::headers() {
        let mut file = File::create_new(out.join(name))?;
        file.write_all(&(json.len() as u64).to_le_bytes())?;
        file.write_all(json.as_bytes())?;
        file.set_len(8 + json.len() as u64 + payload)?;
    }
    fs::write(out.join("model.safetensors.index.json"), gemma4::index())?;
    fs::write(out.join("config.json"), gemma4::config())?;
    if let Some(tokenizer) = &options.tokenizer {
        fs::copy(tokenizer, out.join("tokenizer.json"))?;
    }
    hashes(out)?;
    Ok(())
}

/// SHA-256 of each large file, from the list beside them or, the first time, of their bytes.
fn hashes(dir: &Path) -> Result<BTreeMap<String, String>> {
    let list = dir.join(HASHES);
    if let Ok(text) = fs::read_to_string(&list) {
        let pairs = text.lines().filter_map(|line| line.split_once("  "));
        return Ok(pairs.map(|(sum, name)| (name.to_owned(), sum.to_owned())).collect());
    }
    let (mut sums, mut text) = (BTreeMap::new(), String::new());
    for entry in fs::read_dir(dir)? {
        let (entry, started) = (entry?, Instant::now());
        let len = entry.metadata()?.len();
        if len < LARGE {
            continue;
        }
        let mut hasher = Sha256::new();
        let mut file = File::open(entry.path())?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            hasher.update(&buffer[..n]);
        }
        let sum = fieldfare::format::hash::hex(&hasher.finalize());
        let name = entry.file_name().to_string_lossy().into_owned();
        eprintln!("{sum}  {name}: {:.1} s", started.elapsed().as_secs_f64());
        text += &format!("{sum}  {name}\n");
        sums.insert(name, sum);
    }
    fs::write(list, text)?;
    Ok(sums)
}

/// Serves until it is ended.
pub(crate) fn serve(options: &HubOptions) -> Result<()> {
    let sums = hashes(&options.dir)?;
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(&options.dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == HASHES {
            continue;
        }
        let content = Content::File(entry.path(), entry.metadata()?.len());
        files.insert(name.clone(), Served { content, sha256: sums.get(&name).cloned() });
    }
    let every = options.break_every;
    let hub = FakeHub::start_at(options.port, files, move |number, asked| {
        if every > 0 && asked.is_storage() && number % every == every - 1 {
            Fault::Reset
        } else {
            Fault::None
        }
    });
    println!("HF_ENDPOINT={} fieldfare install --from {REPO} --allow-unpinned", hub.endpoint());
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
