//! Answers bound to a grammar: JSON by schema, and tool calls that are always well-formed.
//!
//! [`Grammars`] knows a tokenizer and turns [`Rules`] (what a request asks for) into a [`Bound`], of which each answer
//! gets a guide: a small machine that follows the answer by its control tokens (thought, content, call) and asks a
//! grammar where one holds. Grammars are lazy: an answer that may call tools is bound between the tokens that open and
//! close a call and nowhere else. The engine's side is [`crate::sample::Plan`]; it knows nothing of grammars. Masks come
//! from the crate `llguidance`; `schema` decides what is understood, `lark` writes it down.

mod apart;
mod cost;
mod guide;
mod lark;
mod reader;
mod schema;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use schema::{MAX_BYTES, Schema};

use crate::chat::Tool;
use crate::sample::{Guide, Plan};
use crate::tokenizer::{ControlTokens, Tokenizer};
use crate::{Error, Result};
use lark::Writer;
use llguidance::Matcher;
use std::any::Any;
use std::sync::Arc;
use vocabulary::Vocabulary;

/// Memory that grammars may take from their first use on, all at once, by [`Rules::bytes`]; one that would take more is
/// refused...
pub const BYTES: u64 = 40 << 20;
/// ... and, for each token id, the vocabulary's tree.
pub const BYTES_PER_ID: u64 = 152;

/// What the answer itself may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Content {
    /// Any text.
    #[default]
    Free,
    /// One JSON value that fits.
    Json(Schema),
}

/// Whether tools are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// As the model likes.
    #[default]
    Auto,
    /// At least one call, of any tool.
    Required,
    /// A call of this one.
    Named(String),
}

/// A tool, as far as grammars care.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRule {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: ArgumentRule,
}

/// What the arguments of a call may be.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentRule {
    /// Any keys and values.
    Open,
    /// Some of these keys, in any order, with any values.
    Keys(Vec<String>),
    /// What fits this schema.
    Fits(Schema),
}

impl CallRule {
    /// Well-formed calls of a prepared tool ([`crate::chat::prepare_tools`]).
    pub fn lenient(tool: &Tool) -> Self {
        let properties = tool.parameters.as_ref().and_then(|schema| schema.get("properties")?.as_object());
        let open = tool.parameters.as_ref().and_then(|schema| schema.get("additionalProperties"));
        let arguments = match properties {
            // No parameters at all, none known, or others are welcome.
            _ if open.is_some_and(|others| *others != false) => ArgumentRule::Open,
            Some(properties) if !properties.is_empty() => {
                ArgumentRule::Keys(properties.keys().cloned().collect())
            }
            _ => ArgumentRule::Open,
        };
        Self { name: tool.name.clone(), arguments }
    }

    /// Calls whose arguments fit the tool's own schema, as it was declared.
    ///
    /// # Errors
    /// [`Error::BadRequest`]: the schema is beyond what can be enforced in calls.
    pub fn strict(name: &str, schema: &serde_json::Value) -> Result<Self> {
        let schema = Schema::parse(schema, "parameters", false)?;
        if !schema.is_callable() {
            return Err(Error::bad("parameters", "cannot be enforced in calls"));
        }
        Ok(Self { name: name.to_owned(), arguments: ArgumentRule::Fits(schema) })
    }
}

/// What an answer is bound to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// The answer itself.
    pub content: Content,
    /// The tools there are.
    pub calls: Vec<CallRule>,
    /// Whether they are called.
    pub choice: Choice,
    /// At most one call.
    pub single_call: bool,
    /// The answer may begin with a thought.
    pub may_think: bool,
    /// The prompt ends inside an open thought.
    pub starts_in_thought: bool,
    /// Most tokens of a thought; then it is closed.
    pub thought_tokens: Option<usize>,
}

impl Rules {
    /// The tools that may be called.
    fn callable(&self) -> impl Iterator<Item = &CallRule> {
        self.calls.iter().filter(|call| match &self.choice {
            Choice::Named(name) => call.name == *name,
            Choice::Auto | Choice::Required => true,
        })
    }
}

/// Grammars over one vocabulary. Cheap until the first is compiled; clones share what was made.
#[derive(Clone, Debug)]
pub struct Grammars(Arc<Vocabulary>);

