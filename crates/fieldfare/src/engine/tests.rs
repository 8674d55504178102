//! The token loop against a scripted model: no weights, every edge.

use super::session::Counters;
use super::*;
use crate::model::{Kept, TOGETHER};
use crate::sample::Sampling;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

mod scores;
mod side_by_side;

/// Fed ids to logits.
type Next = Box<dyn Fn(&[u32], &mut [f32])>;

/// What a [`Scripted`] keeps of a text: all ids, and how far it can go back, as windows have it.
pub(super) struct Fed {
    pub(super) ids: Vec<u32>,
    points: Vec<usize>,
    /// Ids that it can go back without a point.
    memory: usize,
    /// Ids of all texts there are.
    held: Rc<Cell<u64>>,
}

impl Fed {
    fn new(ids: Vec<u32>, points: Vec<usize>, memory: usize, held: Rc<Cell<u64>>) -> Self {
        held.set(held.get() + ids.len() as u64);
        Self { ids, points, memory, held }
    }

    /// An empty one that can go back so far.
    pub(super) fn with_memory(&self, memory: usize) -> Self {
        Self::new(Vec::new(), Vec::new(), memory, self.held.clone())
    }

    fn push(&mut self, id: u32) {
        self.ids.push(id);
        self.held.set(self.held.get() + 1);
    }
}

impl Clone for Fed {
    fn clone(&self) -> Self {
        Self::new(self.ids.clone(), self.points.clone(), self.memory, self.held.clone())
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        self.held.set(self.held.get() - self.ids.len() as u64);
    }
}

impl Kept for Fed {
    fn position(&self) -> usize {
        self.ids.len()
    }
    fn reachable(&self, len: usize) -> usize {
        let len = len.min(self.ids.len());
        if self.ids.len() - len <= self.memory {
            return len;
        }
        self.points.iter().rev().copied().find(|&point| point <= len).unwrap_or(0)
    }
    fn rewind(&mut self, len: usize) -> usize {
        let at = self.reachable(len);
        self.held.set(self.held.get() - (self.ids.len() - at) as u64);
        self.ids.truncate(at);
        self.points.retain(|&point| point <= at);
        at
    }
    fn points(&self) -> &[usize] {
        &self.points
    }
    fn mark(&mut self, at: usize) {
        self.points.push(at);
        self.points.sort_unstable();
        self.points.dedup();
    }
    fn unmark(&mut self, at: usize) {
        self.points.retain(|&point| point != at);
    }
    fn own_bytes(&self) -> u64 {
        self.ids.len() as u64
    }
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&[u8::try_from(self.points.len()).unwrap()])?;
        let points = self.points.iter().map(|&point| u32::try_from(point).unwrap());
        points.chain(self.ids.iter().copied()).try_for_each(|word| out.write_all(&word.to_le_bytes()))
    }
}

/// A model that says what a function of the fed ids tells it to.
pub(super) struct Scripted {
    vocabulary: usize,
    pub(super) context: usize,
    pub(super) text: Fed,
    logits: Vec<f32>,
    next: Next,
    /// Prefill passes have this many ids.
    chunk: usize,
    step_texts: usize,
    /// Ids that all texts may come to.
    pub(super) room: u64,
    /// Decoding at this position fails.
    fails_at: Option<usize>,
    /// Ids fed by prefill so far.
    pub(super) prefilled: usize,
    /// Logits of a step of several texts, and how many had one.
    together: Vec<f32>,
    pub(super) steps: Vec<usize>,
}

