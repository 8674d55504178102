//! The whole command on the tiny checkpoint. Its weights are random, so the replies that count as right are what it says.

use super::reference::tests::Tensors;
use super::*;
use clap::Parser;
use fieldfare::engine::{Cancel, GenerateOptions, OutputMode, Scores};
use fieldfare::sample::Sampling;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use tempfile::TempDir;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

/// A model, its cases, a reference that the engine made itself, and thresholds that all of it meets.
struct Bench {
    temp: TempDir,
    engine: Option<Engine>,
    cases: Vec<Value>,
    thresholds: Value,
}

const TOOL: &str = "<|turn>system\n<|tool>declaration:clock{description:<|\"|>Tells the time.<|\"|>,parameters:{type:<|\"|>OBJECT<|\"|>}}<tool|><turn|>\n";

impl Bench {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let install = fieldfare::install::InstallOptions {
            from: fieldfare_testing::tiny_checkpoint(),
            output: temp.path().join("m.gturbo"),
            layout: fieldfare::format::Layout::Tiled,
            overwrite: false,
        };
        fieldfare::install::install_local(&install, &mut |_| ControlFlow::Continue(())).unwrap();
        let options =
            EngineOptions { runtime_dir: Some(temp.path().to_path_buf()), ..EngineOptions::default() };
        let engine = Engine::open(&install.output, options).unwrap();
        let thresholds = json!({
            "groups": {"known": {"floor": 1.0, "goal": 1.0}, "other": {"floor": 0.25, "goal": 0.9}},
            "thoughts": {"floor": 0.0, "goal": 0.99}, "no_thoughts": {"floor": 1.0, "goal": 1.0}, "perplexity_max": 1e12,
            "delta_nll_max": 1e-6, "kl_max": 1e-6, "top1_min": 1.0,
        });
        let mut bench = Self { temp, engine: Some(engine), cases: Vec::new(), thresholds };
        bench.fill();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// What the model says to a question that it is known to answer in a few words.
    fn says(&mut self, prompt: &str) -> String {
        let engine = self.engine.as_mut().unwrap();
        let mut ids = Vec::new();
        engine.tokenizer().unwrap().encode_with_control(prompt, &mut ids);
        let options = GenerateOptions {
            sampling: Sampling { temperature: 0.0, ..Sampling::default() },
            max_new: 40,
            mode: OutputMode::Chat { starts_in_reasoning: false, tools: Vec::new() },
            ..GenerateOptions::default()
        };
        let mut go_on = |_: fieldfare::engine::Event<'_>| ControlFlow::Continue(());
        engine.session().generate(&ids, &options, &Cancel::new(), &mut go_on).unwrap().text
    }

