//! Counters of the server, as Prometheus reads them. Label sets are small and closed; no text of anybody's is in them.

use crate::door::{Outcome, Readings};
use fieldfare::chat::{CallErrorKind, Recovery};
use fieldfare::engine::{Finish, Generation, Reuse};
use fieldfare::sys::memory;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Where lines of the log go.
pub type Log = Box<dyn Fn(&str) + Send + Sync>;

/// A count that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds.
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Reads.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets of durations, in seconds.
const BOUNDS: [f64; 12] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0];

/// Durations by size.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One more than bounds: the last is for all beyond.
    counts: [Counter; BOUNDS.len() + 1],
    micros: Counter,
}

impl Histogram {
    /// Takes in a duration in seconds.
    pub(crate) fn observe(&self, seconds: f64) {
        let bucket = BOUNDS.iter().position(|&bound| seconds <= bound).unwrap_or(BOUNDS.len());
        self.counts[bucket].add(1);
        self.micros.add((seconds.max(0.0) * 1e6) as u64);
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} histogram\n");
        let mut sum = 0;
        for (count, bound) in self.counts.iter().zip(BOUNDS) {
            sum += count.get();
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {sum}");
        }
        sum += self.counts[BOUNDS.len()].get();
        let seconds = self.micros.get() as f64 / 1e6;
        let _ = write!(out, "{name}_bucket{{le=\"+Inf\"}} {sum}\n{name}_sum {seconds}\n{name}_count {sum}\n");
    }
}

/// The endpoints, as a label.
pub(crate) const ENDPOINTS: [&str; 12] = [
    "root",
    "health",
    "models",
    "chat",
    "completions",
    "tokenize",
    "detokenize",
    "template",
    "stats",
    "metrics",
    "preflight",
    "other",
];

/// All that is counted, and the log.
pub(crate) struct Metrics {
    log: Log,
    /// By endpoint and class of status.
    requests: [[Counter; 5]; ENDPOINTS.len()],
    /// Clients that left before their answer was complete.
    pub(crate) left: Counter,
    /// Requests that found the line full.
    pub(crate) refused: Counter,
    /// Tools whose schema was replaced by an open object.
    pub(crate) opened_tools: Counter,
    /// From the request to the engine.
    pub(crate) queue_wait: Histogram,
    /// From the request to the first token.
    pub(crate) first_token: Histogram,
    /// From the request to the end.
    duration: Histogram,
    /// By what of a prompt was at hand.
    reuse: [Counter; Reuse::ALL.len()],
    prompt_tokens: Counter,
    cached_tokens: Counter,
    made_tokens: Counter,
    reasoning_tokens: Counter,
    /// From one token of an answer to the next, its mean.
    each_token: Histogram,
    calls: Counter,
    /// By what had to be put right.
    recovered_calls: [Counter; Recovery::ALL.len()],
    /// By what was wrong.
    failed_calls: [Counter; CallErrorKind::ALL.len()],
    prefill_micros: Counter,
    decode_micros: Counter,
    readings: Mutex<Readings>,
    /// Tokens made, those of running answers too.
    pub(crate) live_tokens: Counter,
    /// How far the prompt that is being read has come, and its length.
    prefill: Mutex<(usize, usize)>,
}

impl Metrics {
    /// Nothing counted yet.
    pub(crate) fn new(log: Log) -> Self {
        Self {
            log,
            requests: Default::default(),
            left: Counter::default(),
            refused: Counter::default(),
            opened_tools: Counter::default(),
            queue_wait: Histogram::default(),
            first_token: Histogram::default(),
            duration: Histogram::default(),
            reuse: Default::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            made_tokens: Counter::default(),
            reasoning_tokens: Counter::default(),
            each_token: Histogram::default(),
            calls: Counter::default(),
            recovered_calls: Default::default(),
            failed_calls: Default::default(),
            prefill_micros: Counter::default(),
            decode_micros: Counter::default(),
            readings: Mutex::default(),
            live_tokens: Counter::default(),
            prefill: Mutex::default(),
        }
    }

