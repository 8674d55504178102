//! A row of the result: what one process at one budget reached, beside what the machine allowed meanwhile.

use super::limits::{self};
use super::protocol::{End, ReadsIn, Run};
use fieldfare::measure::bound::{self, Rates};
use fieldfare::measure::median;
use fieldfare::measure::traffic::Traffic;
use serde::Serialize;

/// What a row is about.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Case {
    /// The budget as it was asked for, `auto` or bytes.
    pub(super) memory: String,
    /// The bound that was kept to: the budget, or what was free; `None` where nothing is known.
    pub(super) memory_bytes: Option<u64>,
    /// Tokens of the prompt.
    pub(super) prompt_tokens: usize,
    /// Tokens after it.
    pub(super) decode_tokens: usize,
    /// Measured runs.
    pub(super) runs: usize,
}

/// A row: measured, or why not.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    /// What was asked.
    #[serde(flatten)]
    pub(super) case: Case,
    /// What came of it.
    #[serde(flatten)]
    pub(super) measured: Option<Measured>,
    /// Why nothing did.
    pub(super) error: Option<String>,
}

/// What was measured. Rates are a second; medians over the runs where nothing else is said.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Measured {
    /// Slots of a layer at the end, of all layers by their number.
    pub(super) slots_per_layer: f64,
    /// Tokens generated.
    pub(super) decode_tokens_per_second: f64,
    /// The same by run.
    pub(super) decode_tokens_per_second_runs: Vec<f64>,
    /// How far the runs are apart: the fastest less the slowest, as a share of the median.
    pub(super) decode_spread: f64,
    /// What no program could beat at the rates measured around each run, with that run's share of hits.
    pub(super) decode_bound_tokens_per_second: f64,
    /// The median of each run's ratio of the two.
    pub(super) decode_bound_ratio: f64,
    /// Runs that were faster than their bound: what was measured around them was too little (something else ran at that
    /// moment), and their bound was raised to what they showed to be possible.
    pub(super) decode_bounds_raised: usize,
    /// Tokens of the prompt.
    pub(super) prefill_tokens_per_second: f64,
    /// The same by run.
    pub(super) prefill_tokens_per_second_runs: Vec<f64>,
    /// As for decoding.
    pub(super) prefill_spread: f64,
    /// As for decoding: one pass over the experts used, or the arithmetic, whichever takes longer.
    pub(super) prefill_bound_tokens_per_second: f64,
    /// The median of each run's ratio.
    pub(super) prefill_bound_ratio: f64,
    /// As for decoding.
    pub(super) prefill_bounds_raised: usize,
    /// Bytes of experts read for a prompt.
    pub(super) prefill_read_bytes: f64,
    /// Different experts that the prompt used, of all layers.
    pub(super) prefill_experts_used: u64,
    /// From the start of the process to the first token.
    pub(super) time_to_first_token_seconds: f64,
    /// Reading the resident weights and those experts at the disk's rate.
    pub(super) first_token_read_seconds: f64,
    /// Whether the model's files were dropped from the page cache before.
    pub(super) cold: bool,
    /// Share of a generated token's experts that were held.
    pub(super) hit_rate: f64,
    /// Bytes read for a generated token.
    pub(super) read_bytes_per_token: f64,
    /// While at least one of those reads was under way; `None` if there were none.
    pub(super) read_bytes_per_second: Option<f64>,
    /// That as a share of what the disk gave around the same run.
    pub(super) read_disk_ratio: Option<f64>,
    /// Share of the time of generated tokens in which at least one read was under way.
    pub(super) read_time_share: f64,
    /// Share of the experts chosen that had been guessed, held or not; `None` where nothing was guessed.
    pub(super) look_ahead_recall: Option<f64>,
    /// Experts of a generated token that were guessed and given to the readers.
    pub(super) look_ahead_guesses_per_token: f64,
    /// Of these, ones that were wanted: of a token's missing experts.
    pub(super) look_ahead_used_per_token: f64,
    /// Bytes read for a generated token and not wanted; part of `read_bytes_per_token`.
    pub(super) look_ahead_wasted_bytes_per_token: f64,
    /// The same rate for the reads of the prompt.
    pub(super) prefill_read_bytes_per_second: Option<f64>,
    /// And its share.
    pub(super) prefill_read_disk_ratio: Option<f64>,
    /// What the disk gave around the runs, at the best number of reads at once.
    pub(super) disk_bytes_per_second: f64,
    /// What memory gave around the runs, with all threads.
    pub(super) bandwidth_bytes_per_second: f64,
    /// Multiplications of many rows around the runs.
    pub(super) products_per_second: f64,
    /// Share of slots and copied weights in huge pages.
    pub(super) huge_page_share: Option<f64>,
    /// The most that was ever resident, as the process saw it.
    pub(super) peak_rss_bytes: Option<u64>,
    /// The control group's limit; `None` without one.
    pub(super) cgroup_limit_bytes: Option<u64>,
    /// The most that the kernel counted in it.
    pub(super) cgroup_peak_bytes: Option<u64>,
    /// How experts were read.
    pub(super) reads: ReadsIn,
    /// Threads that computed.
    pub(super) threads: usize,
    /// Their instruction set.
    pub(super) isa: String,
    /// Where the memory was meant to go.
    pub(super) plan: serde_json::Value,
}

