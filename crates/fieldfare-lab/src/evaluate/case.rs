//! The cases: conversations that the model has not seen, each with a rule by which the reply is judged.
//!
//! A file has one JSON object a line: `id`, `task`, `group`, `messages` and `tools` (OpenAI's shape), `thinking`,
//! `expect` (see [`super::judge`]), `reply` (what the corpus wants) and the same as the trainer writes it,
//! `prompt_text` and `target_text`. Reading holds the trainer against this library: the prompt must come out as the same
//! ids, and the target must read back as the reply and satisfy its own rule. Otherwise figures would be about another
//! format than the one that was trained.

use super::judge::{Call, Rule};
use super::reply::Reply;
use crate::wrong_use;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use fieldfare::chat::{self, RenderOptions, Tool};
use fieldfare::tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// Differences that are spelled out; more are counted.
const SHOWN: usize = 5;

/// A case ready to run.
pub(super) struct Case {
    /// Its name.
    pub(super) id: String,
    /// What its figures are summed under.
    pub(super) group: String,
    /// Whether the model is to think first.
    pub(super) thinking: bool,
    /// How the reply is judged.
    pub(super) rule: Rule,
    /// The rule as written, for people.
    pub(super) expect: Value,
    /// The prompt, by the library's own renderer.
    pub(super) prompt: Vec<u32>,
    /// Whether the prompt ends inside a thought.
    pub(super) starts_in_reasoning: bool,
    /// Names of the declared tools.
    pub(super) tools: Vec<String>,
    /// What the model is to write, its stop id included.
    pub(super) target: Vec<u32>,
}

/// A line of the file. Fields that are not named here are the corpus's own business.
#[derive(Deserialize)]
struct Line {
    id: String,
    group: String,
    messages: Value,
    #[serde(default)]
    tools: Value,
    thinking: bool,
    expect: Value,
    reply: Wanted,
    prompt_text: String,
    target_text: String,
}

/// The reply in pieces.
#[derive(Deserialize)]
struct Wanted {
    content: String,
    reasoning: Option<String>,
    calls: Vec<Call>,
}

/// Reads a file of cases and checks each of them.
///
/// # Errors
/// The file cannot be read or has none; otherwise one error that names the cases which are wrong and says why.
pub(super) fn load(path: &Path, tokenizer: &Tokenizer) -> Result<Vec<Case>> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong_use(format!("cannot read the cases {shown}: {error}")))?;
    let (mut cases, mut faults) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line).with_context(|| format!("{shown}, line {number}"))?;
        let id = line.id.clone();
        match prepare(line, tokenizer) {
            Ok(case) => cases.push(case),
            Err(error) => faults.push(format!("case {id}: {error:#}")),
        }
    }
    if !faults.is_empty() {
        let more = faults.len().saturating_sub(SHOWN);
        let tail = if more > 0 { format!("\nand {more} more") } else { String::new() };
        faults.truncate(SHOWN);
        bail!("{shown}: {}{tail}", faults.join("\n"));
    }
    ensure!(!cases.is_empty(), "{shown} has no cases");
    let mut ids: Vec<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("{shown}: two cases are called {}", pair[0]);
    }
    Ok(cases)
}

fn prepare(line: Line, tokenizer: &Tokenizer) -> Result<Case> {
    let messages = chat::parse_messages(&line.messages)?;
    let tools = if line.tools.is_null() { Vec::new() } else { chat::parse_tools(&line.tools)? };
    let options = RenderOptions { enable_thinking: line.thinking, ..RenderOptions::default() };
    let prompt = chat::prompt(&messages, &tools, &options, tokenizer)?;
    let mut theirs = Vec::new();
    tokenizer.encode_with_control(&line.prompt_text, &mut theirs);
    if prompt.ids != theirs {
        let ours = chat::render_text(&chat::prepare(&messages)?, &chat::prepare_tools(&tools)?, &options)?;
        return Err(difference(&ours, &line.prompt_text));
    }
    let mut target = Vec::new();
    tokenizer.encode_with_control(&line.target_text, &mut target);
    let case = Case {
        rule: Rule::parse(&line.expect).context("expect")?,
        id: line.id,
        group: line.group,
        thinking: line.thinking,
        expect: line.expect,
        prompt: prompt.ids,
        starts_in_reasoning: prompt.starts_in_reasoning,
        tools: tools.into_iter().map(|Tool { name, .. }| name).collect(),
        target,
    };
    check_target(&case, &line.reply, tokenizer)?;
    Ok(case)
}

/// The target, read as the model's output would be, is the reply and is right.
fn check_target(case: &Case, wanted: &Wanted, tokenizer: &Tokenizer) -> Result<()> {
    let stops = tokenizer.control().stop_ids();
    let stop = case.target.iter().position(|id| stops.contains(id));
    ensure!(
        stop.is_some_and(|at| at + 1 == case.target.len()),
        "target_text does not end with the first token that stops an answer"
    );
    let reply = Reply::parse(case, &case.target[..case.target.len() - 1], tokenizer);
    if let Some(fault) = &reply.fault {
        bail!("target_text: {fault}");
    }
    ensure!(
        reply.content == wanted.content && reply.reasoning == wanted.reasoning && reply.calls == wanted.calls,
        "target_text reads back as {}, not as the reply",
        reply.shown()
    );
    ensure!(case.rule.right(&reply.content, &reply.calls), "the wanted reply fails its own rule");
    reply.thought(case, tokenizer).map_err(|reason| anyhow!("the wanted reply: {reason}"))
}

/// Says where two prompts part.
fn difference(ours: &str, theirs: &str) -> anyhow::Error {
    if ours == theirs {
        return anyhow!("prompt_text is the same text as our prompt, but becomes other ids");
    }
    let same = ours.char_indices().zip(theirs.chars()).find(|((_, a), b)| a != b);
    let at = same.map_or(ours.len().min(theirs.len()), |((at, _), _)| at);
    let cut = |text: &str| text[at..].chars().take(40).collect::<String>();
    anyhow!("prompt_text is not our prompt: at byte {at} ours has {:?}, it {:?}", cut(ours), cut(theirs))
}
