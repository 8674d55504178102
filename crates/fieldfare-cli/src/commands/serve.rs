//! `fieldfare serve`: the model behind an HTTP address.

use super::answer;
use crate::args::{Parallel, ServeArgs};
use crate::failure::Failure;
use crate::ui::report;
use crate::{Outcome, demo, input, interrupt, locate};
use fieldfare::Error;
use fieldfare::engine::{self, Engine, EngineOptions};
use fieldfare::sample::Sampling;
use fieldfare_server::{Facts, Listening, Options, StartError, Stop, TlsFiles, bind};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Contexts that are tried when none is asked for, the largest first.
const CONTEXTS: [usize; 4] = [32_768, 16_384, 8192, 4096];

/// Serves until Ctrl-C.
///
/// # Errors
/// The port or the model is taken, an address that others reach without a key, no model, a damaged one.
pub fn run(args: &ServeArgs) -> Outcome {
    let stop = Stop::default();
    // Before the model, which may take a while: a taken port is told at once, and whoever comes meanwhile to wait.
    let early = if args.wait_ready { None } else { Some(listen(args, &stop)?) };
    let directory = locate::model(args.model.model.as_deref(), args.quiet)?;
    let engine = open(args, &directory)?;
    let facts = Facts::of(&engine)?;
    let plan = engine.plan();
    let parallel = match args.parallel {
        Parallel::Auto => plan.suggested_parallel(),
        Parallel::Most(most) => most,
    };
    let server = match early {
        Some(server) => server,
        None => listen(args, &stop)?,
    }
    .side_by_side(parallel);
    let (words, greeting) = (plan.to_string(), greeting(&server, &facts));
    let beside = side_by_side(parallel, plan.texts_bytes());
    let server = server
        .open(engine, facts)
        .map_err(|error| Failure::failed(format!("the server cannot begin: {error}")))?;
    if !args.quiet {
        report::statistics(&words);
        report::statistics(&beside);
        if fieldfare_demo::is_demo(&directory) {
            report::note(&demo::banner());
        }
        report::note(&greeting);
    }
    let asked = stop.clone();
    interrupt::listen_with(move || asked.stop());
    if interrupt::asked() {
        stop.stop();
    }
    server.run().map_err(|error| Failure::failed(format!("the server ended: {error}")))
}

fn listen(args: &ServeArgs, stop: &Stop) -> Outcome<Listening> {
    let (quiet, as_json) = (args.quiet, args.log_format == "json");
    let log = Box::new(move |line: &str| {
        if quiet && !line.starts_with("internal error") {
            return;
        }
        if as_json {
            report::note(&json_line(SystemTime::now(), line));
        } else {
            report::note(line);
        }
    });
    let bound = bind(options(args)?).map_err(failure)?;
    bound.listen(stop, log).map_err(|error| Failure::failed(format!("cannot serve: {error}")))
}

/// A line of the log as a JSON object: seconds since 1970, and what it says.
fn json_line(time: SystemTime, message: &str) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let level = if message.starts_with("internal error") { "error" } else { "info" };
    json!({ "time": since.as_millis() as f64 / 1e3, "level": level, "message": message }).to_string()
}

/// The key, from the file if one is named.
fn api_key(args: &ServeArgs) -> Outcome<Option<String>> {
    let Some(file) = &args.api_key_file else { return Ok(args.api_key.clone()) };
    Ok(Some(input::text_file(file)?.trim().to_owned()))
}

fn options(args: &ServeArgs) -> Outcome<Options> {
    Ok(Options {
        host: args.host,
        port: args.port,
        api_key: api_key(args)?,
        max_body: usize::try_from(args.max_body_bytes).unwrap_or(usize::MAX),
        cors: args.cors.clone(),
        allowed_hosts: args.allowed_host.clone(),
        aliases: args.model_alias.clone(),
        any_model: args.any_model,
        both_reasoning: args.reasoning_field == "both",
        queue: args.queue_limit,
        sampling: Sampling { temperature: args.temperature, ..Sampling::default() },
        thinking: args.think,
        max_generation: args.max_generation_seconds.map(|seconds| Duration::from_secs(seconds as u64)),
        grace: Duration::from_secs(args.shutdown_grace as u64),
        tls: args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key }),
        ..Options::default()
    })
}

/// Opens the model with the context asked for, or the largest that its memory plan bears.
fn open(args: &ServeArgs, directory: &Path) -> Outcome<Engine> {
    let with = |max_context| EngineOptions {
        max_context,
        memory: args.memory,
        beside: answer::grammars(),
        threads: args.threads,
        conversations: args.conversations,
        prompt_cache_dir: args.prompt_cache_dir.clone(),
        prompt_cache_bytes: args.prompt_cache_bytes,
        ..answer::tuned(&args.tuning)
    };
    if let Some(context) = args.max_context {
        return Ok(Engine::open(directory, with(context))?);
    }
    let mut refusal = None;
    for context in CONTEXTS {
        match engine::plan(directory, &with(context)) {
            Ok(_) => return Ok(Engine::open(directory, with(context))?),
            // The budget, or a model that knows fewer positions.
            Err(error @ Error::BadRequest { .. }) => refusal = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(refusal.map_or_else(|| Failure::failed("no context fits"), Failure::from))
}

/// How many requests are answered at once, and what their texts may take.
fn side_by_side(parallel: usize, bytes: u64) -> String {
    let mb = bytes / 1_000_000;
    match parallel {
        1 => "one request at a time".to_owned(),
        _ => format!("up to {parallel} requests side by side, with {mb} MB for their KV caches together"),
    }
}

fn greeting(server: &Listening, facts: &Facts) -> String {
    format!(
        "serving {} ({} tokens of context) at {}://{}/v1 · Ctrl-C ends",
        facts.id,
        facts.context,
        server.scheme(),
        server.address()
    )
}

fn failure(error: StartError) -> Failure {
    match error {
        StartError::Usage { message, hint } => Failure::usage(message).with_hint(hint),
        StartError::Failed { message, hint } => Failure::failed(message).with_hint(hint),
    }
}
