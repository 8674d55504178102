//! `fieldfare bench`: what a model reaches at each memory budget, what the machine's measured limits would allow, and the
//! ratio of the two.
//!
//! Each row runs in a process of its own (`child`, spoken to by `protocol`, held by `spawn`), so that its memory is its
//! own and a control group can bound it. The bench itself measures the machine between the runs (`limits`), puts the rows
//! together (`rows`) and shows them (`table`, `plot`).

mod child;
mod limits;
mod plot;
mod protocol;
mod report;
mod rows;
mod scaling;
mod spawn;
mod table;
mod text;

pub(super) use report::{COMMIT, Machine};

use crate::args::{BenchArgs, GroupArg, RoutingArg};
use crate::commands::answer;
use crate::failure::Failure;
use crate::ui::report::{count, note, span, statistics, warning};
use crate::ui::style::Style;
use crate::ui::{output, terminal};
use crate::{Outcome, interrupt, locate};
use fieldfare::engine::{self, EngineOptions, MemoryBudget};
use fieldfare::format::{Integrity, ModelDir};
use fieldfare::measure::traffic::Traffic;
use fieldfare::model::{self, Precision};
use fieldfare::store::Reads;
use fieldfare::sys::group::MemoryGroup;
use fieldfare::sys::machine;
use limits::Limits;
use protocol::{Spec, Told};
use rows::{Case, First, Row, Story};
use spawn::Process;
use std::path::Path;
use std::time::Duration;

/// What models of random weights are called; their own routing is that of no text.
const SYNTHETIC: &str = "fieldfare/synthetic-";

/// Measures all rows.
///
/// # Errors
/// Wrong use, no model, a row that did not work, Ctrl-C.
pub fn run(args: &BenchArgs) -> Outcome {
    if args.row {
        return child::run(args);
    }
    let directory = locate::model(args.model.model.as_deref(), args.quiet)?;
    let dir = ModelDir::open(&directory, Integrity::Receipt)?;
    let (longest, max_context) = check(args)?;
    let text = text::tokens(&dir, args.text.as_deref(), longest)?;
    interrupt::listen();
    let options = answer::tuned(&args.tuning);
    let element = if options.precision == Precision::Exact { 4 } else { 2 };
    let routing = args.routing.clone().unwrap_or_else(|| usual_routing(&dir));
    if !args.quiet {
        statistics("measuring the limits of the machine");
    }
    let threads = args.threads.iter().copied().max().unwrap_or_else(machine::cores);
    let reads = options.reads.unwrap_or(Reads::Direct);
    let limits = Limits::measure(
        &dir,
        model::kernels()?,
        threads,
        reads,
        options.precision,
        Duration::from_secs_f32(args.measure_seconds),
    )?;
    let mut bench =
        Bench { args, traffic: Traffic::of(&dir, element)?, dir: &dir, limits, max_context, routing, text };
    let rows = bench.rows()?;
    show(&bench, &rows)
}

/// Prints the result and draws it.
fn show(bench: &Bench<'_>, rows: &[Row]) -> Outcome {
    let report = report::Report::new(bench, rows);
    if let Some(path) = &bench.args.plot {
        let drawing = plot::draw(&report.title(), rows);
        std::fs::write(path, drawing).map_err(|error| unwritable(path, &error))?;
    }
    if let Some(path) = &bench.args.save {
        let json = serde_json::to_string(&report).map_err(std::io::Error::from);
        json.and_then(|json| std::fs::write(path, json + "\n")).map_err(|error| unwritable(path, &error))?;
    }
    if bench.args.json {
        output::json_line(&report)?;
    } else {
        let style = Style::stdout();
        let text = table::text(&report, style) + &scaling::text(&report, style);
        output::document(text.as_bytes())?;
    }
    let failed = rows.iter().filter(|row| row.error.is_some()).count();
    if failed > 0 {
        return Err(Failure::failed(format!("{failed} of {} did not work", count(rows.len(), "row"))));
    }
    Ok(())
}

