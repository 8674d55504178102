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

/// Rounds of the first measurement, and the time of each sample in it: more than a second for all threads together.
const ROUNDS: usize = 4;
const FIRST: Duration = Duration::from_millis(150);
/// Time of each sample between runs.
const BETWEEN_MEMORY: Duration = Duration::from_millis(300);
const BETWEEN_DISK: Duration = Duration::from_millis(200);
const BETWEEN_PRODUCTS: Duration = Duration::from_millis(60);

/// What can be measured again.
pub(super) struct Limits {
    memory: MemoryProbe,
    disk: DiskProbe,
    products: ProductProbe,
    planes: Option<Planes>,
    depth: usize,
    /// What the first measurement said.
    pub(super) first: First,
    /// All samples of the memory's rate with all threads.
    pub(super) memory_samples: Vec<f64>,
    /// All samples of the disk's rate at the best depth.
    pub(super) disk_samples: Vec<f64>,
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
    ) -> Outcome<Self> {
        let bytes = usual_bytes(memory::room().free(), machine::largest_cache());
        let mut memory = MemoryProbe::new(kernels, threads, bytes)?;
        let mut disk = DiskProbe::of_model(dir, reads)?;
        let mut products = ProductProbe::new(kernels, threads)?;
        // In two halves, so that each sees more than one mood of the machine.
        let (mut by_threads, mut by_depth) =
            (memory.by_threads(ROUNDS / 2, FIRST), disk.by_depth(ROUNDS / 2, FIRST)?);
        let one = products.sample(Some(Planes::One), FIRST)?;
        let two = products.sample(Some(Planes::Two), FIRST)?;
        let float = products.sample(None, FIRST)?;
        for ((_, all), (_, more)) in by_threads.iter_mut().zip(memory.by_threads(ROUNDS / 2, FIRST)) {
            all.extend(more);
        }
        for ((_, all), (_, more)) in by_depth.iter_mut().zip(disk.by_depth(ROUNDS / 2, FIRST)?) {
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
            products_one_plane: one.max(products.sample(Some(Planes::One), FIRST)?),
            products_two_planes: two.max(products.sample(Some(Planes::Two), FIRST)?),
            products_f32: float.max(products.sample(None, FIRST)?),
        };
        let planes = match precision {
            Precision::Default => Some(Planes::Two),
            Precision::Exact => None,
        };
        let (memory_samples, disk_samples) = (Vec::new(), Vec::new());
        Ok(Self { memory, disk, products, planes, depth, first, memory_samples, disk_samples })
    }

    /// Measures once more, briefly.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(super) fn sample(&mut self) -> Outcome<Rates> {
        let rates = Rates {
            memory: self.memory.sample(BETWEEN_MEMORY),
            disk: self.disk.sample(self.depth, BETWEEN_DISK)?,
            products: self.products.sample(self.planes, BETWEEN_PRODUCTS)?,
        };
        self.memory_samples.push(rates.memory);
        self.disk_samples.push(rates.disk);
        Ok(rates)
    }
}

/// What held between two samples: their mean.
pub(super) fn between(before: &Rates, after: &Rates) -> Rates {
    Rates {
        memory: f64::midpoint(before.memory, after.memory),
        disk: f64::midpoint(before.disk, after.disk),
        products: f64::midpoint(before.products, after.products),
    }
}
