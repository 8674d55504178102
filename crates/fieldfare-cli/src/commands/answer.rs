//! What `chat` and `generate` share: the engine from its options, one generation shown while it is made, the JSON
//! object and the statistics at its end.

use crate::Outcome;
use crate::args::{
    CoreArg, EngineArgs, LookAheadArg, ModelArgs, OutputArgs, PolicyArg, PrecisionArg, PrefillArg,
    RdAdviseArg, ReadsArg, SamplingArgs, TuningArgs,
};
use crate::failure::Failure;
use crate::ui::output::{TextOut, Thoughts};
use crate::ui::progress::{Progress, Unit};
use crate::ui::{output, report};
use crate::{input, interrupt, locate};
use fieldfare::chat::ParsedCall;
use fieldfare::engine::{
    Beside, Cancel, Core, Engine, EngineOptions, Event, Finish, GenerateOptions, Generation, OutputMode,
    Session,
};
use fieldfare::grammar::{self, Content, Grammars, Rules, Schema};
use fieldfare::model::{LookAhead, Precision, RunnerStats};
use fieldfare::sample::{Plan, Sampling};
use fieldfare::store::{Policy, RdAdvise, Reads};
use serde_json::json;
use std::hash::{BuildHasher, Hasher};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Opens the model that the options name; whether answers are going to be bound to a grammar.
///
/// # Errors
/// No model, a damaged one, one in use.
pub fn open(model: &ModelArgs, args: &EngineArgs, show: &OutputArgs, bound: bool) -> Outcome<Engine> {
    open_at(&locate::model(model.model.as_deref(), show.quiet)?, args, show, 0, bound)
}

/// Opens the model in this directory, for so many conversations (0 for a single answer), and says where the memory goes.
///
/// # Errors
/// A damaged one, one in use.
pub fn open_at(
    directory: &Path,
    args: &EngineArgs,
    show: &OutputArgs,
    conversations: usize,
    bound: bool,
) -> Outcome<Engine> {
    let beside = if bound { grammars() } else { Beside::default() };
    let engine = Engine::open(directory, EngineOptions { conversations, beside, ..engine_options(args) })?;
    if !show.quiet {
        report::statistics(&engine.plan().to_string());
    }
    Ok(engine)
}

/// The memory that grammars take beside the engine.
pub fn grammars() -> Beside {
    Beside { bytes: grammar::BYTES, bytes_per_id: grammar::BYTES_PER_ID }
}

fn engine_options(args: &EngineArgs) -> EngineOptions {
    EngineOptions {
        max_context: args.max_context,
        memory: args.memory,
        threads: args.threads,
        ..tuned(&args.tuning)
    }
}

/// The engine's options but for memory, context and threads.
pub fn tuned(args: &TuningArgs) -> EngineOptions {
    EngineOptions {
        reads: match args.reads {
            ReadsArg::Auto => None,
            ReadsArg::Direct => Some(Reads::Direct),
            ReadsArg::Buffered => Some(Reads::Buffered),
        },
        core: match args.core {
            CoreArg::Auto => None,
            CoreArg::Mapped => Some(Core::Mapped),
            CoreArg::Copied => Some(Core::Copied),
        },
        rdadvise: match args.rdadvise {
            RdAdviseArg::Off => RdAdvise::Off,
            RdAdviseArg::Default => RdAdvise::Default,
            RdAdviseArg::Bounded => RdAdvise::Bounded,
            RdAdviseArg::Adaptive => RdAdvise::Adaptive,
        },
        look_ahead: match args.look_ahead {
            LookAheadArg::Auto => LookAhead::Auto,
            LookAheadArg::On => LookAhead::On,
            LookAheadArg::Off => LookAhead::Off,
        },
        expert_cache_slots: args.expert_cache_slots,
        expert_cache_policy: match args.expert_cache_policy {
            PolicyArg::Lfu => Policy::Lfu,
            PolicyArg::LfuTotal => Policy::LfuTotal,
            PolicyArg::Lru => Policy::Lru,
        },
        prefill_chunk_tokens: match args.prefill {
            PrefillArg::On => args.prefill_chunk_tokens,
            PrefillArg::Off => 1,
        },
        precision: match args.precision {
            PrecisionArg::Default => Precision::Default,
            PrecisionArg::Exact => Precision::Exact,
        },
        ..EngineOptions::default()
    }
}

