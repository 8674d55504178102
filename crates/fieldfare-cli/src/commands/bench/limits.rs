//! The machine's limits during a bench: measured thoroughly once, then again between the runs, in the bench's own process,
//! which no budget holds.

use crate::Outcome;
use fieldfare::format::ModelDir;
use fieldfare::measure::bound::Rates;
use fieldfare::measure::disk::DiskProbe;
use fieldfare::measure::memory::{MemoryProbe, usual_bytes};
use fieldfare::measure::products::ProductProbe;
use fieldfare::measure::{Kernels, Planes, best, median};
use fieldfare::model::Precision;
use fieldfare::store::Reads;
use fieldfare::sys::{machine, memory};
use serde::Serialize;
use std::time::Duration;

/// Rounds of the first measurement; the time asked for is shared among them.
const ROUNDS: u32 = 4;
/// Shares of that time that each sample between runs takes.
const MEMORY: f64 = 0.3;
const DISK: f64 = 0.2;
const PRODUCTS: f64 = 0.06;
/// Bytes of memory that are read, by each second asked for: a hasty measurement does not begin with filling a gigabyte.
const BYTES_PER_SECOND: f64 = 1.1e9;

/// What can be measured again.
pub(super) struct Limits {
    memory: MemoryProbe,
    disk: DiskProbe,
    products: ProductProbe,
    planes: Option<Planes>,
    depth: usize,
    /// Time of the first measurement.
    time: Duration,
    /// What the first measurement said.
    pub(super) first: First,
}

/// The first measurement, in bytes or multiplications a second.
#[derive(Debug, Clone, Serialize)]
pub(super) struct First {
    /// Reading memory, by threads.
    pub(super) memory: Vec<Rate>,
    /// Share of the memory that was read in huge pages; `None` where the system does not say.
    pub(super) memory_huge_page_share: Option<f64>,
    /// Reading random experts, by reads at once.
    pub(super) disk: Vec<Rate>,
    /// The number of reads at once that was best.
    pub(super) disk_depth: usize,
    /// Whether the page cache was left out.
    pub(super) disk_mode: Reads,
    /// Multiplying many rows, activations in one plane of 8 bits.
    pub(super) products_one_plane: f64,
    /// In two planes.
    pub(super) products_two_planes: f64,
    /// In f32.
    pub(super) products_f32: f64,
}

/// A rate at a number of threads or of reads at once.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rate {
    /// How many.
    pub(super) count: usize,
    /// The best sample.
    pub(super) best: f64,
    /// The middle one.
    pub(super) median: f64,
}

fn rates(measured: Vec<(usize, Vec<f64>)>) -> Vec<Rate> {
    let rate = |(count, rates): (usize, Vec<f64>)| Rate {
        count,
        best: best(&rates),
        median: median(&rates).unwrap_or(0.0),
    };
    measured.into_iter().map(rate).collect()
}

impl Limits {
    /// Measures the machine for this model.
    ///
    /// # Errors
    /// No memory, or a disk that cannot be read.
    pub(super) fn measure(
        dir: &ModelDir,
        kernels: &'static Kernels,
        threads: usize,
        reads: Reads,
        precision: Precision,
        time: Duration,
    ) -> Outcome<Self> {
        let bytes = usual_bytes(memory::room().free(), machine::largest_cache());
        let bytes = bytes.min((BYTES_PER_SECOND * time.as_secs_f64()) as usize).max(64 << 20);
        let sample = time / ROUNDS;
        let half = ROUNDS as usize / 2;
        let mut memory = MemoryProbe::new(kernels, threads, bytes)?;
        let mut disk = DiskProbe::of_model(dir, reads)?;
        let mut products = ProductProbe::new(kernels, threads)?;
        // In two halves, so that each sees more than one mood of the machine.
        let (mut by_threads, mut by_depth) = (memory.by_threads(half, sample), disk.by_depth(half, sample)?);
        let one = products.sample(Some(Planes::One), sample)?;
        let two = products.sample(Some(Planes::Two), sample)?;
        let float = products.sample(None, sample)?;
        for ((_, all), (_, more)) in by_threads.iter_mut().zip(memory.by_threads(half, sample)) {
            all.extend(more);
        }
        for ((_, all), (_, more)) in by_depth.iter_mut().zip(disk.by_depth(half, sample)?) {
            all.extend(more);
        }
        let depth = by_depth
            .iter()
            .max_by(|a, b| median(&a.1).unwrap_or(0.0).total_cmp(&median(&b.1).unwrap_or(0.0)))
            .map_or(1, |(depth, _)| *depth);
        let first = First {
            memory: rates(by_threads),
            memory_huge_page_share: memory.huge_share(),
            disk: rates(by_depth),
            disk_depth: depth,
            disk_mode: disk.mode(),
            products_one_plane: one.max(products.sample(Some(Planes::One), sample)?),
            products_two_planes: two.max(products.sample(Some(Planes::Two), sample)?),
            products_f32: float.max(products.sample(None, sample)?),
        };
        let planes = match precision {
            Precision::Default => Some(Planes::Two),
            Precision::Exact => None,
        };
        Ok(Self { memory, disk, products, planes, depth, time, first })
    }

    /// Reads experts as a row's process does from now on, so that its bound is that of what it can be served by.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(super) fn read_as(&mut self, dir: &ModelDir, reads: Reads) -> Outcome {
        if self.disk.mode() != reads {
            self.disk = DiskProbe::of_model(dir, reads)?;
        }
        Ok(())
    }

    /// Computes with so many threads from now on, as the next row does.
    pub(super) fn use_threads(&mut self, threads: usize) {
        self.memory.use_threads(threads);
        self.products.use_threads(threads);
    }

    /// Measures once more, briefly.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(super) fn sample(&mut self) -> Outcome<Rates> {
        Ok(Rates {
            memory: self.memory.sample(self.time.mul_f64(MEMORY)),
            disk: self.disk.sample(self.depth, self.time.mul_f64(DISK))?,
            products: self.products.sample(self.planes, self.time.mul_f64(PRODUCTS))?,
        })
    }
}

/// What held between two samples: the mean of memory and disk, which change with what else the host does; of products the
/// better one, as a processor's rate does not change and only a disturbed sample is low.
pub(super) fn between(before: &Rates, after: &Rates) -> Rates {
    Rates {
        memory: f64::midpoint(before.memory, after.memory),
        disk: f64::midpoint(before.disk, after.disk),
        products: before.products.max(after.products),
    }
}
