//! Conversations in files: the JSON array of `--messages-file` and `/save`.

use crate::Outcome;
use crate::failure::Failure;
use crate::input;
use fieldfare::chat::{self, Content, Message, Part};
use std::fmt::Display;
use std::path::Path;

/// Reads a conversation, or standard input for `-`.
///
/// # Errors
/// Unreadable, not such an array (with the field), or empty.
pub fn read(file: &Path) -> Outcome<Vec<Message>> {
    let (text, name) = input::json_file(file)?;
    let form = "it must be a JSON array such as [{\"role\": \"user\", \"content\": \"Hello\"}]";
    let bad = |error: &dyn Display| Failure::failed(format!("{name}: {error}")).with_hint(form);
    let value = serde_json::from_str(&text).map_err(|error| bad(&error))?;
    let messages = chat::parse_messages(&value).map_err(|error| bad(&error))?;
    if messages.is_empty() {
        return Err(bad(&"no messages"));
    }
    let media = |message: &Message| match &message.content {
        Content::Parts(parts) => parts.iter().any(|part| !matches!(part, Part::Text(_))),
        Content::None | Content::Text(_) => false,
    };
    if let Some(index) = messages.iter().position(media) {
        return Err(bad(&format!("messages[{index}].content: only text is supported, no images or sound")));
    }
    // What only a whole conversation shows, such as a result without its call: said here, where the file is known.
    chat::prepare(&messages).map_err(|error| bad(&error))?;
    Ok(messages)
}

/// What a message says in words.
pub fn plain_text(message: &Message) -> String {
    match &message.content {
        Content::None => String::new(),
        Content::Text(text) => text.clone(),
        Content::Parts(parts) => parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.as_str(),
                _ => "",
            })
            .collect(),
    }
}

/// A conversation as `--messages-file` reads it.
pub fn to_json(messages: &[Message]) -> String {
    let object = |message: &Message| {
        let mut object = serde_json::Map::new();
        object.insert("role".into(), message.role.name().into());
        object.insert("content".into(), plain_text(message).into());
        if let Some(reasoning) = &message.reasoning {
            object.insert("reasoning".into(), reasoning.as_str().into());
        }
        serde_json::Value::Object(object)
    };
    let array = serde_json::Value::Array(messages.iter().map(object).collect());
    format!("{array:#}\n")
}