    fn fill(&mut self) {
        let start = "<|turn>model\n<|channel>thought\n<channel|>";
        for question in ["Question 0?", "Question 12?", "Question 24?"] {
            let prompt = format!("<bos><|turn>user\n{question}<turn|>\n{start}");
            let text = self.says(&prompt);
            self.cases.push(json!({
                "id": question, "task": "known", "group": "known", "thinking": false, "tools": [],
                "messages": [{"role": "user", "content": question}],
                "expect": {"kind": "equals", "any": [text.trim()]},
                "reply": {"content": text, "reasoning": null, "calls": []},
                "prompt_text": prompt, "target_text": format!("{text}<turn|>"),
            }));
        }
        let other = |id: &str, thinking: bool, extra: Value| {
            let mut case = json!({"id": id, "task": "other", "group": "other", "thinking": thinking});
            case.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            case
        };
        // Whatever it writes is right, if it comes to an end.
        let mut anything = self.cases[0].clone();
        for (field, value) in [("id", "anything"), ("group", "other")] {
            anything[field] = json!(value);
        }
        anything["expect"] = json!({"kind": "free", "min_words": 1});
        self.cases.push(anything);
        self.cases.push(other("endless", false, json!({
            "messages": [{"role": "user", "content": "Question 2?"}],
            "expect": {"kind": "free", "min_words": 1},
            "reply": {"content": "Yes", "reasoning": null, "calls": []},
            "prompt_text": format!("<bos><|turn>user\nQuestion 2?<turn|>\n{start}"), "target_text": "Yes<turn|>",
        })));
        let tool = json!([{"type": "function", "function": {"name": "clock", "description": "Tells the time.", "parameters": {"type": "object", "properties": {}, "required": []}}}]);
        self.cases.push(other(
            "call",
            false,
            json!({
                "messages": [{"role": "user", "content": "What time is it?"}], "tools": tool,
                "expect": {"kind": "calls", "calls": [["clock", {}]]},
                "reply": {"content": "", "reasoning": null, "calls": [["clock", {}]]},
                "prompt_text": format!("<bos>{TOOL}<|turn>user\nWhat time is it?<turn|>\n{start}"),
                "target_text": "<|tool_call>call:clock{}<tool_call|><|tool_response>",
            }),
        ));
        let think = TOOL.replace("<|turn>system\n", "<|turn>system\n<|think|>\n");
        self.cases.push(other("after a result", true, json!({
            "messages": [
                {"role": "user", "content": "What time is it?"},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "clock", "arguments": {}}}]},
                {"role": "tool", "tool_call_id": "call_0", "content": "noon"},
            ],
            "tools": tool, "expect": {"kind": "contains", "any": ["noon"]},
            "reply": {"content": "It is noon.", "reasoning": "The clock says noon.", "calls": []},
            "prompt_text": format!("<bos>{think}<|turn>user\nWhat time is it?<turn|>\n<|turn>model\n<|tool_call>call:clock{{}}<tool_call|><|tool_response>response:clock{{value:<|\"|>noon<|\"|>}}<tool_response|><|channel>thought\n"),
            "target_text": "The clock says noon.\n<channel|>It is noon.<turn|>",
        })));
        let (one, two) = (vec![2, 105, 20, 300, 41, 7, 7, 511], vec![2, 30, 31, 32, 33]);
        let reference = self.reference(&[one, two]);
        std::fs::write(self.path("reference"), reference.bytes()).unwrap();
    }

    fn score(&mut self, ids: &[u32]) -> Scores {
        let engine = self.engine.as_mut().unwrap();
        engine.session().score(ids, 32, &Cancel::new(), &mut |_| ControlFlow::Continue(())).unwrap()
    }

    /// The engine's own numbers as a reference; the ids from position 2 on are scored.
    fn reference(&mut self, sequences: &[Vec<u32>]) -> Tensors {
        let (n, t, k) = (sequences.len(), 9, 32);
        let mut tensors = Tensors {
            shape: [n, t, k],
            ids: vec![0; n * t],
            lengths: sequences.iter().map(|ids| ids.len() as i32).collect(),
            scored: vec![0; n * t],
            logprob: vec![0.0; n * t],
            top_ids: vec![0; n * t * k],
            top_logprobs: vec![0.0; n * t * k],
        };
        for (row, ids) in sequences.iter().enumerate() {
            let scores = self.score(ids);
            for (at, &id) in ids.iter().enumerate() {
                tensors.ids[row * t + at] = id as i32;
                tensors.scored[row * t + at] = u8::from(at >= 2);
                if at > 0 {
                    tensors.logprob[row * t + at] = scores.logprobs[at - 1];
                }
                for (rank, candidate) in scores.top[at].iter().enumerate() {
                    tensors.top_ids[(row * t + at) * k + rank] = candidate.id as i32;
                    tensors.top_logprobs[(row * t + at) * k + rank] = candidate.logprob;
                }
            }
        }
        tensors
    }

    /// Of all targets, each case scored from its beginning.
    fn perplexity(&mut self) -> f64 {
        let tokenizer = std::sync::Arc::clone(self.engine.as_ref().unwrap().tokenizer().unwrap());
        let (mut nll, mut count) = (0.0, 0);
        for case in self.cases.clone() {
            let mut ids = Vec::new();
            tokenizer.encode_with_control(case["prompt_text"].as_str().unwrap(), &mut ids);
            let prompt = ids.len();
            tokenizer.encode_with_control(case["target_text"].as_str().unwrap(), &mut ids);
            let scores = self.score(&ids);
            nll -= scores.logprobs[prompt - 1..].iter().map(|&x| f64::from(x)).sum::<f64>();
            count += ids.len() - prompt;
        }
        (nll / count as f64).exp()
    }

    /// Runs the command in this state.
    fn evaluate(&mut self, more: &[&str]) -> Result<Report> {
        self.engine = None;
        let lines: Vec<String> = self.cases.iter().map(Value::to_string).collect();
        std::fs::write(self.path("cases"), lines.join("\n")).unwrap();
        std::fs::write(self.path("thresholds"), self.thresholds.to_string()).unwrap();
        let paths = ["m.gturbo", "cases", "reference", "thresholds"].map(|name| self.path(name));
        let mut line = vec!["evaluate".to_owned()];
        for (name, path) in ["--model", "--cases", "--reference", "--thresholds"].iter().zip(paths) {
            line.extend([(*name).to_owned(), path.to_str().unwrap().to_owned()]);
        }
        if more.contains(&"--thresholds") {
            // Once only.
            line.truncate(line.len() - 2);
        }
        line.extend(["--max-new", "24"].iter().chain(more).map(|word| (*word).to_owned()));
        evaluate(&Cli::parse_from(line).options, Some(self.temp.path()))
    }

    fn refused(&mut self) -> String {
        format!("{:#}", self.evaluate(&[]).expect_err("was accepted"))
    }
}

