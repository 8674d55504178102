//! What is certain of a call's arguments while the model still writes them: the beginning of the very text that the whole
//! call will have ([`super::Json`]'s compact form), so that it may be sent before the call is complete.
//!
//! Text of an entry goes on as it comes, any other value when it is complete. Only the plain spelling is followed, the one
//! that the format's own template writes; from what departs from it on (a repaired call, say) nothing more is told before
//! the end. A key that stands twice would take back what was told, so this is for calls whose grammar has none.

use super::call::{self, Body};
use super::json::{self, Json};
use super::python;

/// Longest opening, `call:NAME{`, and longest key.
const MAX_WORD: usize = 256;

/// Where in the call the next character stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// In `call:NAME{`.
    #[default]
    Head,
    /// In a key, or before the closing brace if it is the first.
    Key,
    /// Before a value.
    Value,
    /// In the text of an entry.
    Text,
    /// In a list or object: so many brackets are open, and whether a text is.
    Nested(usize, bool),
    /// In a number or word.
    Scalar,
    /// After a value.
    After,
    /// Behind the last brace.
    Over,
    /// Lost: the end will tell.
    Lost,
}

/// Follows one call.
#[derive(Debug, Default)]
pub(super) struct Teller {
    at: At,
    name: String,
    /// The word or value that is not complete.
    held: Body,
    word: String,
    /// Entries that were told.
    entries: usize,
    told: String,
    /// Bytes of it that were taken.
    taken: usize,
}

impl Teller {
    /// One that tells nothing.
    pub(super) fn silent() -> Self {
        Self { at: At::Lost, ..Self::default() }
    }

