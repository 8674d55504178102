//! Fills the big files. Each file is one job; workers take jobs until none is left, so the bytes do not depend on
//! how many there are. A worker holds 16 rows of a matrix, or one expert.

use super::{
    recipe::{Model, Recipe},
    weights::{Matrix, Rows},
};
use anyhow::{Context as _, Result, bail};
use fieldfare::format::{
    Arch, DType, EXPERTS_DIR, ExpertLayout, FileEntry, IndexEntry, Layout, Part, PartData, Quant,
    ResidentIndex, WEIGHTS, schema::PREFIX,
};
use fieldfare_kernels::tile::{TILE_ROWS, pack_panel, panel_bytes};
use half::bf16;
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest as _, Sha256};
use std::{
    collections::HashMap,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// What all files are made from.
pub(super) struct Job<'a> {
    pub(super) model: &'a Model,
    pub(super) arch: &'a Arch,
    pub(super) quant: &'a Quant,
    pub(super) layout: Layout,
    pub(super) index: &'a ResidentIndex,
    pub(super) experts: &'a ExpertLayout,
}

impl Job<'_> {
    /// Writes `model_weights.bin` and the layer files below `output` and returns their entries.
    pub(super) fn run(&self, output: &Path, threads: usize) -> Result<Vec<(String, FileEntry)>> {
        let layers = self.experts.layers.len();
        let total =
            self.index.index_size + self.index.resident_size + self.experts.file_bytes()? * layers as u64;
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("{bytes} of {total_bytes}  {bytes_per_sec}  {eta}") {
            bar.set_style(style);
        }
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(String, FileEntry)>> {
            let mut done = Vec::new();
            loop {
                let name = match next.fetch_add(1, Ordering::Relaxed) {
                    0 => WEIGHTS.to_owned(), // the largest first
                    n if n <= layers => format!("{EXPERTS_DIR}/{}", self.experts.layers[n - 1].file),
                    _ => return Ok(done),
                };
                let mut file = HashedFile::create(&output.join(&name), &bar)?;
                match self.experts.layers.iter().position(|l| name.ends_with(&format!("/{}", l.file))) {
                    Some(layer) => self.write_layer(layer, &mut file)?,
                    None => self.write_resident(&mut file)?,
                }
                done.push((name, file.finish()?));
            }
        };
        let mut out = Vec::new();
        thread::scope(|scope| -> Result<()> {
            let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                match worker.join() {
                    Ok(done) => out.extend(done?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(())
        })?;
        bar.finish_and_clear();
        Ok(out)
    }

    fn write_resident(&self, file: &mut HashedFile<'_>) -> Result<()> {
        file.put(&self.index.encode()?)?;
        let mut layer: (usize, HashMap<&str, Recipe>) = (usize::MAX, HashMap::new());
        for entry in &self.index.entries {
            let name = entry.name.strip_prefix(PREFIX).unwrap_or(&entry.name);
            let recipe = match name {
                "embed_tokens.weight" => Recipe::Matrix(self.model.embedding()),
                "norm.weight" => Recipe::Vector(self.model.final_norm()),
                _ => {
                    let (number, part) = name
                        .strip_prefix("layers.")
                        .and_then(|rest| rest.split_once('.'))
                        .and_then(|(number, part)| Some((number.parse::<usize>().ok()?, part)))
                        .with_context(|| format!("there is no recipe for {name}"))?;
                    if layer.0 != number {
                        layer = (number, self.model.layer(number).into_iter().collect());
                    }
                    layer.1.remove(part).with_context(|| format!("there is no recipe for {name}"))?
                }
            };
            self.write_tensor(entry, &recipe, file).with_context(|| format!("tensor {name}"))?;
        }
        file.pad_to(self.index.index_size + self.index.resident_size)
    }

    fn write_tensor(&self, entry: &IndexEntry, recipe: &Recipe, file: &mut HashedFile<'_>) -> Result<()> {
        let direction = &self.model.direction;
        file.pad_to(entry.data.start)?;
        match (recipe, entry.dtype) {
            (Recipe::Vector(values), DType::Bf16) => {
                let bytes: Vec<u8> = values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect();
                file.put(&bytes)?;
            }
            (Recipe::Matrix(matrix), DType::Tile16x64) => {
                let mut strip = Strip::new(matrix);
                let mut panel = vec![0; panel_bytes(matrix.cols)];
                for first in (0..matrix.rows).step_by(TILE_ROWS) {
                    strip.fill(first, direction);
                    strip.pack(&mut panel);
                    file.put(&panel)?;
                }
            }
            (Recipe::Matrix(matrix), DType::U32) => {
                // Three passes, so that no more than a strip is held.
                let mut strip = Strip::new(matrix);
                for (part, range) in [&entry.data, &entry.scales, &entry.biases].into_iter().enumerate() {
                    file.pad_to(range.start)?;
                    for first in (0..matrix.rows).step_by(TILE_ROWS) {
                        strip.fill(first, direction);
                        file.put(strip.parts()[part])?;
                    }
                    file.expect_at(range.end)?;
                }
                return Ok(());
            }
            (_, dtype) => bail!("stored as {dtype:?}, which the recipe does not give"),
        }
        file.expect_at(entry.data.end)
    }

    fn write_layer(&self, layer: usize, file: &mut HashedFile<'_>) -> Result<()> {
        let bits = self.quant.routed_expert.weight_bits;
        let parts = self.experts.expert_parts(layer, self.arch, bits, self.layout)?;
        let mut blob = vec![0; parts.stride];
        // blobs lie in the file by physical rank, which is the logical number in what `plan` lays out
        for expert in 0..self.experts.experts_per_layer {
            let matrices = self.model.expert(layer, expert);
            for (part, matrix) in [&parts.gate, &parts.up, &parts.down].into_iter().zip(&matrices) {
                self.fill_part(part, matrix, &mut blob)?;
            }
            file.put(&blob)?;
        }
        Ok(())
    }

    fn fill_part(&self, part: &Part, matrix: &Matrix, blob: &mut [u8]) -> Result<()> {
        if (part.rows, part.cols, part.bits) != (matrix.rows, matrix.cols, matrix.bits) {
            bail!("the layout has an expert matrix of {} x {} at {} bits", part.rows, part.cols, part.bits);
        }
        let mut strip = Strip::new(matrix);
        for first in (0..matrix.rows).step_by(TILE_ROWS) {
            strip.fill(first, &self.model.direction);
            match &part.data {
                PartData::Tiles { offset, panel_stride } => {
                    let at = offset + first / TILE_ROWS * panel_stride;
                    strip.pack(&mut blob[at..at + panel_bytes(matrix.cols)]);
                }
                PartData::Rows { weights, scales, biases } => {
                    for (range, bytes) in [weights, scales, biases].into_iter().zip(strip.parts()) {
                        let at = range.start + first * (range.len() / matrix.rows);
                        blob[at..at + bytes.len()].copy_from_slice(bytes);
                    }
                }
            }
        }
        Ok(())
    }
}

/// 16 rows of a matrix in source order (fewer at the end of one that does not divide).
struct Strip<'a> {
    matrix: &'a Matrix,
    rows: usize,
    weights: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
}

