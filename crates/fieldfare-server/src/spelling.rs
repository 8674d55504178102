//! Text, ids and prompts, for people who want to see what the model is given.

use crate::handlers::{App, render_refusal};
use crate::wire::chat::ChatRequest;
use crate::wire::completions;
use crate::wire::error::ApiError;
use crate::wire::fields;
use fieldfare::chat;
use serde_json::{Map, Value, json};

/// The prompt that a chat request comes to, as text; its ids if `tokens` asks.
pub(crate) fn apply_template(app: &App, bytes: &[u8]) -> Result<Value, ApiError> {
    let (request, map) = chat_of(app, fields::object(bytes)?)?;
    let declared = &request.tools.declared;
    let refused = |error| render_refusal(app, error);
    let text = chat::render_text(&request.messages, declared, &request.render).map_err(refused)?;
    let mut reply = json!({ "prompt": text });
    if fields::boolean(&map, "tokens")?.unwrap_or(false) {
        let prompt =
            chat::render(&request.messages, declared, &request.render, &app.tokenizer).map_err(refused)?;
        reply["tokens"] = prompt.ids.into();
    }
    Ok(reply)
}

/// The ids that a conversation comes to, counted as vLLM counts them.
fn tokenize_chat(app: &App, map: Map<String, Value>) -> Result<Value, ApiError> {
    let (request, _) = chat_of(app, map)?;
    let prompt = chat::render(&request.messages, &request.tools.declared, &request.render, &app.tokenizer)
        .map_err(|error| render_refusal(app, error))?;
    let (count, context) = (prompt.ids.len(), app.served.context);
    Ok(json!({ "count": count, "max_model_len": context, "tokens": prompt.ids }))
}

/// A chat body, in which the model need not be named.
fn chat_of(app: &App, mut map: Map<String, Value>) -> Result<(ChatRequest, Map<String, Value>), ApiError> {
    if fields::get(&map, "model").is_none() {
        map.insert("model".to_owned(), "default".into());
    }
    Ok((ChatRequest::parse(&map, &app.served)?, map))
}

/// The ids of a text, or of a conversation.
pub(crate) fn tokenize(app: &App, bytes: &[u8]) -> Result<Value, ApiError> {
    let map = fields::object(bytes)?;
    let special = fields::boolean(&map, "parse_special")?.unwrap_or(true);
    let mut ids = Vec::new();
    if fields::get(&map, "messages").is_some() {
        return tokenize_chat(app, map);
    }
    let (text, counted) = match (fields::text(&map, "content")?, fields::text(&map, "prompt")?) {
        (Some(text), _) => (text, false),
        (None, Some(text)) => (text, true),
        (None, None) => return Err(ApiError::missing("content")),
    };
    if fields::boolean(&map, if counted { "add_special_tokens" } else { "add_special" })?.unwrap_or(counted) {
        ids.push(app.tokenizer.control().bos);
    }
    completions::encode(&app.tokenizer, text, special, &mut ids);
    if counted {
        return Ok(json!({ "count": ids.len(), "max_model_len": app.served.context, "tokens": ids }));
    }
    if fields::boolean(&map, "with_pieces")?.unwrap_or(false) {
        let piece = |&id: &u32| json!({ "id": id, "piece": app.tokenizer.piece(id).unwrap_or_default() });
        return Ok(json!({ "tokens": ids.iter().map(piece).collect::<Vec<_>>() }));
    }
    Ok(json!({ "tokens": ids }))
}

/// The text of ids.
pub(crate) fn detokenize(app: &App, bytes: &[u8]) -> Result<Value, ApiError> {
    let map = fields::object(bytes)?;
    let value = fields::get(&map, "tokens").ok_or_else(|| ApiError::missing("tokens"))?;
    let ids = match value {
        Value::Array(items) if items.is_empty() => Vec::new(),
        value => completions::ids(value, "tokens", app.tokenizer.vocab_size())?,
    };
    let text = app.tokenizer.decode(&ids, false);
    Ok(json!({ "content": text, "prompt": text }))
}