/// What `--json-schema` asks for, read before the model is opened, so that a mistake in it is known at once.
///
/// # Errors
/// The file cannot be read, is not JSON, or asks for what a grammar cannot hold.
pub fn schema(args: &SamplingArgs) -> Outcome<Option<Schema>> {
    let Some(path) = &args.json_schema else { return Ok(None) };
    let text = input::text_file(path)?;
    let name = path.display();
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{name}: not JSON: {error}")))?;
    let schema = Schema::parse(&value, "schema", false);
    schema.map(Some).map_err(|error| Failure::usage(format!("{name}: {error}")))
}

/// The plan for answers that are JSON.
///
/// # Errors
/// No tokenizer; a schema that is too complex.
pub fn plan(
    schema: Option<Schema>,
    engine: &Engine,
    may_think: bool,
    starts_in_thought: bool,
) -> Outcome<Option<Arc<dyn Plan>>> {
    let Some(schema) = schema else { return Ok(None) };
    let rules = Rules { content: Content::Json(schema), may_think, starts_in_thought, ..Rules::default() };
    let bound = Grammars::new(engine.tokenizer()?.clone()).bind(&rules)?;
    Ok(bound.map(|bound| Arc::new(bound) as Arc<dyn Plan>))
}

/// What a generation is asked for.
pub fn generate_options(args: &SamplingArgs, mode: OutputMode) -> GenerateOptions {
    let sampling = Sampling {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repetition_penalty: args.repetition_penalty,
        // 32 bits are easily typed again and exact in every JSON reader.
        seed: Some(args.seed.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish() >> 32)),
        ..Sampling::default()
    };
    GenerateOptions {
        sampling,
        max_new: args.max_new,
        stop: args.stop.clone(),
        mode,
        ..GenerateOptions::default()
    }
}

/// Runs one generation and shows it as it is made: text on standard output (unless it goes into a JSON object), thoughts
/// on standard error, a progress line for the prompt on a terminal.
///
/// # Errors
/// Those of the engine and of standard output.
pub fn run(
    session: &mut Session<'_>,
    prompt: &[u32],
    options: &GenerateOptions,
    show: &OutputArgs,
) -> Outcome<Generation> {
    let mut shown = Shown {
        out: TextOut::stdout(),
        thoughts: Thoughts::new(!show.quiet),
        progress: Progress::new("reading the prompt", Unit::Tokens, show.quiet),
        json: show.json,
        failure: None,
    };
    let cancel = Cancel::new();
    let result = session.generate(prompt, options, &cancel, &mut |event| shown.event(&event));
    shown.progress.clear();
    shown.thoughts.end();
    if let Some(failure) = shown.failure {
        return Err(failure);
    }
    let generation = result?;
    shown.out.end_line()?;
    Ok(generation)
}

/// Where the pieces of a generation go.
struct Shown {
    out: TextOut<std::io::StdoutLock<'static>>,
    thoughts: Thoughts,
    progress: Progress,
    json: bool,
    /// Why it was stopped from here.
    failure: Option<Failure>,
}

impl Shown {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Prefill { done, total } => self.progress.set(*done as u64, *total as u64),
            Event::Reasoning(text) => {
                self.progress.clear();
                self.thoughts.piece(text);
            }
            Event::Text(text) => {
                self.progress.clear();
                self.thoughts.end();
                if !self.json
                    && let Err(failure) = self.out.piece(text)
                {
                    self.failure = Some(failure);
                    return ControlFlow::Break(());
                }
            }
            _ => {}
        }
        interrupt::flow()
    }
}

/// A text as ids with `<bos>` in front; what looks like a control token in it stays text.
///
/// # Errors
/// The model has no tokenizer.
pub fn with_bos(text: &str, engine: &Engine) -> Outcome<Vec<u32>> {
    let tokenizer = engine.tokenizer()?;
    let mut ids = vec![tokenizer.control().bos];
    tokenizer.encode(text, &mut ids);
    Ok(ids)
}

/// Ends a command that made one answer: the JSON object if asked for, the statistics, and the exit code of Ctrl-C.
///
/// # Errors
/// Standard output failed, or the answer was interrupted.
pub fn finish(generation: &Generation, engine: &Engine, show: &OutputArgs) -> Outcome {
    if show.json {
        let mut object = json_object(generation);
        object["memory"] = memory(engine);
        output::json_line(&object)?;
    }
    if !show.quiet {
        remark_calls(generation);
        report::statistics(&format!("{} · {}", statistics(generation), slots(&engine.stats_with_pages())));
    }
    if generation.finish == Finish::Cancelled { Err(Failure::Interrupted) } else { Ok(()) }
}