    /// So much of a prompt is read.
    pub(crate) fn reading(&self, done: usize, total: usize) {
        *self.prefill.lock().unwrap_or_else(PoisonError::into_inner) = (done, total);
    }

    /// What the page shows: figures of this moment.
    pub(crate) fn live(&self) -> serde_json::Value {
        let (done, total) = *self.prefill.lock().unwrap_or_else(PoisonError::into_inner);
        let readings = *self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let process = memory::process();
        serde_json::json!({
            "tokens": self.live_tokens.get(),
            "prefill": { "done": done, "total": total },
            "sharing": readings.sharing,
            "memory": { "resident": process.rss, "peak": process.peak_rss },
            "experts": { "hits": readings.hits, "misses": readings.misses, "bytes_read": readings.bytes_read },
        })
    }

    /// A line for the log. Never with text of a prompt or an answer.
    pub(crate) fn log(&self, line: &str) {
        (self.log)(line);
    }

    /// A request was answered with this status.
    pub(crate) fn request(&self, endpoint: &str, status: u16) {
        let last = ENDPOINTS.len() - 1;
        let row = ENDPOINTS.iter().position(|name| *name == endpoint).unwrap_or(last);
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.requests[row][class].add(1);
    }

    /// A generation ended.
    pub(crate) fn generated(&self, outcome: &Outcome, since: &Instant) {
        let generation = &outcome.generation;
        let micros = |seconds: f64| (seconds.max(0.0) * 1e6) as u64;
        self.duration.observe(since.elapsed().as_secs_f64());
        for (count, _) in self.reuse.iter().zip(Reuse::ALL).filter(|(_, reuse)| *reuse == generation.reuse) {
            count.add(1);
        }
        self.prompt_tokens.add(generation.prompt_tokens as u64);
        self.cached_tokens.add(generation.cached_tokens as u64);
        self.made_tokens.add(generation.token_ids.len() as u64);
        self.reasoning_tokens.add(outcome.reasoning_tokens as u64);
        let after_first = generation.token_ids.len().saturating_sub(1);
        if after_first > 0 {
            self.each_token.observe(generation.timings.decode_seconds / after_first as f64);
        }
        self.calls.add(generation.tool_calls.len() as u64);
        for kind in generation.tool_calls.iter().flat_map(|call| &call.recovered) {
            let counts = self.recovered_calls.iter().zip(Recovery::ALL);
            counts.filter(|(_, other)| other == kind).for_each(|(count, _)| count.add(1));
        }
        if let Some(error) = &generation.call_error {
            let counts = self.failed_calls.iter().zip(CallErrorKind::ALL);
            counts.filter(|(_, kind)| *kind == error.kind).for_each(|(count, _)| count.add(1));
        }
        self.prefill_micros.add(micros(generation.timings.prefill_seconds));
        self.decode_micros.add(micros(generation.timings.decode_seconds));
        self.log(&summary(generation, since));
    }

    /// The newest readings of the expert store.
    pub(crate) fn store(&self, readings: Readings) {
        *self.readings.lock().unwrap_or_else(PoisonError::into_inner) = readings;
    }

