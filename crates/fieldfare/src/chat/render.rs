//! Writes a conversation as Google's canonical template of 2026-07-09 does (large models), without a template
//! engine.
//!
//! This is the template and nothing else: what our own layer does before (splitting, joining, adapting
//! schemas) is in `prepare`. The steps and their numbers are those of the format description.

use super::declare::{self, Keys};
use super::json::Json;
use super::marker::{Marker, Script};
use super::{
    Arguments, Content, Message, Part, Prompt, RenderOptions, Role, Tool, prepare, prepare_tools, python,
};
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};
use std::collections::HashMap;

/// What a program should call: [`prepare`], [`prepare_tools`], then [`render`].
pub fn prompt(
    messages: &[Message],
    tools: &[Tool],
    options: &RenderOptions,
    tokenizer: &Tokenizer,
) -> Result<Prompt> {
    render(&prepare(messages)?, &prepare_tools(tools)?, options, tokenizer)
}

/// The conversation as token ids, exactly as the template gives it. Control tokens are inserted by id; text
/// between them is encoded with control tokens not recognised.
pub fn render(
    messages: &[Message],
    tools: &[Tool],
    options: &RenderOptions,
    tokenizer: &Tokenizer,
) -> Result<Prompt> {
    let (script, starts_in_reasoning) = write(messages, tools, options)?;
    Ok(Prompt { ids: script.to_ids(tokenizer)?, starts_in_reasoning })
}

/// The conversation as text with control tokens spelled out: for eyes and tests. Tokenizing it is not the
/// same as [`render`].
pub fn render_text(messages: &[Message], tools: &[Tool], options: &RenderOptions) -> Result<String> {
    Ok(write(messages, tools, options)?.0.to_text())
}

/// What a message with calls left behind; decides how the prompt ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// No call.
    Text,
    /// A call without a result.
    Call,
    /// A call and a result.
    Result,
}

fn write(messages: &[Message], tools: &[Tool], options: &RenderOptions) -> Result<(Script, bool)> {
    let mut out = Script::default();
    out.marker(Marker::Bos);
    let rest = first_turn(&mut out, messages, tools, options.enable_thinking);
    let offset = messages.len() - rest.len();
    let last_user = rest.iter().rposition(|m| m.role == Role::User);
    let mut last = Last::Text;
    let mut previous = None;
    for (i, message) in rest.iter().enumerate() {
        if message.role == Role::Tool {
            continue;
        }
        let replay = last_user.is_none_or(|user| i > user)
            || (options.preserve_thinking && (!message.tool_calls.is_empty() || message.before_calls));
        let next = rest[i + 1..].iter().find(|m| m.role != Role::Tool).map(|m| m.role);
        let open = options.continue_final
            && i + 1 == rest.len()
            && message.role == Role::Assistant
            && message.tool_calls.is_empty();
        last = turn(&mut out, rest, i, offset, Around { previous, next, replay, open })?;
        if open {
            return Ok((out, false));
        }
        previous = Some(message.role);
    }
    let mut starts_in_reasoning = false;
    if options.add_generation_prompt {
        starts_in_reasoning = generation_prompt(&mut out, last, options.enable_thinking);
    }
    Ok((out, starts_in_reasoning))
}

/// Step 2: the system turn, if there is anything to say in it. Returns the messages that are left.
fn first_turn<'a>(
    out: &mut Script,
    messages: &'a [Message],
    tools: &[Tool],
    thinking: bool,
) -> &'a [Message] {
    let (system, rest) = match messages.split_first() {
        Some((first, rest)) if matches!(first.role, Role::System | Role::Developer) => (Some(first), rest),
        _ => (None, messages),
    };
    if !thinking && tools.is_empty() && system.is_none() {
        return rest;
    }
    out.marker(Marker::TurnOpen);
    out.text("system\n");
    if thinking {
        out.marker(Marker::Think);
        out.text("\n");
    }
    match system.map(|m| &m.content) {
        Some(Content::Text(text)) => out.text(python::strip(text)),
        Some(Content::Parts(parts)) => {
            for part in parts {
                if let Part::Text(text) = part {
                    out.text(python::strip(text));
                    out.text(" ");
                }
            }
        }
        Some(Content::None) | None => {}
    }
    for tool in tools {
        declare::declaration(out, tool);
    }
    close(out);
    rest
}

fn close(out: &mut Script) {
    out.marker(Marker::TurnClose);
    out.text("\n");
}

/// What stands around a message and what that asks for.
struct Around {
    /// Role of the message before it, tool results left out.
    previous: Option<Role>,
    /// Role of the message after it, likewise.
    next: Option<Role>,
    /// Whether its reasoning is shown.
    replay: bool,
    /// Whether the model goes on with it.
    open: bool,
}

