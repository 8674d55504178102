//! `fieldfare-lab grammar`: what binding an answer to a grammar costs, over a real vocabulary.
//!
//! Each case has rules and an answer that fits them. The answer is followed token by token, as the engine does: ask
//! what may come, forbid the rest of the logits, accept. The same choices without rules are timed beside it.

use anyhow::{Context, Result, ensure};
use clap::Args;
use fieldfare::chat::{Tool, prepare_tools};
use fieldfare::grammar::{CallRule, Choice, Content, Grammars, Rules, Schema};
use fieldfare::sample::{Plan, Sampler, Sampling};
use fieldfare::sys::memory;
use fieldfare::tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Options of `grammar`.
#[derive(Args)]
pub(crate) struct Options {
    /// The `tokenizer.json`.
    #[arg(long)]
    tokenizer: PathBuf,
    /// Folder of compiled tokenizers.
    #[arg(long)]
    cache: Option<PathBuf>,
    /// Times that each answer is followed.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only cases whose name has this in it.
    #[arg(long)]
    only: Option<String>,
    /// Instead: what a step takes where so many milliseconds of work stand for the forward pass, without rules, with masks that are computed after it, and with masks that are computed beside it.
    #[arg(long, conflicts_with = "memory")]
    pass: Option<u64>,
    /// Threads of that work; all processors if not given.
    #[arg(long, requires = "pass")]
    pass_threads: Option<usize>,
    /// Instead: what the largest grammars take of memory when an answer has gone through all of them. One case a process
    /// (`--only`), since what was given back is not told from what was never taken.
    #[arg(long)]
    memory: bool,
}