    /// The page, in text format 0.0.4.
    pub(crate) fn page(&self, running: usize, waiting: usize, grammar_bytes: u64) -> String {
        let mut out = String::with_capacity(8 << 10);
        one(
            &mut out,
            "build_info",
            "gauge",
            "Always 1.",
            &format!("{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
        );
        let _ = write!(
            out,
            "# HELP fieldfare_requests_total Requests by endpoint and class of status.\n# TYPE fieldfare_requests_total counter\n"
        );
        for (endpoint, row) in ENDPOINTS.iter().zip(&self.requests) {
            for (class, count) in row.iter().enumerate().filter(|(_, count)| count.get() > 0) {
                let (class, count) = (class + 1, count.get());
                let labels = format!("endpoint=\"{endpoint}\",status=\"{class}xx\"");
                let _ = writeln!(out, "fieldfare_requests_total{{{labels}}} {count}");
            }
        }
        gauge(&mut out, "requests_running", "Requests that the engine works on.", running as f64);
        gauge(&mut out, "requests_waiting", "Requests in the line.", waiting as f64);
        let readings = *self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = |micros: &Counter| micros.get() as f64 / 1e6;
        let counts = [
            ("disconnects_total", "Clients that left before the end.", self.left.get() as f64),
            ("queue_refusals_total", "Requests that found the line full.", self.refused.get() as f64),
            ("prompt_tokens_total", "Tokens of prompts.", self.prompt_tokens.get() as f64),
            ("cached_tokens_total", "Of these, found in the KV cache.", self.cached_tokens.get() as f64),
            ("generated_tokens_total", "Tokens made.", self.made_tokens.get() as f64),
            ("reasoning_tokens_total", "Of these, in thoughts.", self.reasoning_tokens.get() as f64),
            ("prefill_seconds_total", "Time in prompts.", seconds(&self.prefill_micros)),
            ("decode_seconds_total", "Time in answers.", seconds(&self.decode_micros)),
            ("tool_calls_total", "Tool calls read.", self.calls.get() as f64),
            ("tools_opened_total", "Tools declared without their schema.", self.opened_tools.get() as f64),
            ("expert_hits_total", "Experts found in a slot.", readings.hits as f64),
            ("expert_misses_total", "Experts that were read.", readings.misses as f64),
            ("expert_read_bytes_total", "Bytes read of layer files.", readings.bytes_read as f64),
            ("expert_read_seconds_total", "Time in these reads.", readings.read_seconds),
        ];
        for (name, help, value) in counts {
            one(&mut out, name, "counter", help, &format!(" {value}"));
        }
        kinds(
            &mut out,
            "tool_calls_recovered_total",
            "What was put right in tool calls.",
            self.recovered_calls.iter().zip(Recovery::ALL.map(Recovery::name)),
        );
        kinds(
            &mut out,
            "tool_calls_failed_total",
            "Tool calls that could not be read.",
            self.failed_calls.iter().zip(CallErrorKind::ALL.map(CallErrorKind::name)),
        );
        let _ = write!(
            out,
            "# HELP fieldfare_prompts_total Prompts by what of them was kept, or why not more.\n# TYPE fieldfare_prompts_total counter\n"
        );
        for (count, reuse) in self.reuse.iter().zip(Reuse::ALL) {
            let _ = writeln!(out, "fieldfare_prompts_total{{reuse=\"{}\"}} {}", reuse.name(), count.get());
        }
        let kept = readings.conversations;
        one(
            &mut out,
            "conversations_evicted_total",
            "counter",
            "Conversations that gave way in memory.",
            &format!(" {}", kept.evicted),
        );
        let gauges = [
            ("conversations", "Conversations in memory.", kept.in_memory as f64),
            ("conversation_files", "Conversations in files.", kept.on_disk as f64),
            ("conversation_file_bytes", "Bytes of these files.", kept.disk_bytes as f64),
            ("kv_cache_bytes", "Bytes of keys and values of all conversations.", readings.kv_bytes as f64),
            ("grammar_bytes", "Memory counted for grammars of answers.", grammar_bytes as f64),
            ("expert_slots", "Slots of all layers for experts.", readings.slots as f64),
            ("parallel_most", "Texts that may share a step.", readings.sharing.most as f64),
            ("parallel_now", "Texts that may do so now.", readings.sharing.now as f64),
        ];
        for (name, help, value) in gauges {
            gauge(&mut out, name, help, value);
        }
        let sharing = readings.sharing;
        let trials = format!(" {}", sharing.trials);
        one(&mut out, "parallel_trials_total", "counter", "Times that sharing steps was measured.", &trials);
        let _ = write!(
            out,
            "# HELP fieldfare_parallel_tokens_per_second Steps of several texts and of one, as last measured.\n# TYPE fieldfare_parallel_tokens_per_second gauge\n"
        );
        for (texts, rate) in [("several", sharing.together), ("one", sharing.alone)] {
            if let Some(rate) = rate {
                let _ = writeln!(out, "fieldfare_parallel_tokens_per_second{{texts=\"{texts}\"}} {rate:.3}");
            }
        }
        if let Some(resident) = memory::process().rss {
            gauge(&mut out, "resident_memory_bytes", "Memory of the process.", resident as f64);
        }
        self.queue_wait.write(&mut out, "fieldfare_queue_wait_seconds", "From the request to the engine.");
        self.first_token.write(
            &mut out,
            "fieldfare_first_token_seconds",
            "From the request to the first token.",
        );
        self.each_token.write(&mut out, "fieldfare_token_seconds", "Mean time for a token after the first.");
        self.duration.write(
            &mut out,
            "fieldfare_request_seconds",
            "From the request to the end of its answer.",
        );
        out
    }
}

fn one(out: &mut String, name: &str, kind: &str, help: &str, rest: &str) {
    let _ = write!(
        out,
        "# HELP fieldfare_{name} {help}\n# TYPE fieldfare_{name} {kind}\nfieldfare_{name}{rest}\n"
    );
}

/// A counter by kind.
fn kinds<'a>(
    out: &mut String,
    name: &str,
    help: &str,
    counts: impl Iterator<Item = (&'a Counter, &'static str)>,
) {
    let _ = write!(out, "# HELP fieldfare_{name} {help}\n# TYPE fieldfare_{name} counter\n");
    for (count, kind) in counts {
        let _ = writeln!(out, "fieldfare_{name}{{kind=\"{kind}\"}} {}", count.get());
    }
}

