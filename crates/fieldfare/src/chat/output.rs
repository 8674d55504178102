//! Reads what the model writes, id by id: content, reasoning, tool calls.
//!
//! Control tokens are recognised by id, never by their spelling. Content and reasoning are handed on as soon
//! as they are certain; what was handed on, joined, is exactly what [`ParsedOutput`] holds at the end. Two
//! things wait for that: white space that would be dropped if a call follows, and the last newline of a
//! thought. A call that cannot be read is an error that carries the call as written, never an empty answer.

use super::call::{self, Body, Recovery};
use super::marker::Marker;
use super::teller::Teller;
use super::{Arguments, Json, ToolCall, python};
use crate::tokenizer::{StreamDecoder, Tokenizer};

/// Largest body of a call in bytes, quote markers counted as spelled.
const MAX_CALL_BYTES: usize = 256 * 1024;

/// A piece of the output.
#[derive(Debug)]
pub enum OutputEvent<'a> {
    /// More of the answer.
    Content(&'a str),
    /// More of the thought.
    Reasoning(&'a str),
    /// A call of this tool begins, and its arguments come in pieces; [`OutputEvent::ToolCall`] is its end. Only where
    /// [`OutputParser::telling`] asked.
    CallOpened(&'a str),
    /// More of its arguments: joined, the text of the complete ones.
    CallArguments(&'a str),
    /// A complete call.
    ToolCall(&'a ParsedCall),
}

/// A call that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedCall {
    /// The call; its id is `call_N`, counted from 0 in this message.
    pub call: ToolCall,
    /// What had to be put right.
    pub recovered: Vec<Recovery>,
}

/// What was told of a call that was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutCall {
    /// The tool.
    pub name: String,
    /// The beginning of its arguments' text.
    pub arguments: String,
}

/// A call that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// What kind of fault.
    pub kind: CallErrorKind,
    /// The fault in words.
    pub reason: String,
    /// The call as the model wrote it, markers spelled out; `None` if it was too large to keep.
    pub raw_call: Option<String>,
}

/// Kinds of [`CallError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallErrorKind {
    /// Not in the format and not repaired.
    Malformed,
    /// No such tool was declared.
    UnknownTool,
    /// Larger than 256 KiB.
    Oversized,
}

impl CallErrorKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Malformed, Self::UnknownTool, Self::Oversized];

    /// The name in logs and error codes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownTool => "unknown_tool",
            Self::Oversized => "oversized",
        }
    }
}

/// How generation ended, or how the output reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By a stop token or stop string.
    Stop,
    /// Cut off: token limit, context, cancelled.
    Length,
    /// With calls to be answered ([`ParsedOutput::finish`] only).
    ToolCalls,
}

impl End {
    /// OpenAI's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// The whole output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedOutput {
    /// The answer; `None` where there are calls and nothing else was said.
    pub content: Option<String>,
    /// The thoughts, joined by blank lines; `None` if there were none.
    pub reasoning: Option<String>,
    /// The calls in order; those before an error too.
    pub tool_calls: Vec<ParsedCall>,
    /// The call that could not be read; nothing after it was looked at.
    pub error: Option<CallError>,
    /// A call was cut off by the length limit and dropped.
    pub truncated_tool_call: bool,
    /// What was told of that call.
    pub cut_call: Option<CutCall>,
    /// Why it ended.
    pub finish: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// An echo of the turn opener: text up to its newline is dropped.
    Echo,
    Content,
    Label,
    Reasoning,
    Call,
    /// A stop token or an error was seen.
    Done,
}

type Sink<'s> = &'s mut dyn FnMut(OutputEvent<'_>);

/// Splits the ids of one answer into content, reasoning and calls.
#[derive(Debug)]
pub struct OutputParser<'t> {
    tokenizer: &'t Tokenizer,
    decoder: StreamDecoder<'t>,
    tools: Vec<String>,
    /// Tools whose arguments are told while they are written.
    told: Vec<String>,
    teller: Teller,
    /// The present call was told of.
    telling: bool,
    state: State,
    start: State,
    started: bool,
    label: String,
    body: Body,
    content: Content,
    reasoning: Reasoning,
    calls: Vec<ParsedCall>,
    error: Option<CallError>,
    truncated: bool,
}

