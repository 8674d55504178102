//! The conversation in a request, with the codes of the contract for what is wrong with it.

use super::error::ApiError;
use super::fields::get;
use fieldfare::Error;
use fieldfare::chat::{self, Message};
use serde_json::{Map, Value};

/// Most messages of a request.
pub const MAX_MESSAGES: usize = 4096;

/// Reads and prepares `messages`.
///
/// # Errors
/// The message, the field and its code.
pub fn messages(map: &Map<String, Value>) -> Result<Vec<Message>, ApiError> {
    let value = get(map, "messages").ok_or_else(|| ApiError::missing("messages"))?;
    let Value::Array(items) = value else {
        return Err(ApiError::wrong_type("messages", "a list of messages"));
    };
    if items.is_empty() {
        return Err(ApiError::bad("invalid_message", "messages", "must not be empty"));
    }
    if items.len() > MAX_MESSAGES {
        return Err(ApiError::value("messages", format!("may have at most {MAX_MESSAGES} entries")));
    }
    for (i, item) in items.iter().enumerate() {
        check(item, &format!("messages[{i}]"))?;
    }
    let messages = chat::parse_messages(value).map_err(refusal)?;
    chat::prepare(&messages).map_err(refusal)
}

/// The types, which the library's reader does not tell from values.
fn check(item: &Value, path: &str) -> Result<(), ApiError> {
    let Value::Object(message) = item else { return Err(ApiError::wrong_type(path, "an object")) };
    let role = match get(message, "role") {
        None => return Err(ApiError::bad("invalid_message", format!("{path}.role"), "is missing")),
        Some(Value::String(role)) => role.as_str(),
        Some(_) => return Err(ApiError::wrong_type(format!("{path}.role"), "text")),
    };
    if !matches!(role, "system" | "developer" | "user" | "assistant" | "tool") {
        return Err(ApiError::bad(
            "invalid_message",
            format!("{path}.role"),
            "must be system, developer, user, assistant or tool",
        ));
    }
    for key in ["name", "tool_call_id", "reasoning", "reasoning_content", "refusal"] {
        if get(message, key).is_some_and(|value| !value.is_string()) {
            return Err(ApiError::wrong_type(format!("{path}.{key}"), "text"));
        }
    }
    if get(message, "function_call").is_some() {
        return Err(ApiError::unsupported(format!("{path}.function_call"), "give calls in tool_calls"));
    }
    content(get(message, "content"), &format!("{path}.content"))?;
    if role == "tool" && get(message, "tool_call_id").is_none() {
        return Err(ApiError::bad("invalid_tool_result", format!("{path}.tool_call_id"), "is missing"));
    }
    match get(message, "tool_calls") {
        None => Ok(()),
        Some(Value::Array(calls)) => {
            for (k, item) in calls.iter().enumerate() {
                call(item, &format!("{path}.tool_calls[{k}]"))?;
            }
            Ok(())
        }
        Some(_) => Err(ApiError::wrong_type(format!("{path}.tool_calls"), "a list")),
    }
}

fn content(value: Option<&Value>, path: &str) -> Result<(), ApiError> {
    let parts = match value {
        None | Some(Value::String(_)) => return Ok(()),
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(ApiError::wrong_type(path, "text or a list of parts")),
    };
    for (i, part) in parts.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let part = match part {
            Value::String(_) => continue,
            Value::Object(part) => part,
            _ => return Err(ApiError::wrong_type(path, "an object")),
        };
        let key = match get(part, "type") {
            None => "text",
            Some(Value::String(kind)) => match kind.as_str() {
                "text" | "input_text" | "output_text" => "text",
                "refusal" => "refusal",
                other => {
                    let other: String = other.chars().take(40).collect();
                    let reason = format!("parts of type `{other}` are not supported, only text");
                    return Err(ApiError::bad("unsupported_content", format!("{path}.type"), reason));
                }
            },
            Some(_) => return Err(ApiError::wrong_type(format!("{path}.type"), "text")),
        };
        match get(part, key) {
            Some(Value::String(_)) => {}
            Some(_) => return Err(ApiError::wrong_type(format!("{path}.{key}"), "text")),
            None => return Err(ApiError::bad("invalid_message", format!("{path}.{key}"), "is missing")),
        }
    }
    Ok(())
}

fn call(item: &Value, path: &str) -> Result<(), ApiError> {
    let broken = |param: String, reason: &str| ApiError::bad("invalid_tool_call", param, reason);
    let Value::Object(call) = item else { return Err(broken(path.to_owned(), "must be an object")) };
    match get(call, "id") {
        Some(Value::String(id)) if !id.is_empty() => {}
        _ => return Err(broken(format!("{path}.id"), "must be text and not empty")),
    }
    if get(call, "type").is_some_and(|kind| kind != "function") {
        return Err(broken(format!("{path}.type"), "must be function"));
    }
    let Some(Value::Object(function)) = get(call, "function") else {
        return Err(broken(format!("{path}.function"), "must be an object"));
    };
    if !get(function, "name").is_some_and(Value::is_string) {
        return Err(broken(format!("{path}.function.name"), "must be text"));
    }
    Ok(())
}

/// The library's refusal with the code of the contract, which follows from the field.
fn refusal(error: Error) -> ApiError {
    let Error::BadRequest { field, reason } = error else { return ApiError::internal() };
    let code = if field.ends_with(".tool_call_id") {
        "invalid_tool_result"
    } else if field.contains(".function.arguments") {
        "invalid_tool_arguments"
    } else if field.contains(".tool_calls") {
        "invalid_tool_call"
    } else if field.contains(".content[") {
        "unsupported_content"
    } else {
        "invalid_message"
    };
    ApiError::bad(code, field, reason)
}
