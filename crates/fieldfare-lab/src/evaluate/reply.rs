//! A reply of the model in pieces, and whether it was well-formed: ended by itself, calls readable without any repair,
//! thoughts opened and closed where they belong.

use super::case::Case;
use super::judge::Call;
use fieldfare::chat::{CallError, End, OutputParser, ParsedCall};
use fieldfare::engine::{Finish, Generation};
use fieldfare::tokenizer::Tokenizer;

/// What was written.
pub(super) struct Reply {
    /// The answer.
    pub(super) content: String,
    /// The thought.
    pub(super) reasoning: Option<String>,
    /// The calls.
    pub(super) calls: Vec<Call>,
    /// Why it is wrong whatever it says.
    pub(super) fault: Option<String>,
    /// The ids without the stop id.
    ids: Vec<u32>,
}

impl Reply {
    /// What the engine read.
    pub(super) fn of(generation: Generation) -> Self {
        let unfinished = matches!(generation.finish, Finish::Length | Finish::Cancelled);
        let fault = fault(unfinished, generation.call_error.as_ref(), &generation.tool_calls);
        Self {
            content: generation.text,
            reasoning: generation.reasoning,
            calls: generation.tool_calls.iter().map(call).collect(),
            fault,
            ids: generation.token_ids,
        }
    }

    /// Reads ids that end by a stop id, which is left out.
    pub(super) fn parse(case: &Case, ids: &[u32], tokenizer: &Tokenizer) -> Self {
        let mut parser = OutputParser::new(tokenizer, case.tools.clone(), case.starts_in_reasoning);
        ids.iter().for_each(|&id| parser.push(id, &mut |_| ()));
        let output = parser.finish(End::Stop, &mut |_| ());
        Self {
            content: output.content.unwrap_or_default(),
            reasoning: output.reasoning,
            calls: output.tool_calls.iter().map(call).collect(),
            fault: fault(false, output.error.as_ref(), &output.tool_calls),
            ids: ids.to_vec(),
        }
    }

    /// How many ids it has.
    pub(super) fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// On one line, for people.
    pub(super) fn shown(&self) -> String {
        let mut parts = Vec::new();
        if let Some(reasoning) = &self.reasoning {
            parts.push(format!("thought {reasoning:?}"));
        }
        parts.push(format!("{:?}", self.content));
        parts.extend(self.calls.iter().map(|(name, arguments)| format!("call {name}{arguments}")));
        parts.extend(self.fault.iter().map(|fault| format!("({fault})")));
        parts.join(" ")
    }

    /// Whether the reply thinks as the case wants: exactly one thought, opened first of all (or by the prompt), labelled,
    /// not empty, closed, and followed by an answer or a call; or none at all.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn thought(&self, case: &Case, tokenizer: &Tokenizer) -> Result<(), String> {
        let control = tokenizer.control();
        let marks: Vec<(usize, bool)> = (0..)
            .zip(&self.ids)
            .filter(|&(_, &id)| id == control.channel_open || id == control.channel_close)
            .map(|(at, &id)| (at, id == control.channel_open))
            .collect();
        if !case.thinking {
            let none = marks.is_empty() && self.reasoning.is_none();
            return if none { Ok(()) } else { Err("a thought where none was asked for".to_owned()) };
        }
        let inside = match (case.starts_in_reasoning, &marks[..]) {
            (true, &[(close, false)]) => &self.ids[..close],
            (false, &[(0, true), (close, false)]) => {
                let inside = &self.ids[1..close];
                if !tokenizer.decode(inside, false).starts_with("thought\n") {
                    return Err("the thought is not labelled as one".to_owned());
                }
                inside
            }
            _ => return Err("not exactly one thought, opened first and closed".to_owned()),
        };
        if inside.contains(&control.call_open) {
            return Err("a call inside the thought".to_owned());
        }
        if self.reasoning.as_ref().is_none_or(|text| text.trim().is_empty()) {
            return Err("the thought is empty".to_owned());
        }
        if self.content.trim().is_empty() && self.calls.is_empty() {
            return Err("nothing follows the thought".to_owned());
        }
        Ok(())
    }
}

fn call(parsed: &ParsedCall) -> Call {
    (parsed.call.name.clone(), parsed.call.arguments.value().unwrap_or_default())
}