/// Refuses what would only fail later; the tokens of the longest row, and those that the KV cache may hold.
fn check(args: &BenchArgs) -> Outcome<(usize, usize)> {
    let longest = args.prompt.iter().max().unwrap_or(&1) + args.decode.iter().max().unwrap_or(&1);
    let max_context = args.max_context.unwrap_or_else(|| longest.max(4096));
    if longest > max_context {
        let message =
            format!("--max-context {max_context} is less than the {longest} tokens of the longest row");
        return Err(Failure::usage(message));
    }
    if let Some(RoutingArg::Trace(path)) = &args.routing
        && let Err(error) = std::fs::metadata(path)
    {
        return Err(Failure::failed(format!("cannot open {}: {error}", path.display()))
            .with_hint("--routing takes model, synthetic, synthetic:SEED or the file of a trace"));
    }
    for path in args.plot.iter().chain(&args.save) {
        // Better now than after an hour.
        std::fs::File::options()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| unwritable(path, &error))?;
    }
    Ok((longest, max_context))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

fn usual_routing(dir: &ModelDir) -> RoutingArg {
    if dir.manifest().model_id.starts_with(SYNTHETIC) { RoutingArg::Synthetic(1) } else { RoutingArg::Model }
}

/// A bench under way.
struct Bench<'a> {
    args: &'a BenchArgs,
    dir: &'a ModelDir,
    traffic: Traffic,
    limits: Limits,
    max_context: usize,
    routing: RoutingArg,
    text: text::Text,
}