fn missed(report: &Report) -> Vec<&str> {
    report.marks.iter().filter(|mark| mark.ok == Some(false)).map(|mark| mark.name.as_str()).collect()
}

#[test]
fn a_model_that_meets_its_marks() {
    let mut bench = Bench::new();
    let perplexity = bench.perplexity();
    let report = bench.evaluate(&["--show-failures", "9", "--threads", "1"]).unwrap();
    assert!(report.passed == Some(true), "{:?}", missed(&report));
    let counts: Vec<_> =
        report.marks.iter().filter_map(|mark| Some((mark.name.as_str(), mark.count?))).collect();
    assert_eq!(counts, [("known", (3, 3)), ("other", (1, 4)), ("thoughts", (0, 1)), ("no thoughts", (6, 6))]);
    let found = report.marks.iter().find(|mark| mark.name == "perplexity").unwrap().value;
    assert!((found / perplexity - 1.0).abs() < 1e-9, "{found} {perplexity}");
    assert_eq!((report.reference.positions, report.reference.scored), (11, 9));
    assert!(report.reference.max_logprob_error < 1e-5 && report.reference.top1 == 1.0);
    let mut wrong: Vec<_> = report.failures.iter().map(|f| (f.id.as_str(), f.reason.as_str())).collect();
    wrong.sort_unstable();
    assert_eq!(wrong[1..], [("call", "wrong"), ("endless", "wrong")]);
    assert_eq!((wrong.len(), wrong[0].0), (3, "after a result"));
    let endless = report.failures.iter().find(|f| f.id == "endless").unwrap();
    assert!(endless.got.ends_with("(did not come to an end)"), "{}", endless.got);
    assert_eq!(report.router.len(), 12);
    assert!(report.router.iter().all(|s| (0.5..=1.0).contains(&s.evenness)), "{:?}", report.router);
    assert!(report.cost.read_tokens > 0 && report.cost.made_tokens > 0);
    let mut printed = Vec::new();
    report.print(&mut printed).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    for line in [
        "known                        3/3   100.00 %  >= 100.00 %  100.00 %  ok\n",
        "other                        1/4    25.00 %   >= 25.00 %   90.00 %  below goal\n",
    ] {
        assert!(printed.contains(line), "{printed}");
    }

    // Several engines, the same figures; fewer cases; a trace with every token of some conversations.
    let trace = bench.path("trace.csv");
    let trace_option = ["--routing-trace", trace.to_str().unwrap(), "--trace-tokens", "60"];
    let again = bench.evaluate(&[&["--workers", "3"], &trace_option[..]].concat()).unwrap();
    assert_eq!(
        again.marks[..4].iter().map(|m| m.count).collect::<Vec<_>>(),
        counts.iter().map(|c| Some(c.1)).collect::<Vec<_>>()
    );
    let few = bench.evaluate(&["--limit", "1"]).unwrap();
    assert_eq!(few.cost.cases, 2);
    let rows = std::fs::read_to_string(trace).unwrap();
    let mut lines = rows.lines();
    assert_eq!(lines.next(), Some("step,layer,expert"));
    let rows: Vec<Vec<usize>> =
        lines.map(|line| line.split(',').map(|n| n.parse().unwrap()).collect()).collect();
    let steps = rows.iter().map(|row| row[0]).max().unwrap() + 1;
    assert!((60..200).contains(&steps), "{steps}");
    assert_eq!(rows.len(), steps * 12 * 4);
    assert!(rows.iter().all(|row| row[1] < 12 && row[2] < 16));
}

#[test]
fn each_missed_mark_fails_the_whole() {
    let mut bench = Bench::new();
    // The numbers of a model that read another first word.
    let (ids, other) = (vec![2, 105, 20, 300, 41, 7, 7, 511], vec![2, 104, 20, 300, 41, 7, 7, 511]);
    let (right, mut wrong) = (bench.reference(std::slice::from_ref(&ids)), bench.reference(&[other]));
    wrong.ids = right.ids.clone();
    wrong.logprob[1] = right.logprob[1];
    std::fs::write(bench.path("reference"), wrong.bytes()).unwrap();
    let report = bench.evaluate(&[]).unwrap();
    assert_eq!(report.passed, Some(false));
    assert_eq!(missed(&report), ["delta-NLL", "KL", "top-1"]);

    std::fs::write(bench.path("reference"), right.bytes()).unwrap();
    bench.thresholds["groups"]["other"]["floor"] = json!(0.5);
    bench.thresholds["thoughts"]["floor"] = json!(0.99);
    bench.thresholds["perplexity_max"] = json!(1.5);
    let report = bench.evaluate(&[]).unwrap();
    assert_eq!(report.passed, Some(false));
    assert_eq!(missed(&report), ["other", "thoughts", "perplexity"]);
}