/// Step 3: one message and the results of its calls.
fn turn(out: &mut Script, messages: &[Message], i: usize, offset: usize, around: Around) -> Result<Last> {
    let message = &messages[i];
    let assistant = message.role == Role::Assistant;
    if !(assistant && around.previous == Some(Role::Assistant)) {
        out.marker(Marker::TurnOpen);
        out.text(if assistant { "model" } else { message.role.name() });
        out.text("\n");
    }
    if around.replay
        && let Some(reasoning) = message.reasoning.as_deref().filter(|r| !r.is_empty())
    {
        open_thought(out);
        out.text(reasoning);
        out.text("\n");
        out.marker(Marker::ChannelClose);
    }
    let mut last = Last::Text;
    for (k, call) in message.tool_calls.iter().enumerate() {
        let Arguments::Object(Json::Object(arguments)) = &call.arguments else {
            let field = format!("messages[{}].tool_calls[{k}].function.arguments", offset + i);
            return Err(Error::bad(field, "must be a JSON object here; parse the text first"));
        };
        out.marker(Marker::CallOpen);
        out.text("call:");
        out.text(&call.name);
        out.text("{");
        declare::mapping(out, arguments, Keys::Bare);
        out.text("}");
        out.marker(Marker::CallClose);
        last = Last::Call;
    }
    if last == Last::Call {
        // Of calls with the same id the first counts.
        let names: HashMap<&str, &str> =
            message.tool_calls.iter().rev().map(|call| (call.id.as_str(), call.name.as_str())).collect();
        for result in messages[i + 1..].iter().take_while(|m| m.role == Role::Tool) {
            tool_result(out, &names, result);
            last = Last::Result;
        }
    }
    if around.open {
        let text = match &message.content {
            Content::None => String::new(),
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => {
                let text =
                    |part: &Part| if let Part::Text(text) = part { text.clone() } else { String::new() };
                parts.iter().map(text).collect()
            }
        };
        let text = without_thoughts(&text);
        // The end counts: the model goes on right behind it.
        let stripped = python::strip(&text);
        if let Some(at) = text.find(stripped).filter(|_| !stripped.is_empty()) {
            out.text(&text[at..]);
        }
        return Ok(Last::Text);
    }
    let mut said = Script::default();
    content(&mut said, &message.content, assistant);
    let blank = said.is_blank();
    out.append(said);
    if last == Last::Call {
        out.marker(Marker::ResponseOpen);
    } else if (assistant && around.next == Some(Role::Assistant))
        || (last == Last::Result && blank && around.next.is_none())
    {
        // The model's turn goes on.
    } else {
        close(out);
    }
    Ok(last)
}

fn open_thought(out: &mut Script) {
    out.marker(Marker::ChannelOpen);
    out.text("thought\n");
}

/// `names` are the called tools by the ids of the calls.
fn tool_result(out: &mut Script, names: &HashMap<&str, &str>, result: &Message) {
    let called = result.tool_call_id.as_deref().and_then(|id| names.get(id).copied());
    let name = called.or(result.name.as_deref()).unwrap_or("unknown");
    let (text, media): (String, &[Part]) = match &result.content {
        Content::None => (String::new(), &[]),
        Content::Text(text) => (text.clone(), &[]),
        Content::Parts(parts) => {
            let text =
                parts.iter().filter_map(|p| if let Part::Text(t) = p { Some(t.as_str()) } else { None });
            (text.collect(), parts)
        }
    };
    out.marker(Marker::ResponseOpen);
    out.text("response:");
    out.text(name);
    out.text("{value:");
    out.quoted(&text);
    out.text("}");
    out.marker(Marker::ResponseClose);
    for part in media {
        placeholder(out, part);
    }
}

fn placeholder(out: &mut Script, part: &Part) {
    match part {
        Part::Text(_) => {}
        Part::Image => out.marker(Marker::Image),
        Part::Audio => out.marker(Marker::Audio),
        Part::Video => out.marker(Marker::Video),
    }
}

fn content(out: &mut Script, content: &Content, assistant: bool) {
    let text = |out: &mut Script, text: &str| {
        if assistant {
            out.text(python::strip(&without_thoughts(text)));
        } else {
            out.text(python::strip(text));
        }
    };
    match content {
        Content::None => {}
        Content::Text(t) => text(out, t),
        Content::Parts(parts) => {
            for part in parts {
                match part {
                    Part::Text(t) => text(out, t),
                    media => placeholder(out, media),
                }
            }
        }
    }
}

/// Assistant text without its `<|channel>…<channel|>` stretches: a client that keeps no reasoning field may
/// send them back inside the text. An unclosed one takes the rest; a closer of none is dropped.
fn without_thoughts(text: &str) -> String {
    text.split(Marker::ChannelClose.text())
        .map(|part| part.split_once(Marker::ChannelOpen.text()).map_or(part, |(before, _)| before))
        .collect()
}

/// Step 4. Returns whether the prompt ends inside a thought.
fn generation_prompt(out: &mut Script, last: Last, thinking: bool) -> bool {
    match last {
        Last::Result if thinking => {
            open_thought(out);
            return true;
        }
        Last::Result | Last::Call => {}
        Last::Text => {
            out.marker(Marker::TurnOpen);
            out.text("model\n");
            if !thinking {
                open_thought(out);
                out.marker(Marker::ChannelClose);
            }
        }
    }
    false
}
