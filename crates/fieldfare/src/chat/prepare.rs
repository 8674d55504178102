//! What happens to a conversation before the template sees it: the things that make real clients work.
//!
//! Nothing here is the template's. Argument text is parsed, text parts are joined, `developer` becomes
//! `system`, leading system messages become one, and a message with both text and calls is split in the order
//! in which the model wrote them, so that the prompt extends what the KV cache already holds. What the
//! template would drop in silence is refused.

use super::{Content, Message, Part, Role, Tool, schema};
use crate::{Error, Result};
use std::collections::{HashMap, HashSet};

/// Brings a conversation into the form that [`super::render`] expects. Errors name the field
/// (`messages[3].tool_call_id`).
pub fn prepare(messages: &[Message]) -> Result<Vec<Message>> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    let mut open = Open::default();
    let mut results_allowed = false;
    for (i, message) in messages.iter().enumerate() {
        let mut message = message.clone();
        message.content = joined(message.content);
        check_content(&message, i)?;
        if message.role == Role::Developer {
            message.role = Role::System;
        }
        if message.role == Role::Tool {
            check_result(&message, i, &mut open, results_allowed)?;
            out.push(message);
            continue;
        }
        out.extend(open.drain().map(|id| Message::tool(id, "")));
        results_allowed = !message.tool_calls.is_empty();
        if message.role == Role::System && !out.is_empty() && out.iter().all(|m| m.role == Role::System) {
            join_system(&mut out[0], message.content);
            continue;
        }
        parse_calls(&mut message, i)?;
        message.tool_calls.iter().for_each(|call| open.add(&call.id));
        push_split(&mut out, message);
    }
    Ok(out)
}

/// The calls that wait for their result, in their order. A client decides how many there are, so an answered one is
/// found by its id and nothing is moved.
#[derive(Default)]
struct Open {
    ids: Vec<Option<String>>,
    places: HashMap<String, usize>,
}

impl Open {
    fn add(&mut self, id: &str) {
        self.places.insert(id.to_owned(), self.ids.len());
        self.ids.push(Some(id.to_owned()));
    }

    /// Takes one out; false if it does not wait.
    fn answer(&mut self, id: &str) -> bool {
        self.places.remove(id).and_then(|place| self.ids[place].take()).is_some()
    }

    /// Takes out all that are left.
    fn drain(&mut self) -> impl Iterator<Item = String> {
        self.places.clear();
        self.ids.drain(..).flatten()
    }
}

/// Brings tool declarations into the subset of JSON schema that the format can express. Errors name tool and
/// place.
pub fn prepare_tools(tools: &[Tool]) -> Result<Vec<Tool>> {
    let mut names = HashSet::new();
    let mut copies = schema::Copies::default();
    tools
        .iter()
        .enumerate()
        .map(|(i, tool)| {
            let path = format!("tools[{i}].function");
            check_name(&tool.name, &format!("{path}.name"))?;
            if !names.insert(tool.name.as_str()) {
                return Err(Error::bad(format!("{path}.name"), format!("`{}` is declared twice", tool.name)));
            }
            let mut adapt = |schema: &Option<serde_json::Value>, key: &str| {
                schema
                    .as_ref()
                    .map(|s| schema::adapt(s, &format!("{path}.{key} (tool `{}`)", tool.name), &mut copies))
                    .transpose()
            };
            Ok(Tool {
                name: tool.name.clone(),
                description: tool.description.clone(),
                parameters: adapt(&tool.parameters, "parameters")?,
                response: tool.response.as_ref().map(schema::without_nulls),
            })
        })
        .collect()
}

/// 1 to 64 letters, digits, `_`, `-`, `.`, `:`: what the call parser can read back.
fn check_name(name: &str, field: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    if (1..=64).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(Error::bad(field, "must be 1 to 64 letters, digits, `_`, `-`, `.` or `:`"))
}

/// A list of text parts only as one text, joined as it stands.
fn joined(content: Content) -> Content {
    match content {
        Content::Parts(parts) if parts.iter().all(|p| matches!(p, Part::Text(_))) => Content::Text(
            parts.into_iter().map(|p| if let Part::Text(text) = p { text } else { String::new() }).collect(),
        ),
        other => other,
    }
}

/// A person's turn says something, and this runtime reads text only.
fn check_content(message: &Message, i: usize) -> Result<()> {
    match &message.content {
        Content::None if !matches!(message.role, Role::Assistant | Role::Tool) => {
            Err(Error::bad(format!("messages[{i}].content"), "is missing"))
        }
        Content::Parts(_) => Err(Error::bad(
            format!("messages[{i}].content"),
            "images, audio and video are not supported, only text",
        )),
        Content::None | Content::Text(_) => Ok(()),
    }
}

/// Leading system messages are one, a blank line between them.
fn join_system(first: &mut Message, more: Content) {
    if let (Content::Text(text), Content::Text(more)) = (&mut first.content, more)
        && !super::python::is_blank(&more)
    {
        if super::python::is_blank(text) {
            *text = more;
        } else {
            text.push_str("\n\n");
            text.push_str(&more);
        }
    }
}

/// The template silently drops a result that does not follow its call, so that is refused here.
fn check_result(message: &Message, i: usize, open: &mut Open, allowed: bool) -> Result<()> {
    let field = format!("messages[{i}].tool_call_id");
    if !allowed {
        return Err(Error::bad(
            field,
            "a tool result must directly follow the assistant message that made the call, or other results of it",
        ));
    }
    let id = message.tool_call_id.as_deref().unwrap_or_default();
    if open.answer(id) {
        return Ok(());
    }
    Err(Error::bad(field, format!("`{id}` names no call that still waits for its result")))
}

fn parse_calls(message: &mut Message, i: usize) -> Result<()> {
    let mut ids = HashSet::new();
    for (k, call) in message.tool_calls.iter_mut().enumerate() {
        let path = format!("messages[{i}].tool_calls[{k}]");
        check_name(&call.name, &format!("{path}.function.name"))?;
        call.arguments = call.arguments.parsed(&format!("{path}.function.arguments"))?;
        if !ids.insert(call.id.clone()) {
            return Err(Error::bad(format!("{path}.id"), "is empty or the same as another call's"));
        }
    }
    Ok(())
}

/// Text and calls in one message: the text first, as the model wrote it. Otherwise the template would put it
/// behind the result and close the turn, and no model turn would be open at the end.
fn push_split(out: &mut Vec<Message>, mut message: Message) {
    if message.tool_calls.is_empty() {
        out.push(message);
        return;
    }
    let calls = std::mem::take(&mut message.tool_calls);
    if !message.content.is_blank() {
        message.before_calls = true;
        out.push(message);
        message = Message::assistant(Content::None);
    }
    message.content = Content::None;
    message.tool_calls = calls;
    out.push(message);
}
