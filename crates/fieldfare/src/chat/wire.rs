//! Reads messages and tools in the OpenAI shape, tolerantly: what clients leave out, rename or send as null
//! is taken.
//!
//! Both forms of a tool are read (`{"type":"function","function":{…}}` and the flat one). What is not
//! understood is refused with the path of the field; nothing is guessed.

use super::{Arguments, Content, Json, Message, Part, Role, Tool, ToolCall};
use crate::{Error, Result};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::{Map, Value};

/// Messages from a JSON array. Errors name the field as `messages[2].content`.
pub fn parse_messages(value: &Value) -> Result<Vec<Message>> {
    let Value::Array(items) = value else {
        return Err(Error::bad("messages", "must be a list of messages"));
    };
    items.iter().enumerate().map(|(i, item)| message(item, &format!("messages[{i}]"))).collect()
}

/// Tools from a JSON array; `null` is none. Errors name the field as `tools[0].function.name`.
pub fn parse_tools(value: &Value) -> Result<Vec<Tool>> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => {
            items.iter().enumerate().map(|(i, item)| tool(item, &format!("tools[{i}]"))).collect()
        }
        _ => Err(Error::bad("tools", "must be a list of tools")),
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        message(&value, "message").map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        tool(&value, "tool").map_err(D::Error::custom)
    }
}

fn object<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>> {
    value.as_object().ok_or_else(|| Error::bad(path, "must be an object"))
}

/// A text field; absent and null are `None`.
fn text(map: &Map<String, Value>, key: &str, path: &str) -> Result<Option<String>> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) => Ok(Some(s.clone())),
        Some(_) => Err(Error::bad(format!("{path}.{key}"), "must be text")),
    }
}

fn message(value: &Value, path: &str) -> Result<Message> {
    let map = object(value, path)?;
    let role_path = format!("{path}.role");
    let role = match text(map, "role", path)?.as_deref() {
        Some("system") => Role::System,
        Some("developer") => Role::Developer,
        Some("user") => Role::User,
        Some("assistant" | "model") => Role::Assistant,
        Some("tool") => Role::Tool,
        Some(other) => {
            return Err(Error::bad(
                role_path,
                format!("`{other}` is none of system, developer, user, assistant, tool"),
            ));
        }
        None => return Err(Error::bad(role_path, "is missing")),
    };
    let reasoning = [text(map, "reasoning", path)?, text(map, "reasoning_content", path)?];
    let tool_calls = match map.get("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) => calls
            .iter()
            .enumerate()
            .map(|(i, call)| tool_call(call, &format!("{path}.tool_calls[{i}]")))
            .collect::<Result<_>>()?,
        Some(_) => return Err(Error::bad(format!("{path}.tool_calls"), "must be a list")),
    };
    if role != Role::Assistant && !tool_calls.is_empty() {
        return Err(Error::bad(format!("{path}.tool_calls"), "only an assistant message may have calls"));
    }
    Ok(Message {
        role,
        content: content(map.get("content"), &format!("{path}.content"))?,
        reasoning: reasoning.into_iter().flatten().find(|r| !r.is_empty()),
        tool_calls,
        tool_call_id: text(map, "tool_call_id", path)?,
        name: text(map, "name", path)?,
        before_calls: false,
    })
}

fn content(value: Option<&Value>, path: &str) -> Result<Content> {
    match value {
        None | Some(Value::Null) => Ok(Content::None),
        Some(Value::String(s)) => Ok(Content::Text(s.clone())),
        Some(Value::Array(parts)) => parts
            .iter()
            .enumerate()
            .map(|(i, p)| part(p, &format!("{path}[{i}]")))
            .collect::<Result<_>>()
            .map(Content::Parts),
        Some(_) => Err(Error::bad(path, "must be text or a list of parts")),
    }
}

fn part(value: &Value, path: &str) -> Result<Part> {
    if let Value::String(s) = value {
        return Ok(Part::Text(s.clone()));
    }
    let map = object(value, path)?;
    match text(map, "type", path)?.as_deref() {
        Some("text" | "input_text" | "output_text") | None => text(map, "text", path)?
            .map(Part::Text)
            .ok_or_else(|| Error::bad(format!("{path}.text"), "is missing")),
        Some("refusal") => text(map, "refusal", path)?
            .map(Part::Text)
            .ok_or_else(|| Error::bad(format!("{path}.refusal"), "is missing")),
        Some("image" | "image_url" | "input_image") => Ok(Part::Image),
        Some("audio" | "input_audio") => Ok(Part::Audio),
        Some("video" | "video_url" | "input_video") => Ok(Part::Video),
        Some(other) => Err(Error::bad(format!("{path}.type"), format!("`{other}` is not supported"))),
    }
}

