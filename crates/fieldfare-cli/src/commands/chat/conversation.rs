//! The conversation on a terminal, without the terminal and without the engine: lines come in through [`Lines`], answers
//! through [`Respond`], so that the whole of it is tested with a script.

use super::messages;
use crate::Outcome;
use crate::failure::Failure;
use crate::ui::report;
use fieldfare::chat::{Message, Role};
use std::io::Write;
use std::path::Path;

/// What the person did at the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Typed a line.
    Text(String),
    /// Pressed Ctrl-C, which cleared what was typed.
    Interrupted,
    /// Pressed Ctrl-D, or the terminal is gone.
    End,
}

/// Where lines come from.
pub trait Lines {
    /// The next line; `more` when it continues the one before.
    ///
    /// # Errors
    /// The terminal failed.
    fn next_line(&mut self, more: bool) -> Outcome<Line>;
}

/// What the model said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// The answer.
    pub content: String,
    /// The thought before it.
    pub reasoning: Option<String>,
}

/// Who answers, and shows the answer while it is made.
pub trait Respond {
    /// Answers the conversation so far.
    ///
    /// # Errors
    /// Why there is no answer. An answer that was stopped half-way is an answer.
    fn respond(&mut self, messages: &[Message]) -> Outcome<Reply>;
}

const HELP: &str = "\
/help       show this
/clear      forget the conversation and start anew
/save FILE  write the conversation as JSON
/load FILE  go on with such a conversation in place of this one
/quit       leave (as do Ctrl-D, and Ctrl-C twice)
Ctrl-C stops an answer. A \\ at the end of a line continues it on the next.
A line that begins with // is sent with one / in front.";