#[test]
fn without_thresholds_all_is_reported_and_nothing_judged() {
    let mut bench = Bench::new();
    // A group that has no threshold, and figures that would miss theirs.
    bench.cases[1]["group"] = json!("new");
    bench.thresholds["perplexity_max"] = json!(0.5);
    let refused = bench.refused();
    assert!(refused.contains("no threshold for the group new"), "{refused}");
    let report = bench.evaluate(&["--thresholds", "none"]).unwrap();
    assert_eq!((report.passed, missed(&report)), (None, vec![]));
    let groups: Vec<_> = report.marks.iter().map(|mark| (mark.name.as_str(), mark.count)).collect();
    assert_eq!(groups[..2], [("known", Some((2, 2))), ("new", Some((1, 1)))]);
    let mut printed = Vec::new();
    report.print(&mut printed).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert!(printed.contains("new                          1/1   100.00 %\n"), "{printed}");
    assert!(!printed.contains("FAIL") && !printed.contains("ok\n"), "{printed}");
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["passed"].is_null() && json["marks"][0]["threshold"].is_null(), "{json}");
    // It is the word that says so: a file that is not there is still an error.
    let missing = bench.path("none");
    let error = bench.evaluate(&["--thresholds", missing.to_str().unwrap()]).err().unwrap();
    assert!(error.to_string().starts_with("cannot read the thresholds"), "{error}");
}

#[test]
fn what_cannot_be_judged_is_refused() {
    type Spoil = fn(&mut Bench);
    let table: [(Spoil, &[&str]); 15] = [
        (|b| b.cases[4]["prompt_text"] = json!("<bos><|turn>user\nQuestion 3?"), &["case endless: ", "\"3?"]),
        (|b| b.cases[0]["thinking"] = json!(true), &["case Question 0?: prompt_text is not our prompt"]),
        (|b| b.cases[4]["target_text"] = json!("Yes"), &["case endless: ", "stops an answer"]),
        (|b| b.cases[4]["target_text"] = json!("No<turn|>"), &["reads back as \"No\""]),
        (
            |b| b.cases[5]["target_text"] = json!("<|tool_call>call:clok{}<tool_call|><|tool_response>"),
            &["cannot be read"],
        ),
        (|b| b.cases[0]["expect"]["any"] = json!(["no"]), &["case Question 0?", "fails its own rule"]),
        (|b| b.cases[0]["expect"]["kind"] = json!("same"), &["case Question 0?", "expect", "same"]),
        (|b| b.cases[1]["id"] = json!("Question 0?"), &["two cases are called Question 0?"]),
        (|b| b.cases[1]["group"] = json!("new"), &["no threshold for the group new (case Question 12?)"]),
        (
            |b| b.thresholds["groups"]["old"] = json!({"floor": 0.5, "goal": 0.5}),
            &["a threshold for old, which has no cases"],
        ),
        (|b| b.thresholds["groups"]["other"] = json!(0.5), &["the thresholds", "expected struct Bar"]),
        (|b| b.thresholds["groups"]["known"]["goal"] = json!(95), &["groups.known.goal: 95 is no share"]),
        (|b| b.thresholds["thoughts"]["floor"] = json!(-0.1), &["thoughts.floor: -0.1 is no share"]),
        (|b| drop(b.cases.pop()), &["no case thinks"]),
        (|b| b.cases.clear(), &["has no cases"]),
    ];
    let mut bench = Bench::new();
    for (spoil, wanted) in table {
        let kept = (bench.cases.clone(), bench.thresholds.clone());
        spoil(&mut bench);
        let refused = bench.refused();
        assert!(wanted.iter().all(|part| refused.contains(part)), "{refused}");
        (bench.cases, bench.thresholds) = kept;
    }
    std::fs::write(bench.path("reference"), "none").unwrap();
    assert!(bench.refused().contains("the reference"));
    std::fs::remove_file(bench.path("reference")).unwrap();
    assert!(bench.refused().contains("cannot read the reference"));
}

#[test]
fn limits_take_evenly() {
    let case = |i: u32| reply::tests::case_of(format!("{i}"), vec![2, i]);
    let ids = |limit| -> Vec<String> {
        chosen((0..10).map(case).collect(), limit).unwrap().into_iter().map(|case| case.id).collect()
    };
    assert_eq!(ids(Some(3)), ["0", "4", "7"]);
    assert_eq!(ids(Some(1)), ["0"]);
    assert_eq!(ids(Some(10)).len(), 10);
    assert_eq!(ids(Some(99)).len(), 10);
    assert_eq!(ids(None).len(), 10);
    assert!(chosen(Vec::new(), Some(0)).is_err());
}