impl<'t> OutputParser<'t> {
    /// A parser for one answer. `tools` are the declared names; `starts_in_reasoning` is what the renderer
    /// said of the prompt.
    pub fn new(tokenizer: &'t Tokenizer, tools: Vec<String>, starts_in_reasoning: bool) -> Self {
        let start = if starts_in_reasoning { State::Reasoning } else { State::Content };
        Self {
            tokenizer,
            decoder: tokenizer.stream(true, true),
            tools,
            told: Vec::new(),
            teller: Teller::silent(),
            telling: false,
            state: start,
            start,
            started: false,
            label: String::new(),
            body: Body::default(),
            content: Content::default(),
            reasoning: Reasoning::default(),
            calls: Vec::new(),
            error: None,
            truncated: false,
        }
    }

    /// Tells the arguments of calls of these tools while they are written. Keys must not stand twice in what the model can
    /// write for them: a call in which one does is an error.
    #[must_use]
    pub fn telling(mut self, tools: Vec<String>) -> Self {
        self.told = tools;
        self
    }

    /// Whether the message has ended (stop token, next turn, unreadable call): further ids are ignored.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the next ordinary token is part of the answer, and of no thought, label or call.
    pub fn in_content(&self) -> bool {
        self.state == State::Content
    }

    /// The fault that ended the message, if one did.
    pub fn error(&self) -> Option<&CallError> {
        self.error.as_ref()
    }

    /// The next id.
    pub fn push(&mut self, id: u32, sink: Sink<'_>) {
        if self.state == State::Done {
            return;
        }
        let first = !std::mem::replace(&mut self.started, true);
        let control = self.tokenizer.control();
        if id == control.quote && self.state == State::Call {
            // Hidden tokens do not end a run of bytes, but here text must land on its side of the mark.
            self.flush(sink);
            self.body.quote();
            self.teller.quote();
            self.tell(sink);
            self.check_size();
            return;
        }
        let mut text = String::new();
        self.decoder.push(id, &mut text);
        self.text(&text, sink);
        if self.state == State::Done || !self.tokenizer.is_control(id) {
            return;
        }
        if id == control.turn_open && first {
            self.state = State::Echo;
        } else if control.stop_ids().contains(&id) || id == control.turn_open {
            self.end(End::Stop, sink);
        } else if id == control.call_open {
            self.open_call(sink);
        } else if id == control.call_close && self.state == State::Call {
            self.close_call(true, sink);
        } else if id == control.channel_open && self.state != State::Call {
            if self.state == State::Reasoning {
                self.reasoning.end_block();
            }
            self.label.clear();
            self.state = State::Label;
        } else if id == control.channel_close && matches!(self.state, State::Label | State::Reasoning) {
            self.close_thought(sink);
        }
    }

    /// The end of the output: hands on what was held and returns the whole. `end` is ignored if a stop token
    /// was seen.
    pub fn finish(mut self, end: End, sink: Sink<'_>) -> ParsedOutput {
        let cut = end == End::Length && self.state != State::Done;
        self.end(if cut { End::Length } else { End::Stop }, sink);
        if self.calls.is_empty() {
            self.content.release(sink);
        }
        let finish = if !self.calls.is_empty() && !self.truncated {
            End::ToolCalls
        } else if cut {
            End::Length
        } else {
            End::Stop
        };
        let silent = !self.calls.is_empty() && python::is_blank(&self.content.text);
        let cut_call = (self.truncated && self.telling).then(|| CutCall {
            name: self.teller.name().unwrap_or_default().to_owned(),
            arguments: self.teller.told().to_owned(),
        });
        ParsedOutput {
            content: if silent { None } else { Some(self.content.text) },
            reasoning: Some(self.reasoning.text).filter(|r| !r.is_empty()),
            tool_calls: self.calls,
            error: self.error,
            truncated_tool_call: self.truncated,
            cut_call,
            finish,
        }
    }

    /// Takes held bytes out of the decoder.
    fn flush(&mut self, sink: Sink<'_>) {
        let mut text = String::new();
        self.decoder.finish(&mut text);
        self.text(&text, sink);
    }

