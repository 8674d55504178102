//! What is there: processors, memory, the disk where models go.

use crate::Outcome;
use crate::args::DoctorArgs;
use crate::commands::bench::Machine;
use crate::failure::Failure;
use crate::locate;
use fieldfare::measure::disk::DiskProbe;
use fieldfare::measure::memory::{MemoryProbe, usual_bytes};
use fieldfare::measure::traffic::FULL_SIZE_STRIDE;
use fieldfare::measure::{best, isas, median};
use fieldfare::model;
use fieldfare::store::Reads;
use fieldfare::sys::{file, machine, memory, paths};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most bytes of the scratch file, and the time to write it in.
const SCRATCH: u64 = 512 << 20;
const WRITING: Duration = Duration::from_millis(1200);
/// Less free space than this is left alone.
const TOO_FULL: u64 = 256 << 20;
const SAMPLE: Duration = Duration::from_millis(120);

/// Everything that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    /// Of this program.
    pub(super) version: &'static str,
    /// What it is built from.
    pub(super) commit: Option<&'static str>,
    /// The machine.
    pub(super) machine: Machine,
    /// Instruction sets that there are kernels for and that this processor has, slowest first.
    pub(super) isas: Vec<String>,
    /// The one that would be used.
    pub(super) isa: String,
    /// Memory and its bounds.
    pub(super) memory: Room,
    /// Reading memory with all processors, in bytes a second; `None` if it was not measured.
    pub(super) bandwidth_bytes_per_second: Option<f64>,
    /// Where models go; `None` if there is no such place.
    pub(super) folder: Option<Folder>,
}

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Room {
    /// Of the machine.
    pub(super) total: Option<u64>,
    /// What programs may still take.
    pub(super) available: Option<u64>,
    /// The smallest limit of a control group or job.
    pub(super) group_limit: Option<u64>,
    /// What it leaves.
    pub(super) group_free: Option<u64>,
    /// What the limits of the process leave.
    pub(super) rlimit_free: Option<u64>,
}

/// The folder for models.
#[derive(Debug, Serialize)]
pub(super) struct Folder {
    /// Its name; it need not be there yet.
    #[serde(serialize_with = "lossy")]
    pub(super) path: PathBuf,
    /// Free space, for this user.
    pub(super) free_bytes: Option<u64>,
    /// Type of the file system.
    pub(super) file_system: Option<String>,
    /// Whether it comes over a network.
    pub(super) network: bool,
    /// How the disk did.
    pub(super) disk: Option<Disk>,
    /// Why it was not tried.
    pub(super) disk_error: Option<String>,
}

fn lossy<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// The disk's rate of reading blobs as large as an expert.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Disk {
    /// The best rate, in bytes a second.
    pub(super) bytes_per_second: f64,
    /// Reads at once that gave it.
    pub(super) depth: usize,
    /// Median rate by number of reads at once.
    pub(super) by_depth: Vec<(usize, f64)>,
    /// Whether direct reads work.
    pub(super) reads: Reads,
}

/// Looks at everything.
///
/// # Errors
/// An instruction set, a folder or a model that was asked for and is not there.
pub(super) fn gather(args: &DoctorArgs) -> Outcome<Facts> {
    let kernels = model::kernels()?;
    let room = memory::room();
    let place = match place(args)? {
        Some(named) => Some(named),
        None => paths::data_dir().map(|data| data.join("models")),
    };
    let folder = place.map(|path| folder(path, !args.quick));
    let bandwidth = || {
        let bytes = usual_bytes(room.free(), machine::largest_cache());
        let mut probe = MemoryProbe::new(kernels, machine::cores(), bytes).ok()?;
        // The best: whatever else runs now need not run later.
        (0..5).map(|_| probe.sample(SAMPLE)).max_by(f64::total_cmp)
    };
    Ok(Facts {
        version: env!("CARGO_PKG_VERSION"),
        commit: crate::commands::bench::COMMIT,
        machine: Machine::here(),
        isas: isas().iter().map(ToString::to_string).collect(),
        isa: kernels.isa().to_string(),
        memory: Room {
            total: room.total,
            available: room.available,
            group_limit: room.group_limit,
            group_free: room.group_free,
            rlimit_free: room.rlimit_free,
        },
        bandwidth_bytes_per_second: if args.quick { None } else { bandwidth() },
        folder,
    })
}

/// The folder that somebody named. It must be there: what is said of it would be of another one.
fn place(args: &DoctorArgs) -> Outcome<Option<PathBuf>> {
    if let Some(model) = &args.model {
        let model = locate::model(Some(model), args.json)?;
        // Nothing is tried inside a model; what holds it is on the same disk.
        let whole = model.canonicalize().unwrap_or(model);
        return Ok(Some(whole.parent().unwrap_or(&whole).to_path_buf()));
    }
    let Some(folder) = &args.folder else { return Ok(None) };
    let wrong = match std::fs::metadata(folder) {
        Ok(meta) if meta.is_dir() => return Ok(Some(folder.clone())),
        Ok(_) => "is not a folder".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "is not there".to_owned(),
        Err(error) => format!("cannot be opened: {error}"),
    };
    Err(Failure::failed(format!("the folder {} {wrong}", folder.display()))
        .with_hint("make it, or name one on the disk where the model will go"))
}

fn folder(path: PathBuf, measure: bool) -> Folder {
    // A folder that is not there yet will be made below the first one that is, most likely on the same disk.
    let there = path.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new(".")).to_path_buf();
    let free_bytes = file::free_space(&there).ok();
    let file_system = machine::file_system(&there);
    let (disk, disk_error) = match free_bytes {
        _ if !measure => (None, None),
        Some(free) if free < TOO_FULL => (None, Some("too little free space to try".to_owned())),
        _ => match disk(&there, free_bytes) {
            Ok(disk) => (Some(disk), None),
            Err(error) => (None, Some(error.to_string())),
        },
    };
    let network = file_system.as_deref().is_some_and(machine::is_network);
    Folder { path, free_bytes, file_system, network, disk, disk_error }
}

fn disk(folder: &Path, free: Option<u64>) -> fieldfare::Result<Disk> {
    let most = SCRATCH.min(free.unwrap_or(SCRATCH) / 4);
    let mut probe = DiskProbe::of_scratch(folder, FULL_SIZE_STRIDE, most, WRITING)?;
    let rates = probe.by_depth(2, SAMPLE)?;
    let top = |rates: &[f64]| best(rates);
    let (depth, rate) = rates
        .iter()
        .map(|(depth, rates)| (*depth, top(rates)))
        .fold((1, 0.0), |a, b| if b.1 > a.1 { b } else { a });
    let by_depth = rates.iter().map(|(depth, rates)| (*depth, median(rates).unwrap_or(0.0))).collect();
    Ok(Disk { bytes_per_second: rate, depth, by_depth, reads: probe.mode() })
}