impl<'a> Strip<'a> {
    fn new(matrix: &'a Matrix) -> Self {
        let groups = TILE_ROWS * matrix.groups() * 2;
        Self {
            matrix,
            rows: 0,
            weights: vec![0; TILE_ROWS * matrix.row_bytes()],
            scales: vec![0; groups],
            biases: vec![0; groups],
        }
    }

    fn fill(&mut self, first: usize, direction: &[f32]) {
        self.rows = TILE_ROWS.min(self.matrix.rows - first);
        let groups = self.rows * self.matrix.groups() * 2;
        let mut out = Rows {
            weights: &mut self.weights[..self.rows * self.matrix.row_bytes()],
            scales: &mut self.scales[..groups],
            biases: &mut self.biases[..groups],
        };
        self.matrix.fill(first, direction, &mut out);
    }

    /// Weights, scales, biases.
    fn parts(&self) -> [&[u8]; 3] {
        let groups = self.rows * self.matrix.groups() * 2;
        [&self.weights[..self.rows * self.matrix.row_bytes()], &self.scales[..groups], &self.biases[..groups]]
    }

    /// As a panel of tiles; the matrix has whole panels where the layout says so.
    fn pack(&self, panel: &mut [u8]) {
        pack_panel(self.matrix.cols, &self.weights, &self.scales, &self.biases, panel);
    }
}

/// Bytes gathered before a write.
const BLOCK: usize = 4 << 20;

/// A file that is written from front to back and hashed on the way.
struct HashedFile<'a> {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    hash: Sha256,
    at: u64,
    bar: &'a ProgressBar,
}

impl<'a> HashedFile<'a> {
    fn create(path: &Path, bar: &'a ProgressBar) -> Result<Self> {
        let file = File::create_new(path).with_context(|| format!("cannot create {}", path.display()))?;
        let buffer = Vec::with_capacity(BLOCK);
        Ok(Self { path: path.to_path_buf(), file, buffer, hash: Sha256::new(), at: 0, bar })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        if self.buffer.len() + bytes.len() > BLOCK {
            self.flush()?;
        }
        if bytes.len() >= BLOCK {
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.file.write_all(bytes).with_context(|| format!("cannot write {}", self.path.display()))?;
        self.bar.inc(bytes.len() as u64);
        Ok(())
    }

    /// Zeros up to `offset`.
    fn pad_to(&mut self, offset: u64) -> Result<()> {
        let gap = offset
            .checked_sub(self.at)
            .with_context(|| format!("offset {offset} lies behind {}", self.at))?;
        let zeros = vec![0; usize::try_from(gap)?];
        self.put(&zeros)
    }

    fn expect_at(&self, offset: u64) -> Result<()> {
        if self.at != offset {
            bail!("{} bytes written where the index says {offset}", self.at);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<FileEntry> {
        self.flush()?;
        self.file.sync_all().with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(FileEntry { size: self.at, sha256: self.hash.finalize().into() })
    }
}