fn fault(unfinished: bool, error: Option<&CallError>, calls: &[ParsedCall]) -> Option<String> {
    if let Some(error) = error {
        return Some(format!("a call that cannot be read: {}", error.reason));
    }
    let repaired = calls.iter().flat_map(|call| &call.recovered).next();
    if let Some(recovery) = repaired {
        return Some(format!("a call that had to be repaired: {}", recovery.name()));
    }
    unfinished.then(|| "did not come to an end".to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::judge::Rule;
    use super::*;
    use serde_json::json;

    fn tokenizer() -> Tokenizer {
        Tokenizer::open(&fieldfare_testing::tiny_checkpoint().join("tokenizer.json"), None).unwrap()
    }

    /// A case that nothing is wanted of.
    pub(in super::super) fn case_of(id: String, prompt: Vec<u32>) -> Case {
        Case { id, prompt, ..case(false, false) }
    }

    fn case(thinking: bool, starts_in_reasoning: bool) -> Case {
        let expect = json!({"kind": "free", "min_words": 0});
        Case {
            id: "x".to_owned(),
            group: "g".to_owned(),
            thinking,
            rule: Rule::parse(&expect).unwrap(),
            expect,
            prompt: vec![2],
            starts_in_reasoning,
            tools: vec!["f".to_owned()],
            target: Vec::new(),
        }
    }

    #[test]
    fn thoughts() {
        let tokenizer = tokenizer();
        let check = |thinking, inside, text: &str| {
            let case = case(thinking, inside);
            let mut ids = Vec::new();
            tokenizer.encode_with_control(text, &mut ids);
            Reply::parse(&case, &ids, &tokenizer).thought(&case, &tokenizer)
        };
        let call = "<|tool_call>call:f{}<tool_call|>";
        check(false, false, "hi").unwrap();
        check(true, false, "<|channel>thought\nhm\n<channel|>hi").unwrap();
        check(true, false, &format!("<|channel>thought\nhm\n<channel|>{call}")).unwrap();
        check(true, true, "hm\n<channel|>hi").unwrap();
        for (thinking, inside, text, reason) in [
            (false, false, "<|channel>thought\nhm\n<channel|>hi".to_owned(), "none was asked for"),
            (false, false, "hi<channel|>".to_owned(), "none was asked for"),
            (true, false, "hi".to_owned(), "exactly one"),
            (true, false, "<|channel>thought\nhm".to_owned(), "exactly one"),
            (true, false, "hi<|channel>thought\nhm\n<channel|>hi".to_owned(), "exactly one"),
            (
                true,
                false,
                "<|channel>thought\na\n<channel|><|channel>thought\na\n<channel|>hi".to_owned(),
                "exactly one",
            ),
            (true, true, "<|channel>thought\nhm\n<channel|>hi".to_owned(), "exactly one"),
            (true, true, "hi".to_owned(), "exactly one"),
            (true, false, "<|channel>final\nhm\n<channel|>hi".to_owned(), "not labelled"),
            (true, false, "<|channel>thought\n\n<channel|>hi".to_owned(), "is empty"),
            (true, false, "<|channel>thought\nhm\n<channel|> ".to_owned(), "nothing follows"),
            (true, false, format!("<|channel>thought\nhm{call}\n<channel|>hi"), "a call inside"),
        ] {
            let got = check(thinking, inside, &text).unwrap_err();
            assert!(got.contains(reason), "{text:?}: {got}");
        }
    }

    #[test]
    fn repaired_and_unreadable_calls_are_faults() {
        let tokenizer = tokenizer();
        let fault = |text: &str| {
            let mut ids = Vec::new();
            tokenizer.encode_with_control(text, &mut ids);
            Reply::parse(&case(false, false), &ids, &tokenizer).fault
        };
        assert_eq!(fault("<|tool_call>call:f{a:1}<tool_call|>"), None);
        assert_eq!(fault("hi"), None);
        let got = fault("<|tool_call>call:f{a:1}").unwrap();
        assert!(got.contains("repaired"), "{got}");
        for text in ["<|tool_call>call:g{a:1}<tool_call|>", "<|tool_call>call f<tool_call|>"] {
            let got = fault(text).unwrap();
            assert!(got.contains("cannot be read"), "{got}");
        }
    }
}