    fn text(&mut self, text: &str, sink: Sink<'_>) {
        if text.is_empty() {
            return;
        }
        match self.state {
            State::Content => self.content.push(text, sink),
            State::Reasoning => self.reasoning.push(text, sink),
            State::Call => {
                self.body.text(text);
                self.teller.text(text);
                self.tell(sink);
                self.check_size();
            }
            State::Echo => {
                if let Some((_, rest)) = text.split_once('\n') {
                    self.state = self.start;
                    self.text(rest, sink);
                }
            }
            State::Label => {
                self.label.push_str(text);
                if !text.contains('\n') {
                    return; // what came before has none, so it need not be looked at again
                }
                let label = std::mem::take(&mut self.label);
                match label.split_once('\n') {
                    None => self.label = label,
                    Some((name, rest)) => {
                        let visible =
                            matches!(python::strip(name).to_lowercase().as_str(), "final" | "answer");
                        self.state = if visible { State::Content } else { State::Reasoning };
                        self.text(rest, sink);
                    }
                }
            }
            State::Done => {}
        }
    }

    /// Ends a thought or a label and goes back to content.
    fn close_thought(&mut self, sink: Sink<'_>) {
        if self.state == State::Label {
            // No newline came: the model may have forgotten the label and begun to think.
            let label = std::mem::take(&mut self.label);
            if !matches!(python::strip(&label).to_lowercase().as_str(), "thought" | "final" | "answer" | "") {
                self.reasoning.push(&label, sink);
            }
        }
        self.reasoning.end_block();
        self.state = State::Content;
    }

    fn end(&mut self, end: End, sink: Sink<'_>) {
        if self.state == State::Done {
            return;
        }
        self.flush(sink);
        match self.state {
            State::Call if end == End::Length => self.truncated = true,
            State::Call => self.close_call(false, sink),
            State::Label | State::Reasoning => self.close_thought(sink),
            State::Content | State::Echo | State::Done => {}
        }
        self.state = State::Done;
    }

    fn open_call(&mut self, sink: Sink<'_>) {
        match self.state {
            State::Call => {
                let marker = Marker::CallOpen.text();
                self.fail(CallErrorKind::Malformed, "a call inside a call".to_owned(), marker);
                return;
            }
            State::Label | State::Reasoning => self.close_thought(sink),
            State::Content | State::Echo | State::Done => {}
        }
        self.content.end_segment();
        self.body = Body::default();
        self.teller = if self.told.is_empty() { Teller::silent() } else { Teller::default() };
        self.telling = false;
        self.state = State::Call;
    }

    /// Hands on what became certain of the call.
    fn tell(&mut self, sink: Sink<'_>) {
        if !self.telling {
            let Some(name) = self.teller.name() else { return };
            if !self.told.iter().any(|told| told == name) {
                self.teller = Teller::silent();
                return;
            }
            self.telling = true;
            sink(OutputEvent::CallOpened(name));
        }
        let piece = self.teller.take();
        if !piece.is_empty() {
            sink(OutputEvent::CallArguments(piece));
        }
    }

    /// Hands on what was not certain before the end; false if what was told is not what was meant.
    fn tell_rest(&mut self, arguments: &Json, sink: Sink<'_>) -> bool {
        if !std::mem::take(&mut self.telling) {
            return true;
        }
        let whole = arguments.to_string();
        match whole.strip_prefix(self.teller.told()) {
            None => return false,
            Some("") => {}
            Some(rest) => sink(OutputEvent::CallArguments(rest)),
        }
        true
    }

    fn close_call(&mut self, tagged: bool, sink: Sink<'_>) {
        let close = if tagged { Marker::CallClose.text() } else { "" };
        let mut raw = match call::parse(&self.body) {
            Ok(raw) => raw,
            Err(reason) => return self.fail(CallErrorKind::Malformed, reason, close),
        };
        let Some(name) = self.known(&raw.name) else {
            let reason = format!("no tool is called `{}`", raw.name);
            return self.fail(CallErrorKind::UnknownTool, reason, close);
        };
        if !self.tell_rest(&raw.arguments, sink) {
            return self.fail(CallErrorKind::Malformed, "a key stands twice".to_owned(), close);
        }
        if name != raw.name {
            raw.recovered.push(Recovery::NamespacedName);
        }
        if !tagged {
            raw.recovered.push(Recovery::MissingCloseTag);
        }
        raw.recovered.sort_unstable();
        let call = ToolCall {
            id: format!("call_{}", self.calls.len()),
            name,
            arguments: Arguments::Object(raw.arguments),
        };
        self.calls.push(ParsedCall { call, recovered: raw.recovered });
        self.body = Body::default();
        self.content.after_call = true;
        self.state = State::Content;
        if let Some(call) = self.calls.last() {
            sink(OutputEvent::ToolCall(call));
        }
    }

