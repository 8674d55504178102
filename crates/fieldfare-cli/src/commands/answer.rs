//! What `chat` and `generate` share: the engine from its options, one generation shown while it is made, the JSON
//! object and the statistics at its end.

use crate::Outcome;
use crate::args::{EngineArgs, ModelArgs, OutputArgs, PolicyArg, PrecisionArg, SamplingArgs};
use crate::failure::Failure;
use crate::ui::output::{TextOut, Thoughts};
use crate::ui::progress::{Progress, Unit};
use crate::ui::{output, report};
use crate::{interrupt, locate};
use fieldfare::engine::{
    Cancel, Engine, EngineOptions, Event, Finish, GenerateOptions, Generation, OutputMode, Session,
};
use fieldfare::model::Precision;
use fieldfare::sample::Sampling;
use fieldfare::store::Policy;
use fieldfare::sys::memory;
use serde::Serialize;
use serde_json::json;
use std::hash::{BuildHasher, Hasher};
use std::ops::ControlFlow;
use std::path::Path;

/// Opens the model that the options name.
///
/// # Errors
/// No model, a damaged one, one in use.
pub fn open(model: &ModelArgs, args: &EngineArgs) -> Outcome<Engine> {
    let directory = locate::model(model.model.as_deref())?;
    Ok(Engine::open(&directory, engine_options(args))?)
}

fn engine_options(args: &EngineArgs) -> EngineOptions {
    EngineOptions {
        max_context: args.max_context,
        expert_cache_slots: args.expert_cache_slots,
        expert_cache_policy: match args.expert_cache_policy {
            PolicyArg::Lfu => Policy::Lfu,
            PolicyArg::LfuTotal => Policy::LfuTotal,
            PolicyArg::Lru => Policy::Lru,
        },
        prefill_chunk_tokens: args.prefill_chunk_tokens,
        precision: match args.precision {
            PrecisionArg::Default => Precision::Default,
            PrecisionArg::Exact => Precision::Exact,
        },
        threads: args.threads,
    }
}

/// What a generation is asked for; the seed is drawn here if none is given, so that it can be shown.
pub fn generate_options(args: &SamplingArgs, mode: OutputMode) -> GenerateOptions {
    let sampling = Sampling {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repetition_penalty: args.repetition_penalty,
        seed: Some(args.seed.unwrap_or_else(draw_seed)),
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

/// 32 bits, so that it is easily typed again and exact in every JSON reader.
fn draw_seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish() >> 32
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

/// The word for how a generation ended, as in the OpenAI API, and `cancelled`.
pub fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::Cancelled => "cancelled",
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
pub fn finish(
    generation: &Generation,
    options: &GenerateOptions,
    session: &Session<'_>,
    show: &OutputArgs,
) -> Outcome {
    if show.json {
        output::json_line(&json_object(generation, options))?;
    }
    if !show.quiet {
        report::statistics(&statistics(generation, options, session));
    }
    if generation.finish == Finish::Cancelled { Err(Failure::Interrupted) } else { Ok(()) }
}
