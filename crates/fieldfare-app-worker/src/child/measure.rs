//! What the machine gives at most to a model: the same measurements as `fieldfare bench` makes, for a second or two.

use crate::wire::Rates;
use fieldfare::Result;
use fieldfare::format::{Integrity, ModelDir};
use fieldfare::measure::disk::DiskProbe;
use fieldfare::measure::memory::{MemoryProbe, usual_bytes};
use fieldfare::measure::products::ProductProbe;
use fieldfare::measure::{Planes, median};
use fieldfare::model;
use fieldfare::store::Reads;
use fieldfare::sys::{machine, memory};
use std::path::Path;
use std::time::Duration;

/// Samples of each; the middle one counts.
const SAMPLES: usize = 3;
const MEMORY: Duration = Duration::from_millis(150);
const DISK: Duration = Duration::from_millis(200);
const PRODUCTS: Duration = Duration::from_millis(60);
/// Reads at once, as many as the engine's readers make.
const DEPTH: usize = 2;
/// Most memory that is read.
const BYTES: usize = 512 << 20;

/// Measures, beside the files of this model.
pub(super) fn rates(path: &Path) -> Result<Rates> {
    let dir = ModelDir::open(path, Integrity::Receipt)?;
    let (kernels, threads) = (model::kernels()?, machine::cores());
    let bytes = usual_bytes(memory::room().free(), machine::largest_cache()).min(BYTES);
    let mut memory = MemoryProbe::new(kernels, threads, bytes)?;
    let mut disk = DiskProbe::of_model(&dir, Reads::Direct)?;
    let mut products = ProductProbe::new(kernels, threads)?;
    let (mut by_memory, mut by_disk, mut by_products) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        by_memory.push(memory.sample(MEMORY));
        by_disk.push(disk.sample(DEPTH, DISK)?);
        by_products.push(products.sample(Some(Planes::Two), PRODUCTS)?);
    }
    let middle = |rates: &[f64]| median(rates).unwrap_or(0.0);
    Ok(Rates { memory: middle(&by_memory), disk: middle(&by_disk), products: middle(&by_products) })
}