/// Says what became of tool calls: this command offers no tools, but a conversation from a file may lead to one.
pub fn remark_calls(generation: &Generation) {
    for parsed in &generation.tool_calls {
        report::warning(&format!("the model calls the tool {}, and there is none here", parsed.call.name));
    }
    if let Some(error) = &generation.call_error {
        report::warning(&format!("the model wrote a tool call that cannot be read: {}", error.reason));
    }
}

/// The object of `--json`.
fn json_object(generation: &Generation) -> serde_json::Value {
    let mut object = json!({
        "text": generation.text,
        "token_ids": generation.token_ids,
        "finish_reason": finish_reason(generation.finish),
        "prompt_tokens": generation.prompt_tokens,
        "timings": generation.timings,
        "seed": generation.seed,
    });
    if let Some(reasoning) = &generation.reasoning {
        object["reasoning"] = json!(reasoning);
    }
    if !generation.tool_calls.is_empty() {
        let call = |parsed: &ParsedCall| {
            let call = &parsed.call;
            json!({ "id": call.id, "name": call.name, "arguments": call.arguments.text() })
        };
        object["tool_calls"] = generation.tool_calls.iter().map(call).collect();
    }
    object
}

/// The plan, and what became of it.
fn memory(engine: &Engine) -> serde_json::Value {
    let stats = engine.stats_with_pages();
    json!({
        "plan": engine.plan(),
        "slots": stats.slots,
        "slot_bytes": stats.slot_bytes,
        "slot_huge_bytes": stats.slot_huge_bytes,
        "core_copied_bytes": stats.core_copied_bytes,
        "core_huge_bytes": stats.core_huge_bytes,
        "kv_bytes": stats.kv_bytes,
        "reads": stats.reads,
        "rdadvise": stats.rdadvise,
        "advised_bytes": stats.advised_bytes,
        "read_seconds": stats.read_time.as_secs_f64(),
        "read_bytes": stats.bytes_read,
        "look_ahead": {
            "on": stats.looks_ahead,
            "guesses": stats.ahead_guesses,
            "used": stats.ahead_used,
            "wasted_bytes": stats.ahead_wasted_bytes,
            "recall": (stats.ahead_chosen > 0).then(|| stats.ahead_recalled as f64 / stats.ahead_chosen as f64),
        },
    })
}

/// What the slots came to: how many, how much of them (and of a copied core) in huge pages, how they were read.
fn slots(stats: &RunnerStats) -> String {
    let mut text = report::count(stats.slots, "slot");
    let bytes = stats.slot_bytes + stats.core_copied_bytes;
    let huge = [stats.slot_huge_bytes, stats.core_huge_bytes].into_iter().flatten();
    if stats.slot_huge_bytes.is_some() && bytes > 0 {
        let share = huge.sum::<u64>() as f64 / bytes as f64;
        text.push_str(&format!(", {:.0} % in huge pages", 100.0 * share));
    }
    if let Some(reads) = stats.reads {
        text.push_str(&format!(", {reads} reads"));
        if stats.rdadvise != RdAdvise::Off {
            text.push_str(&format!(" with {} advice", stats.rdadvise));
        }
    }
    text
}

/// One line about an answer that was made.
pub fn statistics(generation: &Generation) -> String {
    let timings = &generation.timings;
    let span = |seconds: f64| report::span(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let rate = |rate: Option<f64>| rate.map(|rate| format!(" ({rate:.1} tok/s)")).unwrap_or_default();
    let prompt = report::count(generation.prompt_tokens, "prompt token");
    let known = match generation.cached_tokens {
        0 => String::new(),
        known => format!(", {known} known"),
    };
    let mut parts = vec![
        format!(
            "{prompt}{known} in {}{}",
            span(timings.prefill_seconds),
            rate(timings.prefill_tokens_per_second)
        ),
        format!(
            "{} in {}{}",
            report::count(generation.token_ids.len(), "new token"),
            span(timings.decode_seconds),
            rate(timings.decode_tokens_per_second)
        ),
        format!("finish: {}", finish_reason(generation.finish)),
    ];
    parts.extend(timings.expert_hit_rate.map(|share| format!("expert hits {:.0} %", 100.0 * share)));
    parts.push(format!("read {}", report::bytes(timings.expert_bytes_read)));
    parts.extend(timings.peak_rss_bytes.map(|peak| format!("peak memory {}", report::bytes(peak))));
    parts.push(format!("seed {}", generation.seed));
    parts.join(" · ")
}

/// The word for how an answer ended: those of the OpenAI API, and `cancelled`.
fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::Cancelled => "cancelled",
    }
}