    /// The declared name that is meant: the same, or the only one that is the part after a colon.
    fn known(&self, name: &str) -> Option<String> {
        if self.tools.iter().any(|tool| tool == name) {
            return Some(name.to_owned());
        }
        let ends = |tool: &str| name.strip_suffix(tool).is_some_and(|prefix| prefix.ends_with(':'));
        let mut candidates = self.tools.iter().filter(|tool| !tool.is_empty() && ends(tool));
        match (candidates.next(), candidates.next()) {
            (Some(one), None) => Some(one.clone()),
            _ => None,
        }
    }

    fn check_size(&mut self) {
        if self.state == State::Call && self.body.len() > MAX_CALL_BYTES {
            let reason = format!("a tool call of more than {MAX_CALL_BYTES} bytes");
            self.error = Some(CallError { kind: CallErrorKind::Oversized, reason, raw_call: None });
            self.body = Body::default();
            self.state = State::Done;
        }
    }

    fn fail(&mut self, kind: CallErrorKind, reason: String, close: &str) {
        let raw_call = Some(format!("{}{}{close}", Marker::CallOpen.text(), self.body.spelled()));
        self.error = Some(CallError { kind, reason, raw_call });
        self.body = Body::default();
        self.state = State::Done;
    }
}

/// The answer. White space is held while it might be all there is beside calls.
#[derive(Debug, Default)]
struct Content {
    /// What was handed on.
    text: String,
    /// White space from before the first call, with nothing said yet.
    lead: String,
    /// White space of the stretch since the last call.
    gap: String,
    /// Something but white space was handed on.
    said: bool,
    /// Likewise since the last call.
    said_since: bool,
    after_call: bool,
}

impl Content {
    fn push(&mut self, text: &str, sink: Sink<'_>) {
        let said = if self.after_call { self.said_since } else { self.said };
        if said {
            self.emit(text, sink);
            return;
        }
        let held = if self.after_call { &mut self.gap } else { &mut self.lead };
        held.push_str(text);
        if !python::is_blank(text) {
            self.said = true;
            self.said_since = true;
            self.release(sink);
        }
    }

    /// Hands on what is held.
    fn release(&mut self, sink: Sink<'_>) {
        let held = std::mem::take(&mut self.lead) + &std::mem::take(&mut self.gap);
        self.emit(&held, sink);
    }

    /// A call begins: white space alone after an earlier one is dropped.
    fn end_segment(&mut self) {
        if self.after_call {
            self.gap.clear();
        }
        self.said_since = false;
    }

    fn emit(&mut self, text: &str, sink: Sink<'_>) {
        if !text.is_empty() {
            self.text.push_str(text);
            sink(OutputEvent::Content(text));
        }
    }
}

/// The thoughts. One trailing newline of each is the template's, so it is held and dropped at the end.
#[derive(Debug, Default)]
struct Reasoning {
    text: String,
    in_block: bool,
    newline: bool,
}

impl Reasoning {
    fn push(&mut self, text: &str, sink: Sink<'_>) {
        if text.is_empty() {
            return;
        }
        let mut piece = String::new();
        if std::mem::take(&mut self.newline) {
            piece.push('\n');
        }
        match text.strip_suffix('\n') {
            Some(body) => {
                piece.push_str(body);
                self.newline = true;
            }
            None => piece.push_str(text),
        }
        if piece.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.in_block, true) && !self.text.is_empty() {
            piece.insert_str(0, "\n\n");
        }
        self.text.push_str(&piece);
        sink(OutputEvent::Reasoning(&piece));
    }

    fn end_block(&mut self) {
        self.newline = false;
        self.in_block = false;
    }
}