/// A command of the conversation.
#[derive(Debug, PartialEq, Eq)]
enum Input<'a> {
    Say(&'a str),
    Nothing,
    Help,
    Clear,
    Save(&'a str),
    Load(&'a str),
    Quit,
    Unknown(&'a str),
}

impl<'a> Input<'a> {
    fn read(line: &'a str) -> Self {
        let line = line.trim();
        if line.is_empty() {
            return Self::Nothing;
        }
        let Some(rest) = line.strip_prefix('/') else { return Self::Say(line) };
        if rest.starts_with('/') {
            return Self::Say(rest);
        }
        let (word, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        // `/etc/hosts, what is that?` is a question.
        if !word.chars().all(|c| c.is_ascii_alphabetic()) {
            return Self::Say(line);
        }
        match (word, argument.trim()) {
            ("help", "") => Self::Help,
            ("clear", "") => Self::Clear,
            ("quit" | "exit", "") => Self::Quit,
            ("save", file) => Self::Save(file),
            ("load", file) => Self::Load(file),
            _ => Self::Unknown(line),
        }
    }
}

/// A conversation: the instructions in front, and the turns so far.
pub struct Conversation<'a, L, R> {
    lines: L,
    respond: R,
    /// Standard error, or what a test looks at.
    notes: &'a mut dyn Write,
    system: Option<String>,
    messages: Vec<Message>,
}

impl<'a, L: Lines, R: Respond> Conversation<'a, L, R> {
    /// A new one.
    pub fn new(lines: L, respond: R, system: Option<String>, notes: &'a mut dyn Write) -> Self {
        let mut conversation = Self { lines, respond, notes, system, messages: Vec::new() };
        conversation.clear();
        conversation
    }

    /// Talks until the person leaves.
    ///
    /// # Errors
    /// The terminal failed, or standard output is closed.
    pub fn run(&mut self) -> Outcome {
        while let Some(text) = self.read()? {
            match Input::read(&text) {
                Input::Nothing => {}
                Input::Say(text) => self.say(text)?,
                Input::Help => self.note(HELP),
                Input::Clear => {
                    self.clear();
                    self.note("a new conversation");
                }
                Input::Save(file) => self.save(file),
                Input::Load(file) => self.load(file),
                Input::Quit => return Ok(()),
                Input::Unknown(line) => self.note(&format!("no such command: {line} (/help lists them)")),
            }
        }
        Ok(())
    }

    /// The next line with its continuations, or `None` when the person leaves.
    fn read(&mut self) -> Outcome<Option<String>> {
        let mut text = String::new();
        let mut more = false;
        let mut interrupted = false;
        loop {
            match self.lines.next_line(more)? {
                Line::End => return Ok(None),
                Line::Interrupted if interrupted => return Ok(None),
                Line::Interrupted => {
                    interrupted = true;
                    more = false;
                    text.clear();
                    self.note("(Ctrl-C again or Ctrl-D leaves)");
                }
                Line::Text(line) => {
                    interrupted = false;
                    if let Some(begun) = line.strip_suffix('\\') {
                        text.push_str(begun);
                        text.push('\n');
                        more = true;
                        continue;
                    }
                    text.push_str(&line);
                    return Ok(Some(text));
                }
            }
        }
    }

    fn say(&mut self, text: &str) -> Outcome {
        self.messages.push(Message::user(text));
        match self.respond.respond(&self.messages) {
            Ok(reply) if reply == Reply::default() => {
                // Stopped before the first word: as if it had not been asked.
                self.messages.pop();
            }
            Ok(reply) => {
                let mut message = Message::assistant(reply.content);
                message.reasoning = reply.reasoning;
                self.messages.push(message);
            }
            Err(Failure::Interrupted) => {
                self.messages.pop();
            }
            Err(failure @ Failure::PipeClosed) => return Err(failure),
            Err(failure) => {
                self.messages.pop();
                failure.report();
                if self.messages.iter().any(|message| message.role == Role::Assistant) {
                    self.note("(the conversation goes on without that message; /clear starts anew)");
                }
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.messages.extend(self.system.as_deref().map(Message::system));
    }

    fn save(&mut self, file: &str) {
        if file.is_empty() {
            self.note("save where? /save FILE");
            return;
        }
        let path = Path::new(file);
        let text = messages::to_json(&self.messages);
        let written = std::fs::File::create_new(path).and_then(|mut out| out.write_all(text.as_bytes()));
        match written {
            Ok(()) => {
                let saved = report::count(self.messages.len(), "message");
                self.note(&format!("saved {saved} in {file}"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                self.note(&format!("{file} exists already; choose another name"));
            }
            Err(error) => self.note(&format!("cannot write {file}: {error}")),
        }
    }

    fn load(&mut self, file: &str) {
        // `-` would be the terminal itself.
        if file.is_empty() || file == "-" {
            self.note("load what? /load FILE");
            return;
        }
        // It comes with its instructions, if it had any; what cannot be read leaves things as they are.
        match messages::read(Path::new(file)) {
            Ok(messages) => {
                self.messages = messages;
                let loaded = report::count(self.messages.len(), "message");
                self.note(&format!("going on with {loaded} of {file}"));
            }
            Err(failure) => failure.report(),
        }
    }

    fn note(&mut self, text: &str) {
        let _ = writeln!(self.notes, "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Script(std::vec::IntoIter<Line>);
    impl Lines for Script {
        fn next_line(&mut self, _: bool) -> Outcome<Line> {
            Ok(self.0.next().unwrap_or(Line::End))
        }
    }

    /// Answers with the number of messages it saw, and keeps what it saw.
    struct Echo<'a>(&'a RefCell<Vec<Vec<Message>>>);
    impl Respond for Echo<'_> {
        fn respond(&mut self, messages: &[Message]) -> Outcome<Reply> {
            self.0.borrow_mut().push(messages.to_vec());
            let last = messages::plain_text(&messages[messages.len() - 1]);
            match last.as_str() {
                "fail" => Err(Failure::failed("it failed")),
                "stop" => Err(Failure::Interrupted),
                "silence" => Ok(Reply::default()),
                "pipe" => Err(Failure::PipeClosed),
                _ => Ok(Reply { content: format!("seen {}", messages.len()), reasoning: None }),
            }
        }
    }

    fn talk(lines: &[&str]) -> (Vec<Vec<String>>, String) {
        let lines = lines.iter().map(|line| match *line {
            "^C" => Line::Interrupted,
            "^D" => Line::End,
            text => Line::Text(text.to_owned()),
        });
        let seen = RefCell::new(Vec::new());
        let mut notes = Vec::new();
        let script = Script(lines.collect::<Vec<_>>().into_iter());
        let _ = Conversation::new(script, Echo(&seen), Some("be brief".into()), &mut notes).run();
        let seen = seen.into_inner();
        let texts = seen.iter().map(|all| all.iter().map(messages::plain_text).collect());
        (texts.collect(), String::from_utf8(notes).unwrap())
    }

    #[test]
    fn turns_add_up_and_clear_starts_anew() {
        let (seen, notes) = talk(&["one", "", "two", "/clear", "three", "/quit", "four"]);
        assert_eq!(seen[0], ["be brief", "one"]);
        assert_eq!(seen[1], ["be brief", "one", "seen 2", "two"]);
        assert_eq!(seen[2], ["be brief", "three"]);
        assert_eq!(seen.len(), 3);
        assert!(notes.contains("a new conversation"));
    }

    #[test]
    fn what_got_no_answer_is_forgotten() {
        for failing in ["fail", "stop", "silence"] {
            let (seen, _) = talk(&[failing, "two"]);
            assert_eq!(seen[1], ["be brief", "two"], "{failing}");
        }
        assert_eq!(talk(&["pipe", "two"]).0.len(), 1);
    }

    #[test]
    fn ctrl_c_twice_leaves_and_once_clears() {
        assert_eq!(talk(&["^C", "one", "^C", "two", "^C", "^C", "three"]).0.len(), 2);
        assert_eq!(talk(&["begun\\", "^C", "one"]).0[0], ["be brief", "one"]);
    }

    #[test]
    fn lines_continue_and_slashes_are_told_apart() {
        let (seen, notes) =
            talk(&["first\\", "second", "//help me", "/etc/hosts is what?", "/helpp", "/help", "/save"]);
        assert_eq!(seen[0][1], "first\nsecond");
        assert_eq!(seen[1][3], "/help me");
        assert_eq!(seen[2][5], "/etc/hosts is what?");
        assert_eq!(seen.len(), 3);
        assert!(notes.contains("no such command: /helpp") && notes.contains("/save FILE"));
    }

    #[test]
    fn saving_writes_what_can_be_read_again_and_replaces_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("talk one.json");
        let save = format!("/save {}", file.display());
        let (_, notes) = talk(&["hello", &save, &save]);
        assert!(notes.contains("saved 3 messages") && notes.contains("exists already"), "{notes}");
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(value[2]["role"], "assistant");
        assert_eq!(value[2]["content"], "seen 2");
        assert_eq!(fieldfare::chat::parse_messages(&value).unwrap().len(), 3);
    }

    #[test]
    fn a_saved_conversation_is_gone_on_with() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("talk.json");
        talk(&["hello", "again", &format!("/save {}", file.display())]);
        let load = format!("/load {}", file.display());
        let (seen, notes) = talk(&["something else", &load, "and now"]);
        assert_eq!(seen[1], ["be brief", "hello", "seen 2", "again", "seen 4", "and now"]);
        assert!(notes.contains("going on with 5 messages"), "{notes}");
        // What cannot be read changes nothing.
        let missing = format!("/load {}", temp.path().join("none.json").display());
        let (seen, notes) = talk(&["one", "/load", &missing, "two"]);
        assert_eq!(seen[1], ["be brief", "one", "seen 2", "two"]);
        assert!(notes.contains("load what?"), "{notes}");
    }
}