struct Case {
    name: &'static str,
    rules: Rules,
    /// What is said, control tokens spelled.
    answer: String,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<()> {
    let tokenizer = Arc::new(Tokenizer::open(&options.tokenizer, options.cache.as_deref())?);
    let resident = || memory::process().rss.unwrap_or(0) as f64 / 1e6;
    let before = resident();
    let start = Instant::now();
    let grammars = Grammars::new(tokenizer.clone());
    grammars.prepare()?;
    println!(
        "vocabulary of {}: ready in {:.2} s, resident +{:.0} MB (peak {:.0} MB)",
        tokenizer.vocab_size(),
        start.elapsed().as_secs_f64(),
        resident() - before,
        memory::process().peak_rss.unwrap_or(0) as f64 / 1e6,
    );
    let wanted = |case: &Case| options.only.as_ref().is_none_or(|part| case.name.contains(part.as_str()));
    if options.memory {
        for case in whole_cases()?.iter().filter(|case| wanted(case)) {
            whole(&tokenizer, &grammars, case).with_context(|| case.name)?;
        }
        return Ok(());
    }
    if let Some(pass) = options.pass {
        println!(
            "{:<30} {:>7} {:>12} {:>12} {:>12} {:>14} {:>12}",
            "case", "tokens", "free", "after: more", "beside", "worst place", "beside"
        );
        let pass = Pass::lasting(Duration::from_millis(pass), options.pass_threads);
        for case in cases()?.iter().filter(|case| wanted(case)) {
            steps(&tokenizer, &grammars, case, options.rounds, &pass).with_context(|| case.name)?;
        }
        return Ok(());
    }
    println!(
        "{:<30} {:>9} {:>7} {:>12} {:>11} {:>11} {:>12} {:>12} {:>11}",
        "case", "compile", "tokens", "mean", "median", "worst", "unbound", "worst place", "resident"
    );
    for case in cases()?.iter().filter(|case| wanted(case)) {
        one(&tokenizer, &grammars, case, options.rounds).with_context(|| case.name)?;
    }
    println!("resident at the end +{:.0} MB", resident() - before);
    Ok(())
}

/// Logits that are all different, the same each time.
fn made_up_logits(vocabulary: usize) -> Vec<f32> {
    (0..vocabulary as u32).map(|id| (id.wrapping_mul(2_654_435_761) >> 16) as f32 / 4000.0).collect()
}

fn one(tokenizer: &Tokenizer, grammars: &Grammars, case: &Case, rounds: usize) -> Result<()> {
    let before = memory::process().rss.unwrap_or(0);
    let start = Instant::now();
    let bound = grammars.bind(&case.rules)?.context("rules that bind")?;
    let compile = start.elapsed();
    let mut ids = Vec::new();
    tokenizer.encode_with_control(&case.answer, &mut ids);
    let sampling = Sampling { seed: Some(1), ..Sampling::default() };
    let vocabulary = tokenizer.vocab_size();
    let logits = made_up_logits(vocabulary);
    let mut scratch = logits.clone();
    let (mut bound_times, mut free_times) = (Vec::new(), Vec::new());
    // What each place costs at best: what the machine does beside is not the mask's.
    let mut least = vec![Duration::MAX; ids.len()];
    for _ in 0..rounds {
        let guide = bound.guide(&tokenizer.control().stop_ids())?;
        let mut bound = Sampler::new(&sampling, vocabulary)?.guided(Some(guide));
        let mut free = Sampler::new(&sampling, vocabulary)?;
        for (at, &id) in ids.iter().enumerate() {
            for (sampler, times) in [(&mut free, &mut free_times), (&mut bound, &mut bound_times)] {
                scratch.copy_from_slice(&logits);
                let start = Instant::now();
                std::hint::black_box(sampler.choose(&mut scratch)?);
                sampler.accept(id);
                times.push(start.elapsed());
            }
            least[at] = least[at].min(bound_times.last().copied().unwrap_or_default());
            let last = at + 1 == ids.len();
            ensure!(last || !bound.is_over(), "over after {} of {} tokens", at + 1, ids.len());
        }
        ensure!(bound.is_over() || bound.choose(&mut scratch).is_ok(), "the answer does not fit");
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mean = |times: &[Duration]| ms(times.iter().sum::<Duration>() / times.len() as u32);
    let worst = bound_times.iter().copied().max().unwrap_or_default();
    let unbound = mean(&free_times);
    let extra = mean(&bound_times);
    let free_at_best = ms(free_times.iter().copied().min().unwrap_or_default());
    let worst_place = ms(least.into_iter().max().unwrap_or_default()) - free_at_best;
    bound_times.sort_unstable();
    let grown = memory::process().rss.unwrap_or(0).saturating_sub(before);
    println!(
        "{:<30} {:>6.1} ms {:>7} {:>9.3} ms {:>8.3} ms {:>8.3} ms {:>9.3} ms {:>+9.3} ms {:>8.1} MB",
        case.name,
        ms(compile),
        ids.len(),
        extra,
        ms(bound_times[bound_times.len() / 2]),
        ms(worst),
        unbound,
        worst_place,
        grown as f64 / 1e6,
    );
    Ok(())
}

/// Work that stands for a forward pass: parts that the threads claim, as those of the kernels' pool do.
struct Pass {
    threads: usize,
    parts: usize,
}

impl Pass {
    /// Takes about so long when nothing else runs.
    fn lasting(time: Duration, threads: Option<usize>) -> Self {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or_else(all);
        let probe = Self { threads, parts: 2000 };
        let least = (0..5).map(|_| {
            let start = Instant::now();
            probe.run();
            start.elapsed()
        });
        let least = least.min().unwrap_or_default().as_secs_f64();
        Self { threads, parts: (2000.0 * time.as_secs_f64() / least.max(1e-9)) as usize }
    }

    fn run(&self) {
        let next = AtomicUsize::new(0);
        let work = || {
            while next.fetch_add(1, Ordering::Relaxed) < self.parts {
                let sum = (0..4000_u64).fold(1, |sum: u64, i| (sum ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                std::hint::black_box(sum);
            }
        };
        std::thread::scope(|scope| {
            (1..self.threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
    }
}

/// Follows an answer by steps of a pass and a choice: free, bound, and bound with the mask told beside the pass.
fn steps(tokenizer: &Tokenizer, grammars: &Grammars, case: &Case, rounds: usize, pass: &Pass) -> Result<()> {
    let bound = grammars.bind(&case.rules)?.context("rules that bind")?;
    let mut ids = Vec::new();
    tokenizer.encode_with_control(&case.answer, &mut ids);
    let sampling = Sampling { seed: Some(1), ..Sampling::default() };
    let vocabulary = tokenizer.vocab_size();
    let logits = made_up_logits(vocabulary);
    let mut scratch = logits.clone();
    let mut sums = [Duration::ZERO; 3];
    // What each place costs at best: what the machine does beside is not the mask's.
    let mut least = vec![[Duration::MAX; 3]; ids.len()];
    for _ in 0..rounds {
        let guided = || -> Result<Sampler> {
            let guide = bound.guide(&tokenizer.control().stop_ids())?;
            Ok(Sampler::new(&sampling, vocabulary)?.guided(Some(guide)))
        };
        let mut samplers = [Sampler::new(&sampling, vocabulary)?, guided()?, guided()?];
        for (at, &id) in ids.iter().enumerate() {
            for (kind, sampler) in samplers.iter_mut().enumerate() {
                scratch.copy_from_slice(&logits);
                let start = Instant::now();
                if kind == 2 {
                    sampler.look_ahead();
                }
                pass.run();
                std::hint::black_box(sampler.choose(&mut scratch)?);
                sampler.accept(id);
                let time = start.elapsed();
                sums[kind] += time;
                least[at][kind] = least[at][kind].min(time);
            }
        }
    }
    let steps = (rounds * ids.len()).max(1) as f64;
    let [free, after, beside] = sums.map(|sum| sum.as_secs_f64() * 1e3 / steps);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let least_free = least.iter().map(|place| place[0]).min().unwrap_or_default();
    let worst =
        |kind: usize| ms(least.iter().map(|place| place[kind]).max().unwrap_or_default()) - ms(least_free);
    println!(
        "{:<30} {:>7} {:>9.3} ms {:>+9.3} ms {:>+9.3} ms {:>+11.3} ms {:>+9.3} ms",
        case.name,
        ids.len(),
        free,
        after - free,
        beside - free,
        worst(1),
        worst(2),
    );
    Ok(())
}

/// Follows an answer once, without choices, and tells what memory grew by beside what was counted beforehand.
fn whole(tokenizer: &Tokenizer, grammars: &Grammars, case: &Case) -> Result<()> {
    let resident = || memory::process().rss.unwrap_or(0);
    let before = resident();
    let bound = grammars.bind(&case.rules)?.context("rules that bind")?;
    let compiled = resident();
    let mut ids = Vec::new();
    tokenizer.encode_with_control(&case.answer, &mut ids);
    let mut guide = bound.guide(&tokenizer.control().stop_ids())?;
    let start = Instant::now();
    for (at, &id) in ids.iter().enumerate() {
        guide.allowed().with_context(|| format!("token {at} of {}", ids.len()))?;
        guide.accept(id);
    }
    let followed = resident();
    let peak = memory::process().peak_rss.unwrap_or(0);
    // What one more takes, now that what comes and goes while it is compiled is there.
    let mut more = Vec::new();
    for _ in 0..3 {
        more.push(grammars.bind(&case.rules)?.context("rules that bind")?);
    }
    let each = resident().saturating_sub(followed) / 3;
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{:<40} {:>6} tokens, {:.2} ms each; compiled +{:.1} MB, followed +{:.1} MB, peak +{:.1} MB; one more compiled +{:.1} MB; counted {:.1} MB",
        case.name,
        ids.len(),
        start.elapsed().as_secs_f64() * 1e3 / ids.len().max(1) as f64,
        mb(compiled.saturating_sub(before)),
        mb(followed.saturating_sub(before)),
        mb(peak.saturating_sub(before)),
        mb(each),
        mb(case.rules.bytes()),
    );
    Ok(())
}

/// Large grammars, and answers that leave nothing out.
fn whole_cases() -> Result<Vec<Case>> {
    let json_of = |schema: &Value| -> Result<Rules> {
        Ok(Rules { content: Content::Json(Schema::parse(schema, "schema", false)?), ..Rules::default() })
    };
    let all = |names: &mut dyn Iterator<Item = String>| -> String {
        let pairs: Vec<String> = names.map(|name| format!("\"{name}\":null")).collect();
        pairs.join(",")
    };
    let number = |i: usize| format!("property number {i}");
    let wide_answer = format!("{{{}}}", all(&mut (0..500).map(number)));
    let level = all(&mut (0..499).map(number));
    let deep_answer = format!("{}{}", format!("{{{level},\"inner\":").repeat(4), "null}}}}");
    let deep = (0..4).fold(json!({ "type": "null" }), |inner, _| {
        let mut level = wide(&json!("null"));
        if let Some(properties) = level["properties"].as_object_mut() {
            properties.remove("property number 499");
            properties.insert("inner".to_owned(), inner);
        }
        level
    });
    // Letters that have nothing in common.
    let word = |i: usize| format!("{:x}", (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let words: serde_json::Map<String, Value> =
        (0..500).map(|i| (word(i), json!({ "type": ["string", "null"] }))).collect();
    let values: Vec<String> = (0..1900).map(|i| format!("{} is a value", word(i))).collect();
    let tools: Vec<Tool> = agent_tools();
    let calls: Vec<CallRule> = prepare_tools(&tools)?.iter().map(CallRule::lenient).collect();
    Ok(vec![
        Case {
            name: "an object of 500 properties",
            rules: json_of(&wide(&json!(["string", "null"])))?,
            answer: wide_answer,
        },
        Case { name: "four of 499, one in the other", rules: json_of(&deep)?, answer: deep_answer },
        Case {
            name: "500 properties, nothing in common",
            rules: json_of(&json!({ "type": "object", "properties": words, "additionalProperties": false }))?,
            answer: format!("{{{}}}", all(&mut (0..500).map(word))),
        },
        Case {
            name: "enum of 1900, twenty of them",
            rules: json_of(&json!({ "type": "array", "items": { "enum": values } }))?,
            answer: json!(values.iter().step_by(100).collect::<Vec<_>>()).to_string(),
        },
        Case {
            name: "24 tools, a call",
            rules: Rules { calls, ..Rules::default() },
            answer:
                "<|tool_call>call:tool_07{content:<|\"|>text<|\"|>,path:<|\"|>src/main.rs<|\"|>}<tool_call|>"
                    .into(),
        },
        Case { name: "60 tools of 12 keys, a call", rules: many_tools()?, answer: call_of_many() },
    ])
}

fn cases() -> Result<Vec<Case>> {
    let person = json!({ "type": "object", "properties": {
        "name": { "type": "string" }, "age": { "type": "integer" }, "email": { "type": ["string", "null"] },
        "tags": { "type": "array", "items": { "type": "string" } },
        "role": { "enum": ["admin", "user", "guest"] },
        "address": { "type": "object", "properties": { "street": { "type": "string" }, "zip": { "type": "string" } },
            "required": ["street", "zip"], "additionalProperties": false } },
        "required": ["name", "age", "email", "tags", "role", "address"], "additionalProperties": false });
    let said = json!({ "name": "Ada Lovelace", "age": 36, "email": null, "tags": ["mathematics", "machines that think"],
        "role": "admin", "address": { "street": "St. James's Square 12, London", "zip": "SW1Y 4JH" } });
    let tree = json!({ "$ref": "#/$defs/node", "$defs": { "node": { "type": "object", "properties": {
        "label": { "type": "string" }, "children": { "type": "array", "items": { "$ref": "#/$defs/node" } } },
        "required": ["label", "children"], "additionalProperties": false } } });
    let leaf = |label: &str| json!({ "label": label, "children": [] });
    let grown = json!({ "label": "animals", "children": [leaf("mammals"), { "label": "birds that sing", "children":
        [leaf("fieldfare"), leaf("blackbird")] }, leaf("fish")] });
    let many: Vec<String> = (0..1000).map(|i| format!("value number {i}")).collect();
    let json_of = |schema: &Value| -> Result<Rules> {
        Ok(Rules { content: Content::Json(Schema::parse(schema, "schema", false)?), ..Rules::default() })
    };
    let pretty = serde_json::to_string_pretty(&said)?;
    let long = "fn main() {\n    println!(\"{}\", \"hello\\n\");\n}\n// The quick brown fox.\n".repeat(6);
    let tools = prepare_tools(&agent_tools())?;
    let calls: Vec<CallRule> = tools.iter().map(CallRule::lenient).collect();
    let named = |choice| Rules { calls: calls.clone(), choice, single_call: true, ..Rules::default() };
    let write = format!(
        "<|tool_call>call:tool_07{{content:<|\"|>{long}<|\"|>,path:<|\"|>src/main.rs<|\"|>}}<tool_call|>"
    );
    let strict = Rules {
        calls: vec![CallRule::strict("save", &person)?],
        choice: Choice::Required,
        single_call: true,
        ..Rules::default()
    };
    let saved = "<|tool_call>call:save{address:{street:<|\"|>Elm 1<|\"|>,zip:<|\"|>1<|\"|>},age:36,email:null,name:<|\"|>Ada<|\"|>,role:<|\"|>user<|\"|>,tags:[<|\"|>a<|\"|>]}<tool_call|>";
    Ok(vec![
        Case { name: "json_schema, compact", rules: json_of(&person)?, answer: said.to_string() },
        Case { name: "json_schema, pretty", rules: json_of(&person)?, answer: pretty },
        Case { name: "json_schema, recursive", rules: json_of(&tree)?, answer: grown.to_string() },
        Case {
            name: "json_schema, enum of 1000",
            rules: json_of(&json!({ "enum": many }))?,
            answer: "\"value number 873\"".to_owned(),
        },
        Case {
            name: "json_object",
            rules: Rules { content: Content::Json(Schema::object()), ..Rules::default() },
            answer: json!({ "a": [1, 2.5, { "b": "some words of text" }], "c": said }).to_string(),
        },
        Case { name: "24 tools, a call", rules: named(Choice::Auto), answer: write.clone() },
        Case { name: "24 tools, one named", rules: named(Choice::Named("tool_07".into())), answer: write },
        Case { name: "strict call", rules: strict, answer: saved.to_owned() },
        Case {
            name: "an object of 500 properties",
            rules: json_of(&wide(&json!(["string", "null"])))?,
            answer: some_of_wide(),
        },
        Case { name: "the same, strict call", rules: strict_wide()?, answer: wide_call() },
        Case { name: "four of 499, one in the other", rules: json_of(&deep())?, answer: some_of_deep() },
        Case { name: "60 tools of 12 keys, a call", rules: many_tools()?, answer: call_of_many() },
    ])
}

/// As wide as an object may be.
fn wide(kind: &Value) -> Value {
    let names: Vec<String> = (0..500).map(|i| format!("property number {i}")).collect();
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!({ "type": kind }))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn some_of_wide() -> String {
    json!({ "property number 3": "some words", "property number 17": null, "property number 480": "the end" })
        .to_string()
}

fn strict_wide() -> Result<Rules> {
    let calls = vec![CallRule::strict("save", &wide(&json!(["string", "null"])))?];
    Ok(Rules { calls, choice: Choice::Required, single_call: true, ..Rules::default() })
}

fn wide_call() -> String {
    "<|tool_call>call:save{property number 17:null,property number 480:<|\"|>the end<|\"|>}<tool_call|>"
        .to_owned()
}

/// As much of it as a schema may have, each object optional in the one around it.
fn deep() -> Value {
    (0..4).fold(json!({ "type": "null" }), |inner, _| {
        let mut level = wide(&json!("string"));
        if let Some(properties) = level["properties"].as_object_mut() {
            properties.remove("property number 499");
            properties.insert("inner".to_owned(), inner);
        }
        level
    })
}

fn some_of_deep() -> String {
    json!({ "property number 1": "a", "inner": { "inner": { "property number 5": "x", "inner": {} } } })
        .to_string()
}

fn many_tools() -> Result<Rules> {
    let tool = |i: usize| Tool {
        name: format!("server_{}_tool_{i}", i % 7),
        description: None,
        parameters: Some(json!({ "type": "object", "properties": (0..12)
            .map(|k| (format!("argument_{k}"), json!({ "type": "string" })))
            .collect::<serde_json::Map<_, _>>() })),
        response: None,
    };
    let tools: Vec<Tool> = (0..60).map(tool).collect();
    let calls = prepare_tools(&tools)?.iter().map(CallRule::lenient).collect();
    Ok(Rules { calls, single_call: true, ..Rules::default() })
}

fn call_of_many() -> String {
    "<|tool_call>call:server_3_tool_59{argument_11:<|\"|>some words<|\"|>,argument_2:[1,2,{x:null}]}<tool_call|>"
        .to_owned()
}

/// As many tools as a coding agent declares.
fn agent_tools() -> Vec<Tool> {
    (0..24)
        .map(|i| Tool {
            name: format!("tool_{i:02}"),
            description: Some("Does something.".to_owned()),
            parameters: Some(json!({ "type": "object", "properties": {
                "path": { "type": "string" }, "content": { "type": "string" }, "limit": { "type": "number" },
                (format!("option_{i}")): { "type": "boolean" } }, "required": ["path"] })),
            response: None,
        })
        .collect()
}