impl Bench<'_> {
    fn rows(&mut self) -> Outcome<Vec<Row>> {
        let args = self.args;
        let threads: Vec<Option<usize>> = match &args.threads[..] {
            [] => vec![None],
            several => several.iter().copied().map(Some).collect(),
        };
        let mut rows = Vec::new();
        for &memory in &args.memory {
            for &prompt_tokens in &args.prompt {
                for &decode_tokens in &args.decode {
                    for &runs in &args.runs {
                        for &threads in &threads {
                            let memory_bytes = match memory {
                                MemoryBudget::Auto => None,
                                MemoryBudget::Bytes(bytes) => Some(bytes),
                            };
                            let name = memory_bytes.map_or_else(|| "auto".to_owned(), table::size);
                            let case =
                                Case { memory: name, memory_bytes, prompt_tokens, decode_tokens, runs };
                            rows.push(self.row(case, threads, rows.len())?);
                        }
                    }
                }
            }
        }
        Ok(rows)
    }

    /// One row; what only concerns it is noted in it.
    fn row(&mut self, mut case: Case, threads: Option<usize>, number: usize) -> Outcome<Row> {
        let result = self.measure(&mut case, threads, number);
        let (measured, error) = match result {
            Ok(measured) => (Some(measured), None),
            Err(Failure::Failed { message, hint } | Failure::Usage { message, hint }) => {
                let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                warning(&format!("{}: {message}{hint}", case.memory));
                (None, Some(message))
            }
            Err(other) => return Err(other),
        };
        Ok(Row { case, measured, error })
    }

    fn measure(&mut self, case: &mut Case, threads: Option<usize>, number: usize) -> Outcome<rows::Measured> {
        // A budget that cannot work is refused with what would, not by the kernel's killing the process.
        let memory = case.memory_bytes.map_or(MemoryBudget::Auto, MemoryBudget::Bytes);
        let max_context = self.max_context;
        engine::plan(
            self.dir.path(),
            &EngineOptions { memory, max_context, threads, ..answer::tuned(&self.args.tuning) },
        )?;
        self.limits.use_threads(threads.unwrap_or_else(machine::cores));
        let group = self.group(case.memory_bytes, number)?;
        let limit = case.memory_bytes.filter(|_| group.is_some());
        let spec = Spec {
            memory: case.memory_bytes,
            max_context: self.max_context,
            threads,
            ids: self.text.ids[..case.prompt_tokens + case.decode_tokens].to_vec(),
            prompt: case.prompt_tokens,
            group: group.as_ref().map(|group| group.path().to_path_buf()),
            seed: match self.routing {
                RoutingArg::Synthetic(seed) => Some(seed),
                RoutingArg::Model | RoutingArg::Trace(_) => None,
            },
        };
        if self.args.cold {
            forget(self.dir.path());
        }
        let mut process = Process::start(&spec, group)?;
        let Told::First { preparing_seconds, expert_bytes, experts_used } = process.next()? else {
            return Err(out_of_step());
        };
        let seconds = process.elapsed() - preparing_seconds;
        self.note(|| {
            format!("{}, prompt of {}: first token after {seconds:.2} s", case.memory, case.prompt_tokens)
        });
        let Told::Warm { reads } = process.next()? else { return Err(out_of_step()) };
        self.limits.read_as(self.dir, reads.into())?;
        let (mut runs, mut rates) = (Vec::new(), vec![self.limits.sample()?]);
        for run in 1..=case.runs {
            process.go();
            let Told::Run(told) = process.next()? else { return Err(out_of_step()) };
            runs.push(told);
            rates.push(self.limits.sample()?);
            self.say(case, run, told);
        }
        process.finish();
        let Told::End(end) = process.next()? else { return Err(out_of_step()) };
        case.memory_bytes = case.memory_bytes.or(end.limit_bytes);
        Ok(rows::measured(Story {
            model: &self.traffic,
            core_bytes: self.dir.resident().bytes().len() as u64,
            case,
            first: First { seconds, expert_bytes, experts_used },
            runs: &runs,
            rates: &rates,
            end: *end,
            group: limit.map(|limit| (limit, process.group_peak())),
            cold: self.args.cold,
        }))
    }

    fn say(&self, case: &Case, run: usize, told: protocol::Run) {
        let decode = case.decode_tokens as f64 / told.decode_seconds;
        let prefill = span(Duration::try_from_secs_f64(told.prefill_seconds).unwrap_or_default());
        self.note(|| {
            format!(
                "{}, prompt of {}, run {run} of {}: {decode:.2} tok/s, prompt in {prefill}",
                case.memory, case.prompt_tokens, case.runs
            )
        });
    }

    /// A line of progress.
    fn note(&self, text: impl FnOnce() -> String) {
        if !self.args.quiet {
            statistics(&text());
        }
    }

    /// A group with the budget as its limit, as far as that is wanted and can be.
    fn group(&self, memory: Option<u64>, number: usize) -> Outcome<Option<MemoryGroup>> {
        let (Some(bytes), GroupArg::Auto | GroupArg::On) = (memory, self.args.cgroup) else {
            return Ok(None);
        };
        match MemoryGroup::create(&format!("fieldfare-bench-{}-{number}", std::process::id()), bytes) {
            Ok(group) => Ok(Some(group)),
            Err(error) if self.args.cgroup == GroupArg::On => {
                Err(Failure::failed(format!("cannot make a control group: {error}"))
                    .with_hint("run as a user who may, or leave it with --cgroup off"))
            }
            Err(error) => {
                if !self.args.quiet && number == 0 {
                    let error = error.to_string();
                    note(&format!("without a hard limit: no control group ({})", terminal::one_line(&error)));
                }
                Ok(None)
            }
        }
    }
}

fn out_of_step() -> Failure {
    Failure::failed("the measuring process told something else than what was asked")
}

/// Drops the model's files from the page cache. Where that cannot be, the rows are warm, as the figures will show.
fn forget(directory: &Path) {
    for folder in [directory.to_path_buf(), directory.join(fieldfare::format::EXPERTS_DIR)] {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.filter_map(Result::ok) {
            if entry.path().is_file() && machine::forget_cached(&entry.path()).is_err() {
                warning(&format!("{} stays in the page cache", entry.path().display()));
            }
        }
    }
}