fn gauge(out: &mut String, name: &str, help: &str, value: f64) {
    one(out, name, "gauge", help, &format!(" {value}"));
}

/// One line about an answer: counts and times only.
fn summary(generation: &Generation, since: &Instant) -> String {
    let why = match generation.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::Cancelled => "cancelled",
    };
    let (prompt, cached, made) =
        (generation.prompt_tokens, generation.cached_tokens, generation.token_ids.len());
    let seconds = since.elapsed().as_secs_f64();
    let reuse = generation.reuse.name();
    format!("answered: {prompt} prompt tokens ({cached} cached, {reuse}), {made} new, {why}, {seconds:.2} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_and_every_line_is_well_formed() {
        let metrics = Metrics::new(Box::new(|_| {}));
        for seconds in [0.001, 0.3, 1e9] {
            metrics.queue_wait.observe(seconds);
        }
        metrics.request("chat", 200);
        metrics.request("nonsense", 404);
        let page = metrics.page(1, 2, 3);
        assert!(page.contains("fieldfare_queue_wait_seconds_bucket{le=\"0.005\"} 1\n"), "{page}");
        assert!(page.contains("fieldfare_queue_wait_seconds_bucket{le=\"0.5\"} 2\n"), "{page}");
        assert!(page.contains("fieldfare_queue_wait_seconds_count 3\n"), "{page}");
        assert!(page.contains("fieldfare_requests_total{endpoint=\"other\",status=\"4xx\"} 1\n"), "{page}");
        assert!(page.contains("fieldfare_requests_waiting 2\n"), "{page}");
        for kind in ["recovered_total{kind=\"single_quotes\"} 0\n", "failed_total{kind=\"oversized\"} 0\n"] {
            assert!(page.contains(&format!("fieldfare_tool_calls_{kind}")), "{page}");
        }
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("fieldfare_") && value.parse::<f64>().is_ok(), "{line}");
        }
    }
}