/// What a process told until its first token.
#[derive(Debug, Clone, Copy)]
pub(super) struct First {
    /// From its start, without what only the measurement took.
    pub(super) seconds: f64,
    /// Bytes of experts read.
    pub(super) expert_bytes: u64,
    /// Different experts used.
    pub(super) experts_used: u64,
}

/// All that is known of a row's process.
pub(super) struct Story<'a> {
    /// What tokens need.
    pub(super) model: &'a Traffic,
    /// Bytes of the resident weights.
    pub(super) core_bytes: u64,
    /// What was asked.
    pub(super) case: &'a Case,
    /// Its start.
    pub(super) first: First,
    /// Its runs.
    pub(super) runs: &'a [Run],
    /// The machine before the first run, and after each.
    pub(super) rates: &'a [Rates],
    /// Its end.
    pub(super) end: End,
    /// Limit and peak of its control group.
    pub(super) group: Option<(u64, Option<u64>)>,
    /// Whether it began with nothing in the page cache.
    pub(super) cold: bool,
}

/// Puts a row together.
pub(super) fn measured(story: Story<'_>) -> Measured {
    let Story { model, case, first, runs, end, .. } = story;
    let tokens = case.decode_tokens as f64;
    let middle = |value: &dyn Fn(usize) -> f64| {
        median(&(0..runs.len()).map(value).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    let rates: Vec<Rates> = story.rates.windows(2).map(|pair| limits::between(&pair[0], &pair[1])).collect();
    let hits: Vec<f64> = runs.iter().map(hit_rate).collect();
    let decode = Held::new(runs.iter().zip(&rates).zip(&hits).map(|((run, rates), &hits)| {
        let (prompt, after) = (case.prompt_tokens, case.decode_tokens);
        let seconds = bound::decode_seconds_per_token(model, prompt, after, hits, rates);
        (tokens / run.decode_seconds, 1.0 / seconds)
    }));
    // What slots hold before a prompt need not be read for it.
    let missing = first.experts_used - (end.slots as u64).min(first.experts_used);
    let prompt = case.prompt_tokens as f64;
    let prefill = Held::new(runs.iter().zip(&rates).map(|(run, rates)| {
        let used = first.experts_used;
        let seconds = bound::prompt_seconds(model, case.prompt_tokens, used, missing, rates);
        (prompt / run.prefill_seconds, prompt / seconds)
    }));
    let all_rates = |rate: fn(&Rates) -> f64| {
        median(&story.rates.iter().map(rate).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    let disk = all_rates(|rates| rates.disk);
    let reads = Reading::new(&rates, runs.iter().map(|run| (run.read_bytes, run.read_seconds)));
    let prefill_reads =
        Reading::new(&rates, runs.iter().map(|run| (run.prefill_bytes, run.prefill_read_seconds)));
    let start = Rates { memory: f64::NAN, disk, products: f64::NAN };
    Measured {
        slots_per_layer: end.slots as f64 / end.layers.max(1) as f64,
        decode_tokens_per_second: decode.median(),
        decode_spread: decode.spread(),
        decode_bound_tokens_per_second: decode.bound(),
        decode_bound_ratio: decode.ratio(),
        decode_bounds_raised: decode.raised,
        decode_tokens_per_second_runs: decode.reached,
        prefill_tokens_per_second: prefill.median(),
        prefill_spread: prefill.spread(),
        prefill_bound_tokens_per_second: prefill.bound(),
        prefill_bound_ratio: prefill.ratio(),
        prefill_bounds_raised: prefill.raised,
        prefill_tokens_per_second_runs: prefill.reached,
        prefill_read_bytes: middle(&|run| runs[run].prefill_bytes as f64),
        prefill_experts_used: first.experts_used,
        time_to_first_token_seconds: first.seconds,
        first_token_read_seconds: bound::first_token_seconds(story.core_bytes, first.expert_bytes, &start),
        cold: story.cold,
        hit_rate: median(&hits).unwrap_or(f64::NAN),
        read_bytes_per_token: middle(&|run| runs[run].read_bytes as f64 / tokens),
        read_bytes_per_second: reads.rate(),
        read_disk_ratio: reads.ratio(),
        read_time_share: middle(&|run| runs[run].read_seconds / runs[run].decode_seconds),
        look_ahead_recall: recall(runs),
        look_ahead_guesses_per_token: middle(&|run| runs[run].ahead_guesses as f64 / tokens),
        look_ahead_used_per_token: middle(&|run| runs[run].ahead_used as f64 / tokens),
        look_ahead_wasted_bytes_per_token: middle(&|run| runs[run].ahead_wasted_bytes as f64 / tokens),
        prefill_read_bytes_per_second: prefill_reads.rate(),
        prefill_read_disk_ratio: prefill_reads.ratio(),
        disk_bytes_per_second: disk,
        bandwidth_bytes_per_second: all_rates(|rates| rates.memory),
        products_per_second: all_rates(|rates| rates.products),
        huge_page_share: end.huge_page_share,
        peak_rss_bytes: end.peak_rss_bytes,
        cgroup_limit_bytes: story.group.map(|(limit, _)| limit),
        cgroup_peak_bytes: story.group.and_then(|(_, peak)| peak),
        reads: end.reads,
        threads: end.threads,
        isa: end.isa,
        plan: end.plan,
    }
}

/// What the runs reached, beside what the machine allowed.
struct Held {
    /// Reached, by run.
    reached: Vec<f64>,
    /// Allowed, by run: never less than what was reached.
    allowed: Vec<f64>,
    /// Runs whose bound had to be raised for that.
    raised: usize,
}

impl Held {
    /// Of each run's rate and bound. A run that was faster than its bound shows that the machine can do more than it
    /// was measured to: the bound is then what the run did.
    fn new(runs: impl Iterator<Item = (f64, f64)>) -> Self {
        let (reached, measured): (Vec<f64>, Vec<f64>) = runs.unzip();
        let raised = reached.iter().zip(&measured).filter(|(reached, bound)| reached > bound).count();
        let allowed = reached.iter().zip(&measured).map(|(&reached, &bound)| bound.max(reached)).collect();
        Self { reached, allowed, raised }
    }

    fn median(&self) -> f64 {
        median(&self.reached).unwrap_or(f64::NAN)
    }

    fn bound(&self) -> f64 {
        median(&self.allowed).unwrap_or(f64::NAN)
    }

    /// The median of each run's own.
    fn ratio(&self) -> f64 {
        let ratios: Vec<f64> = self.reached.iter().zip(&self.allowed).map(|(a, b)| a / b).collect();
        median(&ratios).unwrap_or(f64::NAN)
    }

    /// The fastest run less the slowest, as a share of the median.
    fn spread(&self) -> f64 {
        let (low, high) = self
            .reached
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), &rate| (low.min(rate), high.max(rate)));
        (high - low) / self.median()
    }
}

/// The rate of reads while any were under way, beside the disk's, of the runs that had some.
struct Reading(Vec<(f64, f64)>);

impl Reading {
    /// Of each run's bytes and seconds.
    fn new(rates: &[Rates], runs: impl Iterator<Item = (u64, f64)>) -> Self {
        let rate = |((bytes, seconds), rates): ((u64, f64), &Rates)| (bytes as f64 / seconds, rates.disk);
        let some = |((bytes, seconds), _): &((u64, f64), &Rates)| *bytes > 0 && *seconds > 0.0;
        Self(runs.zip(rates).filter(some).map(rate).collect())
    }

    fn rate(&self) -> Option<f64> {
        median(&self.0.iter().map(|(rate, _)| *rate).collect::<Vec<_>>())
    }

    fn ratio(&self) -> Option<f64> {
        median(&self.0.iter().map(|(rate, disk)| rate / disk).collect::<Vec<_>>())
    }
}

/// Share of the experts chosen after a guess that were guessed, in all runs.
fn recall(runs: &[Run]) -> Option<f64> {
    let sum = |count: fn(&Run) -> u64| runs.iter().map(count).sum::<u64>();
    let chosen = sum(|run| run.ahead_chosen);
    (chosen > 0).then(|| sum(|run| run.ahead_recalled) as f64 / chosen as f64)
}

/// Share of a run's generated tokens' experts that were held; all of them if there were none.
fn hit_rate(run: &Run) -> f64 {
    let all = run.hits + run.misses;
    if all == 0 { 1.0 } else { run.hits as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(memory: f64, disk: f64) -> Rates {
        Rates { memory, disk, products: 1e12 }
    }

    #[test]
    fn a_row_pairs_each_run_with_the_machine_around_it() {
        let model = Traffic::full_size();
        let case = Case {
            memory: "2GiB".into(),
            memory_bytes: Some(2 << 30),
            prompt_tokens: 100,
            decode_tokens: 10,
            runs: 2,
        };
        let run = Run {
            prefill_seconds: 5.0,
            prefill_bytes: 6_000_000_000,
            prefill_read_seconds: 4.0,
            decode_seconds: 4.0,
            hits: 800,
            misses: 1600,
            read_bytes: 1600 * model.stride,
            read_seconds: 3.0,
            ahead_guesses: 30,
            ahead_used: 20,
            ahead_wasted_bytes: 5_000,
            ahead_chosen: 200,
            ahead_recalled: 130,
        };
        let slower = Run { decode_seconds: 5.0, hits: 2400, misses: 0, read_seconds: 0.0, ..run };
        let machine = [rates(30e9, 2e9), rates(50e9, 2e9), rates(50e9, 4e9)];
        let row = measured(Story {
            model: &model,
            core_bytes: 1_000,
            case: &case,
            first: First { seconds: 9.0, expert_bytes: 3_000, experts_used: 100 },
            runs: &[run, slower],
            rates: &machine,
            end: End {
                slots: 60,
                layers: 30,
                huge_page_share: Some(1.0),
                peak_rss_bytes: Some(5),
                reads: ReadsIn::Direct,
                threads: 2,
                isa: "avx2".into(),
                limit_bytes: None,
                plan: serde_json::Value::Null,
            },
            group: Some((2 << 30, Some(11))),
            cold: true,
        });
        assert_eq!(row.decode_tokens_per_second_runs, [2.5, 2.0]);
        assert!((row.decode_tokens_per_second - 2.25).abs() < 1e-12);
        let bound = |hits, rates| 1.0 / bound::decode_seconds_per_token(&model, 100, 10, hits, &rates);
        let (first, second) = (bound(1.0 / 3.0, rates(40e9, 2e9)), bound(1.0, rates(50e9, 3e9)));
        assert!((row.decode_bound_tokens_per_second - f64::midpoint(first, second)).abs() < 1e-9);
        assert!((row.decode_bound_ratio - f64::midpoint(2.5 / first, 2.0 / second)).abs() < 1e-9);
        assert_eq!((row.slots_per_layer, row.prefill_tokens_per_second), (2.0, 20.0));
        assert_eq!(row.read_bytes_per_second, Some(1600.0 * model.stride as f64 / 3.0), "runs that read");
        let ratio = row.read_disk_ratio.unwrap();
        assert!((ratio - 1600.0 * model.stride as f64 / 3.0 / 2e9).abs() < 1e-9, "{ratio}");
        assert_eq!((row.look_ahead_recall, row.read_time_share), (Some(0.65), f64::midpoint(0.75, 0.0)));
        assert_eq!((row.look_ahead_guesses_per_token, row.look_ahead_used_per_token), (3.0, 2.0));
        assert_eq!(row.look_ahead_wasted_bytes_per_token, 500.0);
        assert_eq!(row.prefill_read_bytes_per_second, Some(1.5e9));
        // 2 GB/s around the first run, 3 around the second.
        assert!((row.prefill_read_disk_ratio.unwrap() - f64::midpoint(0.75, 0.5)).abs() < 1e-12);
        assert!((row.decode_spread - 0.5 / 2.25).abs() < 1e-12 && row.prefill_spread == 0.0);
        assert_eq!((row.decode_bounds_raised, row.prefill_bounds_raised), (0, 0));
        assert_eq!((row.disk_bytes_per_second, row.bandwidth_bytes_per_second), (2e9, 50e9));
        assert!((row.first_token_read_seconds - 4_000.0 / 2e9).abs() < 1e-15);
        assert_eq!((row.cgroup_limit_bytes, row.cgroup_peak_bytes), (Some(2 << 30), Some(11)));
        // 40 of the 100 experts are not held at the start of a prompt.
        let prompt = bound::prompt_seconds(&model, 100, 100, 40, &rates(40e9, 2e9));
        let second = bound::prompt_seconds(&model, 100, 100, 40, &rates(50e9, 3e9));
        let mean = f64::midpoint(100.0 / prompt, 100.0 / second);
        assert!((row.prefill_bound_tokens_per_second - mean).abs() < 1e-9);
    }

    #[test]
    fn a_run_beyond_its_bound_raises_it_and_says_so() {
        let held = Held::new([(8.0, 10.0), (12.0, 10.0), (9.0, 12.0)].into_iter());
        assert_eq!((held.raised, &held.allowed[..]), (1, &[10.0, 12.0, 12.0][..]));
        assert_eq!((held.median(), held.bound(), held.ratio()), (9.0, 12.0, 0.8));
        assert!((held.spread() - 4.0 / 9.0).abs() < 1e-12);
        let held = Held::new([(12.0, 10.0)].into_iter());
        assert_eq!((held.raised, held.ratio(), held.spread()), (1, 1.0, 0.0));
    }
}