impl Scripted {
    pub(super) fn new(next: impl Fn(&[u32], &mut [f32]) + 'static) -> Self {
        Self {
            vocabulary: 512,
            context: 64,
            text: Fed::new(Vec::new(), Vec::new(), usize::MAX, Rc::default()),
            logits: vec![0.0; 512],
            next: Box::new(next),
            chunk: 4,
            step_texts: usize::MAX,
            room: u64::MAX,
            fails_at: None,
            prefilled: 0,
            together: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Answers any prompt of this length with `script`, then with `<turn|>` for ever.
    fn saying(prompt: usize, script: Vec<u32>) -> Self {
        Self::new(move |fed, logits| {
            logits.fill(0.0);
            let id = fed.len().checked_sub(prompt).and_then(|i| script.get(i)).copied().unwrap_or(106);
            logits[id as usize] = 30.0;
        })
    }

    /// Noise that depends on every fed id.
    pub(super) fn noisy() -> Self {
        Self::new(|fed, logits| {
            let seed = fed.iter().fold(7_u64, |h, &id| h.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ u64::from(id));
            let mut x = seed | 1;
            for logit in logits.iter_mut() {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                *logit = (x % 1000) as f32 / 100.0;
            }
            logits[106] = -50.0;
        })
    }

    fn speak(&mut self) -> &mut [f32] {
        (self.next)(&self.text.ids, &mut self.logits);
        &mut self.logits
    }
}

impl Forward for Scripted {
    type Sequence = Fed;
    fn vocab_size(&self) -> usize {
        self.vocabulary
    }
    fn position(&self) -> usize {
        self.text.ids.len()
    }
    fn max_context(&self) -> usize {
        self.context
    }
    fn prefill(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&mut [f32]> {
        assert!(!ids.is_empty() && self.text.ids.len() + ids.len() <= self.context);
        let mut done = 0;
        for chunk in ids.chunks(self.chunk) {
            if progress(done).is_break() {
                return Err(Error::Cancelled);
            }
            chunk.iter().for_each(|&id| self.text.push(id));
            self.prefilled += chunk.len();
            done += chunk.len();
        }
        if progress(done).is_break() {
            return Err(Error::Cancelled);
        }
        Ok(self.speak())
    }
    fn decode(&mut self, id: u32) -> Result<&mut [f32]> {
        assert!(self.text.ids.len() < self.context);
        if self.fails_at == Some(self.text.ids.len()) {
            return Err(Error::damaged("packed_experts/layer_00.bin", "cut short"));
        }
        self.text.push(id);
        Ok(self.speak())
    }
    fn decode_together(&mut self, texts: &mut [&mut Fed], ids: &[u32]) -> Result<&mut [f32]> {
        assert!(texts.len() == ids.len() && texts.len() <= TOGETHER);
        let mut rows = Vec::new();
        if texts.iter().any(|text| self.fails_at == Some(text.ids.len())) {
            // Some had to go back farther than others.
            for text in texts.iter_mut().skip(1) {
                text.rewind(text.ids.len() - 1);
            }
            return Err(Error::damaged("packed_experts/layer_00.bin", "cut short"));
        }
        for (text, &id) in texts.iter_mut().zip(ids) {
            assert!(text.ids.len() < self.context);
            text.push(id);
            rows.resize(rows.len() + self.vocabulary, 0.0);
            let from = rows.len() - self.vocabulary;
            (self.next)(&text.ids, &mut rows[from..]);
        }
        self.steps.push(texts.len());
        self.together = rows;
        Ok(&mut self.together)
    }
    fn excess_together(&self, texts: &[&mut Fed]) -> u64 {
        (self.text.held.get() + texts.len() as u64).saturating_sub(self.room)
    }
    fn has_room_for(&self, ends: &[usize]) -> bool {
        ends.iter().sum::<usize>() as u64 <= self.room
    }
    fn pass_tokens(&self) -> usize {
        self.chunk
    }
    fn step_texts(&self) -> usize {
        self.step_texts
    }
    fn prefill_each(
        &mut self,
        ids: &[u32],
        between: &mut dyn FnMut() -> ControlFlow<()>,
        each: &mut dyn FnMut(usize, &[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        for (i, &id) in ids.iter().enumerate() {
            if between().is_break() {
                return Err(Error::Cancelled);
            }
            self.text.push(id);
            self.speak();
            if each(i, &self.logits).is_break() {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    }
    fn rewind(&mut self, len: usize) -> usize {
        self.text.rewind(len)
    }
    fn sequence(&mut self) -> &mut Fed {
        &mut self.text
    }
    fn blank(&self) -> Fed {
        Fed::new(Vec::new(), Vec::new(), self.text.memory, self.text.held.clone())
    }
    fn excess(&self, rows: usize, extra: u64) -> u64 {
        // Room is counted in ids; a file has each in its head and in its body.
        (self.text.held.get() + rows as u64).saturating_add(extra / 8).saturating_sub(self.room)
    }
    fn read_sequence(&mut self, from: &mut dyn Read, _: u64) -> Result<Fed> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).map_err(Error::io("read", "memory"))?;
        let (&points, words) = bytes.split_first().ok_or_else(|| Error::damaged("text", "is empty"))?;
        let words = words.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        let words: Vec<u32> = words.collect();
        let (points, ids) = words.split_at(points.into());
        let points = points.iter().map(|&point| point as usize).collect();
        Ok(Fed::new(ids.to_vec(), points, self.text.memory, self.text.held.clone()))
    }
}

/// The tiny tokenizer of the fixture checkpoint: control tokens as in the real one, text mostly byte by byte.
fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| {
        let path = fieldfare_testing::tiny_checkpoint().join("tokenizer.json");
        Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap()
    })
}

fn ids(text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer().encode_with_control(text, &mut ids);
    ids
}

/// A scripted model with a cache that outlives sessions, as [`Engine`] has one.
struct Bench {
    model: Scripted,
    conversations: Conversations<Fed>,
    tokenizer: Option<&'static Tokenizer>,
}

const STOP: [u32; 3] = [1, 106, 50];

impl Bench {
    fn new(model: Scripted) -> Self {
        Self { model, conversations: Conversations::new(1, None), tokenizer: Some(tokenizer()) }
    }

    /// Answers a prompt of one id with `text`.
    fn saying(text: &str) -> Self {
        Self::new(Scripted::saying(1, ids(text)))
    }

    fn session(&mut self) -> Session<'_, Scripted> {
        Session {
            forward: &mut self.model,
            conversations: &mut self.conversations,
            tokenizer: self.tokenizer,
            no_tokenizer: "none here",
            stop_ids: &STOP,
            counters: |_| Counters::default(),
        }
    }

    fn run(&mut self, prompt: &[u32], options: &GenerateOptions) -> Result<(Generation, Vec<String>)> {
        let mut seen = Vec::new();
        let generation = self.session().generate(prompt, options, &Cancel::new(), &mut |event| {
            match event {
                Event::Text(text) => seen.push(text.to_owned()),
                Event::Reasoning(text) => seen.push(format!("({text})")),
                Event::ToolCall(call) => seen.push(format!("[{}]", call.call.name)),
                Event::Prefill { .. } | Event::Token { .. } | Event::Scores(_) | Event::PromptScores(_) => {}
                Event::CallOpened(_) | Event::CallArguments(_) => {}
            }
            ControlFlow::Continue(())
        });
        assert_eq!(self.conversations.current(), self.model.text.ids);
        Ok((generation?, seen))
    }
}

fn greedy() -> GenerateOptions {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    GenerateOptions { sampling, ..GenerateOptions::default() }
}

fn stopping(stop: &[&str]) -> GenerateOptions {
    GenerateOptions { stop: stop.iter().map(|&s| s.to_owned()).collect(), ..greedy() }
}

fn chat(tools: &[&str]) -> GenerateOptions {
    let tools = tools.iter().map(|&t| t.to_owned()).collect();
    GenerateOptions { mode: OutputMode::Chat { starts_in_reasoning: false, tools }, ..greedy() }
}

#[test]
fn a_stop_id_ends_the_answer_and_is_not_part_of_it() {
    let (generation, seen) = Bench::saying("Count: one two").run(&[2], &greedy()).unwrap();
    assert_eq!(generation.text, "Count: one two");
    assert_eq!(seen.concat(), generation.text);
    assert_eq!(generation.token_ids, ids("Count: one two"));
    assert_eq!(generation.finish, Finish::Stop);
    let options = GenerateOptions { stop_ids: Some(ids(":")), ..greedy() };
    let (generation, _) = Bench::saying("Count: one two").run(&[2], &options).unwrap();
    assert_eq!((generation.text.as_str(), generation.finish), ("Count", Finish::Stop));
}

#[test]
fn a_stop_string_over_several_tokens_is_never_shown() {
    let text = "Count: one two three four five";
    for (stops, wanted) in [
        (&["two thr"][..], "Count: one "),
        (&["three"], "Count: one two "),
        (&["nothing", "five", "four", "zzz"], "Count: one two three "),
        (&["Count"], ""),
        (&["five!"], text),
    ] {
        for options in [stopping(stops), GenerateOptions { stop: stopping(stops).stop, ..chat(&[]) }] {
            let (generation, seen) = Bench::saying(text).run(&[2], &options).unwrap();
            assert_eq!(generation.text, wanted);
            assert_eq!(seen.concat(), wanted);
            assert_eq!(generation.finish, Finish::Stop);
        }
    }
}

#[test]
fn what_could_begin_a_stop_string_waits() {
    let (_, seen) = Bench::saying("abab abc").run(&[2], &stopping(&["abc"])).unwrap();
    assert_eq!(seen.concat(), "abab ");
    // A stop string that the held bytes of the end complete.
    let mut bench = Bench::saying("x\u{e9}");
    let made = ids("x\u{e9}").len();
    let options = GenerateOptions { max_new: made, ..stopping(&["\u{e9}"]) };
    let (generation, seen) = bench.run(&[2], &options).unwrap();
    assert_eq!((generation.text.as_str(), seen.concat().as_str()), ("x", "x"));
    assert_eq!(generation.finish, Finish::Stop);
}

#[test]
fn limits_end_by_length() {
    let (generation, _) =
        Bench::saying("abcdef").run(&[2], &GenerateOptions { max_new: 3, ..greedy() }).unwrap();
    assert_eq!((generation.token_ids.len(), generation.finish), (3, Finish::Length));

    let mut bench = Bench::saying("abcdef");
    let (generation, _) = bench.run(&[2], &GenerateOptions { max_new: 0, ..greedy() }).unwrap();
    assert_eq!((generation.token_ids.len(), generation.finish), (0, Finish::Length));
    assert_eq!(bench.model.prefilled, 0);
}

#[test]
fn time_that_is_up_ends_an_answer_like_its_length() {
    let within = |longest| GenerateOptions { longest: Some(longest), ..greedy() };
    let (generation, _) = Bench::saying("abcdef").run(&[2], &within(Duration::ZERO)).unwrap();
    assert_eq!((generation.text.as_str(), generation.finish), ("a", Finish::Length));
    let (generation, _) = Bench::saying("abcdef").run(&[2], &within(Duration::from_secs(3600))).unwrap();
    assert_eq!((generation.text.as_str(), generation.finish), ("abcdef", Finish::Stop));
    // What ends by itself has ended by itself.
    let stopped = GenerateOptions { longest: Some(Duration::ZERO), ..stopping(&["a"]) };
    let (generation, _) = Bench::saying("abcdef").run(&[2], &stopped).unwrap();
    assert_eq!((generation.text.as_str(), generation.finish), ("", Finish::Stop));
}

#[test]
fn the_context_is_filled_to_the_last_place() {
    // 64 places: 60 of the prompt, 4 fed, and a fifth token that need not be fed.
    let mut bench = Bench::new(Scripted::saying(60, ids("abcdefghijkl")));
    let (generation, _) = bench.run(&[2; 60], &greedy()).unwrap();
    assert_eq!((generation.token_ids.len(), generation.finish), (5, Finish::Length));
    assert_eq!(bench.model.position(), 64);

    let mut bench = Bench::new(Scripted::saying(64, ids("abc")));
    let (generation, _) = bench.run(&[2; 64], &greedy()).unwrap();
    assert_eq!((generation.text.as_str(), generation.finish), ("a", Finish::Length));

    let error = bench.run(&[2; 65], &greedy()).unwrap_err();
    assert!(matches!(error, Error::ContextFull { prompt: 65, context: 64 }), "{error}");
}

#[test]
fn bad_input_is_refused_before_any_work() {
    let mut bench = Bench::saying("a");
    let refuse = |bench: &mut Bench, prompt: &[u32], options: &GenerateOptions| {
        let error = bench.run(prompt, options).unwrap_err().to_string();
        assert_eq!(bench.model.prefilled, 0);
        error
    };
    assert_eq!(refuse(&mut bench, &[], &greedy()), "prompt: is empty");
    assert!(refuse(&mut bench, &[2, 512], &greedy()).contains("512 is beyond the vocabulary of 512"));
    assert!(refuse(&mut bench, &[2, u32::MAX], &greedy()).contains("beyond"));
    assert!(refuse(&mut bench, &[2], &stopping(&[""])).starts_with("stop"));
    let sampling = Sampling { temperature: -1.0, ..Sampling::default() };
    assert!(refuse(&mut bench, &[2], &GenerateOptions { sampling, ..greedy() }).starts_with("temperature"));
}

#[test]
fn without_a_tokenizer_ids_still_come() {
    let mut bench = Bench { tokenizer: None, ..Bench::saying("abc") };
    let (generation, seen) = bench.run(&[2], &greedy()).unwrap();
    assert_eq!((generation.token_ids, generation.text.as_str()), (ids("abc"), ""));
    assert!(seen.is_empty());
    assert!(matches!(bench.run(&[2], &stopping(&["a"])), Err(Error::NoTokenizer(_))));
    assert!(matches!(bench.run(&[2], &chat(&[])), Err(Error::NoTokenizer(_))));
}

#[test]
fn only_what_is_new_is_read() {
    let mut bench = Bench::new(Scripted::saying(10, ids("abc")));
    let prompt: Vec<u32> = (200..210).collect();
    let (first, _) = bench.run(&prompt, &greedy()).unwrap();
    assert_eq!((first.cached_tokens, bench.model.prefilled), (0, 10));

    // The conversation goes on: prompt, answer, one more.
    let mut longer = prompt.clone();
    longer.extend(ids("abc"));
    longer.push(300);
    let (next, _) = bench.run(&longer, &GenerateOptions { max_new: 1, ..greedy() }).unwrap();
    assert_eq!((next.cached_tokens, bench.model.prefilled), (13, 11));

    // The same again: only the last id, for its logits.
    bench.run(&longer, &GenerateOptions { max_new: 1, ..greedy() }).unwrap();
    assert_eq!(bench.model.prefilled, 12);

    // Another ending: back to where they part.
    let mut other = prompt.clone();
    other.push(301);
    let (parted, _) = bench.run(&other, &greedy()).unwrap();
    assert_eq!((parted.cached_tokens, bench.model.prefilled), (10, 13));

    // A model that cannot go back so far starts over.
    bench.model.text.memory = 2;
    bench.model.text.points.clear();
    let (anew, _) = bench.run(&prompt[..4], &GenerateOptions { max_new: 1, ..greedy() }).unwrap();
    assert_eq!((anew.cached_tokens, bench.model.prefilled), (0, 17));
}

#[test]
fn the_answer_does_not_depend_on_what_was_asked_before() {
    let options = GenerateOptions {
        sampling: Sampling { seed: Some(5), ..hot() },
        max_new: 20,
        ..GenerateOptions::default()
    };
    let a: Vec<u32> = (200..212).collect();
    let b: Vec<u32> = (200..205).chain(300..310).collect();
    let fresh = Bench::new(Scripted::noisy()).run(&a, &options).unwrap().0;
    let mut bench = Bench::new(Scripted::noisy());
    for prompt in [&a, &b, &a, &a] {
        let again = bench.run(prompt, &options).unwrap().0;
        if prompt == &a {
            assert_eq!((&again.token_ids, &again.text), (&fresh.token_ids, &fresh.text));
        }
    }
    for chunk in [1, 7, 128] {
        let mut bench = Bench::new(Scripted { chunk, ..Scripted::noisy() });
        assert_eq!(bench.run(&a, &options).unwrap().0.token_ids, fresh.token_ids);
    }
}

fn hot() -> Sampling {
    Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, ..Sampling::default() }
}

#[test]
fn seeds_are_told_and_count() {
    let options = |seed| GenerateOptions {
        sampling: Sampling { seed, ..hot() },
        max_new: 16,
        ..GenerateOptions::default()
    };
    let run = |seed| Bench::new(Scripted::noisy()).run(&[2], &options(seed)).unwrap().0;
    let drawn = run(None);
    assert_eq!(run(Some(drawn.seed)).token_ids, drawn.token_ids);
    assert_ne!(run(Some(1)).token_ids, run(Some(2)).token_ids);
}

#[test]
fn cancelling_keeps_what_there_is() {
    // By the token, while decoding.
    let mut bench = Bench::saying("abcdefgh");
    let cancel = Cancel::new();
    let asker = cancel.clone();
    let mut made = 0;
    let generation = bench
        .session()
        .generate(&[2], &greedy(), &cancel, &mut |event| {
            if matches!(event, Event::Token { .. }) {
                made += 1;
                if made == 3 {
                    asker.cancel();
                }
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((generation.text.as_str(), generation.finish), ("abc", Finish::Cancelled));
    assert_eq!(bench.conversations.current(), bench.model.text.ids);

    // By the sink, which then hears no more.
    let mut bench = Bench::saying("abcdefgh");
    let mut events = 0;
    let generation = bench
        .session()
        .generate(&[2], &greedy(), &Cancel::new(), &mut |event| {
            events += 1;
            if matches!(event, Event::Text("b")) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(generation.finish, Finish::Cancelled);
    assert_eq!(generation.token_ids, ids("ab"));
    // Prefill at its start, before and after its one pass; two tokens with their texts.
    assert_eq!(events, 7);

    // While the prompt is read: whole passes stay in the cache.
    let mut bench = Bench::new(Scripted::saying(10, ids("a")));
    let prompt: Vec<u32> = (200..210).collect();
    let generation = bench
        .session()
        .generate(&prompt, &greedy(), &Cancel::new(), &mut |event| match event {
            Event::Prefill { done: 8, .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
        .unwrap();
    assert_eq!((generation.token_ids.len(), generation.finish), (0, Finish::Cancelled));
    assert_eq!(bench.conversations.current(), &prompt[..8]);
    let (generation, _) = bench.run(&prompt, &greedy()).unwrap();
    assert_eq!((generation.cached_tokens, generation.text.as_str()), (8, "a"));

    // Before anything.
    let cancel = Cancel::new();
    cancel.cancel();
    let generation =
        bench.session().generate(&[7], &greedy(), &cancel, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(generation.finish, Finish::Cancelled);
}

#[test]
fn a_failure_leaves_the_cache_known() {
    let mut bench = Bench::saying("abcdef");
    bench.model.fails_at = Some(3);
    assert!(matches!(bench.run(&[2], &greedy()), Err(Error::Damaged { .. })));
    assert_eq!(bench.conversations.current().len(), 3);
    bench.model.fails_at = None;
    assert_eq!(bench.run(&[2], &greedy()).unwrap().0.text, "abcdef");
}

#[test]
fn chat_parts_come_apart() {
    let said = "<|channel>thought\nHm.\n<channel|>Let me see.<|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>\n<|tool_response>";
    let (generation, seen) = Bench::saying(said).run(&[2], &chat(&["f"])).unwrap();
    assert_eq!(generation.reasoning.as_deref(), Some("Hm."));
    assert_eq!(generation.text, "Let me see.");
    assert_eq!(generation.tool_calls[0].call.arguments.text(), "{\"a\":\"x\"}");
    assert_eq!(generation.finish, Finish::ToolCalls);
    let shown: String = seen.concat().replace(")(", "");
    assert_eq!(shown, "(Hm.)Let me see.[f]");

    let (generation, _) =
        Bench::saying("<|tool_call>call:g{}<tool_call|>more").run(&[2], &chat(&["f"])).unwrap();
    assert_eq!(generation.call_error.unwrap().raw_call.as_deref(), Some("<|tool_call>call:g{}<tool_call|>"));
    assert_eq!((generation.text.as_str(), generation.finish), ("", Finish::Stop));

    let options = GenerateOptions { max_new: 6, ..chat(&["f"]) };
    let (generation, _) = Bench::saying("<|tool_call>call:f{a:1}<tool_call|>").run(&[2], &options).unwrap();
    assert!(generation.truncated_tool_call && generation.tool_calls.is_empty());
    assert_eq!(generation.finish, Finish::Length);
}

#[test]
fn text_that_waits_comes_out_before_a_call() {
    let said = "Wait 12<|tool_call>call:f{}<tool_call|>3 and";
    let options = GenerateOptions { stop: stopping(&["123", "2<"]).stop, ..chat(&["f"]) };
    let (generation, seen) = Bench::saying(said).run(&[2], &options).unwrap();
    assert_eq!(generation.tool_calls.len(), 1);
    assert!(generation.text.starts_with("Wait 12"), "{}", generation.text);
    let call = seen.iter().position(|seen| seen == "[f]").expect("a call");
    assert_eq!(seen[..call].concat(), "Wait 12");
    // One that is complete before the call ends the answer there.
    let options = GenerateOptions { stop: stopping(&["12"]).stop, ..chat(&["f"]) };
    let (generation, seen) = Bench::saying(said).run(&[2], &options).unwrap();
    assert_eq!((generation.text.as_str(), generation.tool_calls.len()), ("Wait ", 0));
    assert_eq!(seen.concat(), "Wait ");
}

#[test]
fn placeholders_are_never_chosen_in_chat() {
    // The model's first wish is `<pad>`, then `<|turn>`, its second is always `b`.
    let script = |fed: &[u32], logits: &mut [f32]| {
        logits.fill(0.0);
        let wish = if fed.len() == 1 { 0 } else { 105 };
        logits[wish] = 30.0;
        logits[ids("b")[0] as usize] = 20.0;
    };
    let options = GenerateOptions { max_new: 2, ..chat(&[]) };
    let (generation, _) = Bench::new(Scripted::new(script)).run(&[2], &options).unwrap();
    assert_eq!(generation.text, "bb");
    // Raw mode is the model's own argmax, but nothing of it shows.
    let options = GenerateOptions { max_new: 2, ..greedy() };
    let (generation, _) = Bench::new(Scripted::new(script)).run(&[2], &options).unwrap();
    assert_eq!((generation.token_ids, generation.text.as_str()), (vec![0, 105], ""));
    let options = GenerateOptions { max_new: 2, suppress: Some(vec![0, 105, 9999]), ..greedy() };
    let (generation, _) = Bench::new(Scripted::new(script)).run(&[2], &options).unwrap();
    assert_eq!(generation.text, "bb");
}

#[test]
fn eos_ids_of_a_configuration() {
    use serde_json::json;
    assert_eq!(eos_ids(&json!({"eos_token_id": [1, 106]})), [1, 106]);
    assert_eq!(eos_ids(&json!({"eos_token_id": null, "text_config": {"eos_token_id": 7}})), [7]);
    assert!(eos_ids(&json!({"eos_token_id": "x"})).is_empty());
    assert!(eos_ids(&json!([])).is_empty());
}
