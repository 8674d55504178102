//! Probabilities of tokens, in the shapes of chat and of plain completions.

use fieldfare::engine::{Candidate, Generation, Scores, TokenScore};
use fieldfare::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

/// What stands for minus infinity, which JSON cannot hold.
const LEAST: f32 = -9999.0;

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LEAST }
}

/// The bytes that a token stands for; those of a control token are its name.
fn bytes(id: u32, tokenizer: &Tokenizer) -> Vec<u8> {
    let piece = tokenizer.piece(id).unwrap_or_default();
    if tokenizer.is_control(id) {
        return piece.as_bytes().to_vec();
    }
    let byte = piece.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match byte.filter(|digits| digits.len() == 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => vec![byte],
        None => piece.replace('\u{2581}', " ").into_bytes(),
    }
}

/// The same as text; part of a character is U+FFFD.
fn name(id: u32, tokenizer: &Tokenizer) -> String {
    String::from_utf8_lossy(&bytes(id, tokenizer)).into_owned()
}

fn token(id: u32, logprob: f32, tokenizer: &Tokenizer) -> Map<String, Value> {
    let bytes = bytes(id, tokenizer);
    let mut object = Map::new();
    object.insert("token".to_owned(), String::from_utf8_lossy(&bytes).into());
    object.insert("logprob".to_owned(), finite(logprob).into());
    object.insert("bytes".to_owned(), bytes.into());
    object
}

/// `logprobs` of a chat choice.
pub(crate) fn chat(scores: &[TokenScore], tokenizer: &Tokenizer) -> Value {
    let content = scores.iter().map(|score| {
        let mut object = token(score.id, score.logprob, tokenizer);
        let others = score.top.iter().map(|other| Value::Object(token(other.id, other.logprob, tokenizer)));
        object.insert("top_logprobs".to_owned(), others.collect());
        Value::Object(object)
    });
    json!({ "content": content.collect::<Value>(), "refusal": null })
}

/// The four lists of a plain completion.
#[derive(Default)]
struct Lists {
    tokens: Vec<Value>,
    logprobs: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<Value>,
}

impl Lists {
    fn push(
        &mut self,
        id: u32,
        logprob: Option<f32>,
        top: &[Candidate],
        offset: usize,
        tokenizer: &Tokenizer,
    ) {
        self.tokens.push(name(id, tokenizer).into());
        self.logprobs.push(logprob.map(finite).into());
        self.top.push(match logprob {
            None => Value::Null,
            Some(_) => Value::Object(
                top.iter().map(|one| (name(one.id, tokenizer), finite(one.logprob).into())).collect(),
            ),
        });
        self.offsets.push(offset.into());
    }

    fn prompt(&mut self, prompt: &Scores, echo: &str, tokenizer: &Tokenizer) {
        let end = echo.chars().count();
        let mut at = 0;
        for (i, &id) in prompt.tokens.iter().enumerate() {
            let logprob = i.checked_sub(1).and_then(|before| prompt.logprobs.get(before).copied());
            let top = i.checked_sub(1).and_then(|before| prompt.top.get(before));
            self.push(id, logprob, top.map_or(&[], Vec::as_slice), at, tokenizer);
            if !tokenizer.is_control(id) {
                // Parts of one character come to the same place at the end, since lengths are whole characters.
                at = (at + name(id, tokenizer).chars().count()).min(end);
            }
        }
    }

    fn answer(&mut self, scores: &[TokenScore], text: &str, from: usize, tokenizer: &Tokenizer) {
        let first = scores.first().map_or(0, |score| score.start);
        for score in scores {
            let before = text.get(..score.start - first.min(score.start)).unwrap_or(text);
            let offset = from + before.chars().count();
            self.push(score.id, Some(score.logprob), &score.top, offset, tokenizer);
        }
    }

    fn value(self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.logprobs,
            "top_logprobs": self.top,
            "text_offset": self.offsets,
        })
    }
}

/// `logprobs` of a plain completion; the prompt's tokens first where it is given back. Its first token has none.
pub(crate) fn text(
    generation: &Generation,
    prompt: Option<&Scores>,
    echo: &str,
    tokenizer: &Tokenizer,
) -> Value {
    let mut lists = Lists::default();
    if let Some(prompt) = prompt {
        lists.prompt(prompt, echo, tokenizer);
    }
    lists.answer(&generation.scores, &generation.text, echo.chars().count(), tokenizer);
    lists.value()
}

/// `logprobs` of a prompt that is given back in a stream.
pub(crate) fn prompt(prompt: &Scores, echo: &str, tokenizer: &Tokenizer) -> Value {
    let mut lists = Lists::default();
    lists.prompt(prompt, echo, tokenizer);
    lists.value()
}

/// `logprobs` of a piece of a streamed plain completion, before which so many characters were shown.
pub(crate) fn pieces(scores: &[TokenScore], text: &str, shown: usize, tokenizer: &Tokenizer) -> Value {
    let mut lists = Lists::default();
    lists.answer(scores, text, shown, tokenizer);
    lists.value()
}