    /// The tool's name, once it is complete.
    pub(super) fn name(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|name| !name.is_empty())
    }

    /// All that is certain.
    pub(super) fn told(&self) -> &str {
        &self.told
    }

    /// What became certain since the last time.
    pub(super) fn take(&mut self) -> &str {
        let from = std::mem::replace(&mut self.taken, self.told.len());
        &self.told[from..]
    }

    /// More of the call.
    pub(super) fn text(&mut self, text: &str) {
        match self.at {
            At::Text => self.tell_text(text),
            At::Lost => {}
            _ => {
                // Only a mark begins text, and that does not come by this way.
                for c in text.chars() {
                    self.char(c);
                    if self.at == At::Lost {
                        return;
                    }
                }
            }
        }
    }

    /// A quote mark.
    pub(super) fn quote(&mut self) {
        match self.at {
            At::Value => {
                self.told.push('"');
                self.at = At::Text;
            }
            At::Text => {
                self.told.push('"');
                self.at = At::After;
            }
            At::Nested(depth, open) => {
                self.held.quote();
                self.at = At::Nested(depth, !open);
            }
            _ => self.at = At::Lost,
        }
    }

    /// Text between quotes, as JSON spells it: a character's spelling does not depend on its neighbours.
    fn tell_text(&mut self, text: &str) {
        let spelled = Json::String(text.to_owned()).to_string();
        self.told.push_str(&spelled[1..spelled.len() - 1]);
    }

    fn char(&mut self, c: char) {
        match self.at {
            At::Head => self.head(c),
            At::Key => self.key(c),
            At::Value if python::is_space(c) => {}
            At::Value => match c {
                '{' | '[' => {
                    self.hold(c);
                    self.at = At::Nested(1, false);
                }
                '"' | '\'' | ',' | '}' | ']' | ')' | '(' | ':' => self.at = At::Lost,
                _ => {
                    self.word.push(c);
                    self.at = At::Scalar;
                }
            },
            At::Nested(depth, open) => self.nested(c, depth, open),
            At::Scalar => match c {
                ',' | '}' => {
                    self.scalar();
                    self.after(c);
                }
                _ if python::is_space(c) => self.scalar(),
                ']' | ')' | '(' | '{' | '[' | ':' => self.at = At::Lost,
                _ => self.push(c),
            },
            At::After => self.after(c),
            At::Over if python::is_space(c) => {}
            At::Text | At::Over | At::Lost => self.at = At::Lost,
        }
    }

    fn push(&mut self, c: char) {
        self.word.push(c);
        if self.word.len() > MAX_WORD {
            self.at = At::Lost;
        }
    }

    fn hold(&mut self, c: char) {
        self.held.text(c.encode_utf8(&mut [0; 4]));
    }

    fn head(&mut self, c: char) {
        if c != '{' {
            return self.push(c);
        }
        let word = std::mem::take(&mut self.word);
        match word.strip_prefix("call:") {
            Some(name) if !name.is_empty() && name.chars().all(call::is_name_char) => {
                self.name = name.to_owned();
                self.told.push('{');
                self.at = At::Key;
            }
            _ => self.at = At::Lost,
        }
    }

    fn key(&mut self, c: char) {
        match c {
            ':' => {
                let word = std::mem::take(&mut self.word);
                let key = python::strip(&word);
                if !call::is_writable_key(key) {
                    self.at = At::Lost;
                    return;
                }
                if self.entries > 0 {
                    self.told.push(',');
                }
                self.told.push_str(&Json::String(key.to_owned()).to_string());
                self.told.push(':');
                self.at = At::Value;
            }
            '}' if self.entries == 0 && python::is_blank(&self.word) => self.close(),
            _ => self.push(c),
        }
    }

    fn nested(&mut self, c: char, depth: usize, open: bool) {
        self.hold(c);
        if open {
            return;
        }
        let depth = match c {
            '{' | '[' => depth + 1,
            '}' | ']' => depth - 1,
            // Other spellings of text, in which a bracket may mean nothing.
            '"' | '\'' => {
                self.at = At::Lost;
                return;
            }
            _ => depth,
        };
        self.at = At::Nested(depth, false);
        if depth == 0 {
            match call::parse_value(&std::mem::take(&mut self.held)) {
                Some(value) => self.tell(&value),
                None => self.at = At::Lost,
            }
        }
    }

    fn scalar(&mut self) {
        let word = std::mem::take(&mut self.word);
        match word.as_str() {
            "null" => self.tell(&Json::Null),
            "true" => self.tell(&Json::Bool(true)),
            "false" => self.tell(&Json::Bool(false)),
            number if json::is_number(number) => self.tell(&Json::Number(word)),
            _ => self.at = At::Lost,
        }
    }

    fn tell(&mut self, value: &Json) {
        self.told.push_str(&value.to_string());
        self.at = At::After;
    }

    fn after(&mut self, c: char) {
        match c {
            _ if self.at != At::After => {}
            ',' => {
                self.entries += 1;
                self.at = At::Key;
            }
            '}' => self.close(),
            _ if python::is_space(c) => {}
            _ => self.at = At::Lost,
        }
    }

    fn close(&mut self) {
        self.told.push('}');
        self.at = At::Over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `§` stands for the quote mark. What was told, and whether it was followed to the end.
    fn tell(text: &str, cut: usize) -> (String, Body, bool) {
        let (mut teller, mut body) = (Teller::default(), Body::default());
        let mut pieces = String::new();
        for (i, run) in text.split('§').enumerate() {
            if i > 0 {
                teller.quote();
                body.quote();
            }
            let chars: Vec<char> = run.chars().collect();
            for piece in chars.chunks(cut) {
                let piece: String = piece.iter().collect();
                teller.text(&piece);
                body.text(&piece);
                pieces.push_str(teller.take());
            }
        }
        pieces.push_str(teller.take());
        assert_eq!(pieces, teller.told());
        (pieces, body, teller.at == At::Over)
    }

    #[test]
    fn what_is_told_is_the_text_of_the_call() {
        for text in [
            "call:f{}",
            "call:a.b-c:d{ }",
            "call:f{a:1}",
            "call:f{a:§§}",
            "call:f{a:§x\"\\\n\u{1}\u{e9}\u{1f600}§,b c:-1.50e+3 , d:null}",
            "call:f{a:[],b:{},c:[1,{x:§}]§,y:[[true]]}],d:false}",
            "call:f{a:{k:1,k:2},b:18446744073709551616}",
        ] {
            for cut in [1, 3, 100] {
                let (told, body, whole) = tell(text, cut);
                let call = call::parse(&body).unwrap();
                assert!(whole && told == call.arguments.to_string(), "{text}: {told}");
            }
        }
        let mut teller = Teller::default();
        teller.text("call:write");
        assert_eq!(teller.name(), None);
        teller.text("{path:");
        assert_eq!((teller.name(), teller.told()), (Some("write"), "{\"path\":"));
        teller.quote();
        teller.text("half of the");
        assert_eq!(teller.told(), "{\"path\":\"half of the");
    }

    #[test]
    fn what_departs_from_the_form_is_left_to_the_end() {
        for (text, told) in [
            ("call:f(a=1)", ""),
            (":f{}", ""),
            (" call:f{}", ""),
            ("call:f{a=b:1}", "{"),
            ("call:f{§a§:1}", "{"),
            ("call:f{a:'x'}", "{\"a\":"),
            ("call:f{a:\"x\"}", "{\"a\":"),
            ("call:f{a:None}", "{\"a\":"),
            ("call:f{a:[1", "{\"a\":"),
            ("call:f{a:['}']}", "{\"a\":"),
            ("call:f{a:1 2}", "{\"a\":1"),
            ("call:f{a:1}}", "{\"a\":1}"),
        ] {
            assert_eq!(tell(text, 2).0, told, "{text}");
        }
        let mut silent = Teller::silent();
        silent.text("call:f{a:1}");
        assert_eq!((silent.name(), silent.told()), (None, ""));
    }

    proptest! {
        /// However it goes on: what was told is how the call's text begins.
        #[test]
        fn nothing_told_is_taken_back(
            values in prop::collection::vec("§[ -~\u{e9}\n]{0,4}§|[0-9tn.e]{1,3}|[\\[{][a§:1,\\[]{0,5}[\\]}]{1,2}", 0..4),
            tail in "[}§ ,x1]{0,3}",
            cut in 1_usize..5,
        ) {
            let entries = values.iter().zip(["a", "b", "c", "d"]).map(|(value, key)| format!("{key}:{value}"));
            let text = format!("call:f{{{}{tail}", entries.collect::<Vec<_>>().join(","));
            let (told, body, _) = tell(&text, cut);
            if let Ok(call) = call::parse(&body) {
                let whole = call.arguments.to_string();
                prop_assert!(whole.starts_with(&told), "{text}: {told} {whole}");
            }
        }
    }
}
