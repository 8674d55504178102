//! The whole result: machine, model, limits and rows, as they go into one JSON object.

use super::limits::First;
use super::rows::{Measured, Row};
use super::{Bench, SYNTHETIC};
use crate::args::RoutingArg;
use fieldfare::format::{Layout, ModelDir};
use fieldfare::sys::{machine, memory};
use serde::Serialize;

/// The commit that this program is built from, if it was built in its repository.
pub(in crate::commands) const COMMIT: Option<&str> = option_env!("FIELDFARE_COMMIT");

/// What ran where.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    /// Of this program.
    pub(super) version: &'static str,
    /// What it is built from.
    pub(super) commit: Option<&'static str>,
    /// Where.
    pub(super) machine: Machine,
    /// What.
    pub(super) model: Model,
    /// Who chose the experts.
    pub(super) routing: String,
    /// Where experts are generated, so is what look-ahead takes for its guesses: the share of them that is right. It says
    /// nothing of a model.
    pub(super) simulated_guess_recall: Option<f32>,
    /// What was run over.
    pub(super) text: String,
    /// What the machine could do before the first row.
    pub(super) limits: First,
    /// What was reached.
    pub(super) rows: Vec<Whole<'a>>,
}

/// A row with what is the same in all of them, so that each can be read alone.
#[derive(Debug, Serialize)]
pub(super) struct Whole<'a> {
    /// The row.
    #[serde(flatten)]
    pub(super) row: &'a Row,
    commit: Option<&'static str>,
    machine: Option<String>,
}

/// The machine.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Machine {
    /// Its processor.
    pub(in crate::commands) processor: Option<String>,
    /// Its operating system.
    pub(in crate::commands) system: String,
    /// Processors that this program may use.
    pub(in crate::commands) cores: usize,
    /// Its memory.
    pub(in crate::commands) memory_bytes: Option<u64>,
    /// When it gives huge pages.
    pub(in crate::commands) huge_pages: Option<String>,
}

impl Machine {
    /// This one.
    pub(in crate::commands) fn here() -> Self {
        Self {
            processor: machine::processor(),
            system: machine::system(),
            cores: machine::cores(),
            memory_bytes: memory::total_bytes(),
            huge_pages: machine::huge_pages(),
        }
    }
}

/// The model.
#[derive(Debug, Serialize)]
pub(super) struct Model {
    path: String,
    /// Its source.
    pub(super) id: String,
    /// Whether its weights are random.
    pub(super) synthetic: bool,
    layout: Layout,
    layers: usize,
    experts: usize,
    experts_per_token: usize,
    expert_bytes: u64,
    core_bytes: u64,
}

impl<'a> Report<'a> {
    /// Everything, when all rows are done.
    pub(super) fn new(bench: &Bench<'_>, rows: &'a [Row]) -> Self {
        let (manifest, dir) = (bench.dir.manifest(), bench.dir);
        let machine = Machine::here();
        let whole = |row| Whole { row, commit: COMMIT, machine: machine.processor.clone() };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: COMMIT,
            rows: rows.iter().map(whole).collect(),
            machine,
            model: Model {
                path: dir.path().to_string_lossy().into_owned(),
                id: name(dir),
                synthetic: manifest.model_id.starts_with(SYNTHETIC),
                layout: dir.layout(),
                layers: manifest.arch.num_hidden_layers,
                experts: manifest.arch.num_experts,
                experts_per_token: manifest.arch.top_k_experts,
                expert_bytes: manifest.expert_stride,
                core_bytes: dir.resident().bytes().len() as u64,
            },
            routing: bench.routing.to_string(),
            simulated_guess_recall: matches!(bench.routing, RoutingArg::Synthetic(_))
                .then_some(bench.args.guess_recall),
            text: bench.text.source.clone(),
            limits: bench.limits.first.clone(),
        }
    }

    /// One line for people.
    pub(super) fn title(&self) -> String {
        let machine = self.machine.processor.as_deref().unwrap_or("unknown processor");
        let isa = self.measured().next().map(|row| format!(", {}", row.isa)).unwrap_or_default();
        let mut threads: Vec<usize> = self.measured().map(|row| row.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let threads = match threads[..] {
            [] | [1] => "1 thread".to_owned(),
            [count] => format!("{count} threads"),
            [least, .., most] => format!("{least} to {most} threads"),
        };
        format!("{} on {machine}, {threads}{isa}", self.model.id)
    }

    /// The rows that worked.
    pub(super) fn measured(&self) -> impl Iterator<Item = &Measured> {
        self.rows.iter().filter_map(|whole| whole.row.measured.as_ref())
    }
}

/// What the model is called.
fn name(dir: &ModelDir) -> String {
    if fieldfare_demo::is_demo(dir.path()) { "demo".to_owned() } else { dir.manifest().model_id.clone() }
}