fn tool_call(value: &Value, path: &str) -> Result<ToolCall> {
    let map = object(value, path)?;
    if let Some(kind) = text(map, "type", path)?
        && kind != "function"
    {
        return Err(Error::bad(format!("{path}.type"), format!("`{kind}` is not supported, only function")));
    }
    let path = format!("{path}.function");
    let function = map.get("function").ok_or_else(|| Error::bad(&path, "is missing"))?;
    let function = object(function, &path)?;
    let arguments = match function.get("arguments") {
        None | Some(Value::Null) => Arguments::empty(),
        Some(Value::String(text)) => Arguments::Text(text.clone()),
        Some(value @ Value::Object(_)) => Arguments::Object(Json::from(value)),
        Some(_) => return Err(Error::bad(format!("{path}.arguments"), "must be a JSON object or its text")),
    };
    Ok(ToolCall {
        id: text(map, "id", &path)?.unwrap_or_default(),
        name: text(function, "name", &path)?
            .ok_or_else(|| Error::bad(format!("{path}.name"), "is missing"))?,
        arguments,
    })
}

fn tool(value: &Value, path: &str) -> Result<Tool> {
    let map = object(value, path)?;
    if let Some(kind) = text(map, "type", path)?
        && kind != "function"
    {
        return Err(Error::bad(format!("{path}.type"), format!("`{kind}` is not supported, only function")));
    }
    let (function, path) = match map.get("function") {
        Some(function) => {
            let path = format!("{path}.function");
            (object(function, &path)?, path)
        }
        None => (map, path.to_owned()),
    };
    let schema = |keys: &[&str]| -> Result<Option<Value>> {
        for key in keys {
            match function.get(*key) {
                None | Some(Value::Null) => {}
                Some(value @ Value::Object(_)) => return Ok(Some(value.clone())),
                Some(_) => return Err(Error::bad(format!("{path}.{key}"), "must be a JSON schema object")),
            }
        }
        Ok(None)
    };
    Ok(Tool {
        name: text(function, "name", &path)?
            .ok_or_else(|| Error::bad(format!("{path}.name"), "is missing"))?,
        description: text(function, "description", &path)?,
        parameters: schema(&["parameters", "input_schema"])?,
        response: schema(&["response"])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_clients_send_is_read() {
        let messages = parse_messages(&json!([
            {"role": "developer", "content": [{"type": "input_text", "text": "a", "cache_control": {}}, "b"]},
            {"role": "assistant", "tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}], "reasoning_content": "r"},
            {"role": "tool", "content": null, "tool_call_id": "x", "name": null},
        ]))
        .unwrap();
        assert_eq!(messages[0].content, Content::Parts(vec![Part::Text("a".into()), Part::Text("b".into())]));
        assert_eq!(messages[1].content, Content::None);
        assert_eq!(messages[1].reasoning.as_deref(), Some("r"));
        assert_eq!(messages[1].tool_calls[0].arguments, Arguments::Text(String::new()));
        assert_eq!(messages[2].tool_call_id.as_deref(), Some("x"));
    }

    #[test]
    fn errors_name_the_field() {
        let refuse = |value: Value| parse_messages(&value).unwrap_err().to_string();
        assert!(refuse(json!([{"role": "robot", "content": "x"}])).starts_with("messages[0].role:"));
        assert!(refuse(json!([{"role": "user", "content": 5}])).starts_with("messages[0].content:"));
        assert!(
            refuse(json!([{"role": "user", "content": [{"type": "file"}]}]))
                .starts_with("messages[0].content[0].type:")
        );
        assert!(refuse(json!({"role": "user"})).starts_with("messages:"));
        let calls =
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}]);
        assert!(refuse(calls).starts_with("messages[0].tool_calls[0].function.arguments:"));
        assert!(
            parse_tools(&json!([{"type": "web_search"}]))
                .unwrap_err()
                .to_string()
                .starts_with("tools[0].type:")
        );
    }

    #[test]
    fn recorded_client_requests_are_read() {
        let path = fieldfare_testing::fixtures().join("chat/client-requests.json");
        let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let mut seen = 0;
        for request in file["requests"].as_array().unwrap() {
            if request["path"] != "/v1/chat/completions" {
                continue;
            }
            let Some(body) = request["body"].as_object() else { continue };
            if let Some(messages) = body.get("messages") {
                parse_messages(messages).unwrap_or_else(|e| panic!("{}: {e}", request["about"]));
                seen += 1;
            }
            if let Some(tools) = body.get("tools") {
                let tools = parse_tools(tools).unwrap_or_else(|e| panic!("{}: {e}", request["about"]));
                crate::chat::prepare_tools(&tools).unwrap_or_else(|e| panic!("{}: {e}", request["about"]));
            }
        }
        assert!(seen > 10, "{seen}");
    }
}