impl Grammars {
    /// For this tokenizer.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self(Arc::new(Vocabulary::new(tokenizer)))
    }

    /// Makes now what the first grammar would have to wait for.
    ///
    /// # Errors
    /// The vocabulary is not one that grammars can be made over.
    pub fn prepare(&self) -> Result<()> {
        self.0.prepare()
    }

    /// Compiles rules. `None` where they bind nothing.
    ///
    /// # Errors
    /// [`Error::BadRequest`]: the grammar is too complex; a named tool is not among the calls.
    pub fn bind(&self, rules: &Rules) -> Result<Option<Bound>> {
        let forced = rules.choice != Choice::Auto;
        if rules.content == Content::Free
            && rules.calls.is_empty()
            && !forced
            && rules.thought_tokens.is_none()
        {
            return Ok(None);
        }
        if forced && rules.calls.is_empty() {
            return Err(Error::bad("tool_choice", "needs tools"));
        }
        let control = self.0.tokenizer().control().clone();
        let content = match &rules.content {
            _ if forced => None,
            Content::Free => None,
            Content::Json(schema) => Some(self.compile(&json(schema), "schema")?),
        };
        let calls: Vec<&CallRule> = rules.callable().collect();
        if forced && calls.is_empty() {
            return Err(Error::bad("tool_choice", "names no tool of this request"));
        }
        let (call, told) = match calls.as_slice() {
            [] => (None, Vec::new()),
            calls => {
                let (lark, told) = call(calls, control.quote);
                (Some(self.compile(&lark, "tools")?), told)
            }
        };
        let mut label = Vec::new();
        self.0.tokenizer().encode("thought\n", &mut label);
        Ok(Some(Bound {
            control,
            label,
            content,
            call,
            told,
            forced,
            single_call: rules.single_call,
            may_think: rules.may_think,
            starts_in_thought: rules.starts_in_thought,
            thought_tokens: rules.thought_tokens,
            held: Held::default(),
        }))
    }

    fn compile(&self, lark: &str, field: &str) -> Result<Start> {
        self.0.prepare()?;
        match self.0.matcher(lark) {
            Ok(matcher) => Ok(Start(matcher)),
            Err(_) => Err(Error::bad(field, "is too complex for a grammar")),
        }
    }
}

/// A matcher at its beginning; answers take copies.
#[derive(Clone)]
struct Start(Matcher);

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Start")
    }
}

/// Compiled rules.
#[derive(Clone, Debug)]
pub struct Bound {
    control: ControlTokens,
    /// The tokens of the name that a thought bears.
    label: Vec<u32>,
    content: Option<Start>,
    call: Option<Start>,
    /// Tools in whose calls no key can stand twice.
    told: Vec<String>,
    forced: bool,
    single_call: bool,
    may_think: bool,
    starts_in_thought: bool,
    thought_tokens: Option<usize>,
    held: Held,
}

/// Something that is kept for as long as the rules or an answer over them are.
#[derive(Clone, Default)]
struct Held(Option<Arc<dyn Any + Send + Sync>>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Held" } else { "Nothing" })
    }
}

impl Bound {
    /// Keeps something until these rules and all answers over them are gone: what counts their memory, say.
    #[must_use]
    pub fn holding(mut self, what: Arc<dyn Any + Send + Sync>) -> Self {
        self.held = Held(Some(what));
        self
    }

    /// The tools in whose arguments no key can stand twice, so that what is written of them is final
    /// ([`crate::chat::OutputParser::telling`]).
    pub fn told_calls(&self) -> &[String] {
        &self.told
    }
}

impl Plan for Bound {
    fn guide(&self, stop: &[u32]) -> Result<Box<dyn Guide>> {
        Ok(Box::new(guide::Follower::new(self.clone(), stop)))
    }
}

/// The grammar of one JSON value.
fn json(schema: &Schema) -> String {
    let mut writer = Writer::json();
    let root = writer.schema(schema);
    writer.rule("start", &root);
    writer.finish()
}

/// The grammar of what stands between the tokens that open and close a call, and the names of the tools in whose arguments
/// no key can stand twice.
fn call(calls: &[&CallRule], quote: u32) -> (String, Vec<String>) {
    let mut writer = Writer::call(quote);
    let mut names = Vec::with_capacity(calls.len());
    let mut told = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let (entries, once) = match &call.arguments {
            ArgumentRule::Open => (writer.any_entries(), false),
            ArgumentRule::Keys(keys) => {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                writer.some_entries(&keys)
            }
            ArgumentRule::Fits(schema) => {
                writer.schema_entries(schema).unwrap_or_else(|| (writer.any_entries(), false))
            }
        };
        if once {
            told.push(call.name.clone());
        }
        let opener = serde_json::Value::String(format!("call:{}{{", call.name)).to_string();
        writer.rule(&format!("call{at}"), &format!("{opener} {entries}"));
        names.push(format!("call{at}"));
    }
    writer.rule("start", &names.join(" | "));
    (writer.finish(), told)
}
