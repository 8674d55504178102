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
    /// What no program could beat at the rates measured around each run, with that run's share of hits.
    pub(super) decode_bound_tokens_per_second: f64,
    /// The median of each run's ratio of the two.
    pub(super) decode_bound_ratio: f64,
    /// Tokens of the prompt.
    pub(super) prefill_tokens_per_second: f64,
    /// The same by run.
    pub(super) prefill_tokens_per_second_runs: Vec<f64>,
    /// As for decoding: one pass over the experts used, or the arithmetic, whichever takes longer.
    pub(super) prefill_bound_tokens_per_second: f64,
    /// The median of each run's ratio.
    pub(super) prefill_bound_ratio: f64,
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
    let decode = |run: usize| tokens / runs[run].decode_seconds;
    let decode_bound = |run: usize| {
        let (prompt, after) = (case.prompt_tokens, case.decode_tokens);
        1.0 / bound::decode_seconds_per_token(model, prompt, after, hits[run], &rates[run])
    };
    let prefill = |run: usize| case.prompt_tokens as f64 / runs[run].prefill_seconds;
    // What slots hold before a prompt need not be read for it.
    let held = (end.slots as u64).min(first.experts_used);
    let prefill_bound = |run: usize| {
        let (used, missing) = (first.experts_used, first.experts_used - held);
        let seconds = bound::prompt_seconds(model, case.prompt_tokens, used, missing, &rates[run]);
        case.prompt_tokens as f64 / seconds
    };
    let all_rates = |rate: fn(&Rates) -> f64| {
        median(&story.rates.iter().map(rate).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    let disk = all_rates(|rates| rates.disk);
    let reading: Vec<f64> = runs
        .iter()
        .filter(|run| run.read_seconds > 0.0)
        .map(|run| run.read_bytes as f64 / run.read_seconds)
        .collect();
    let start = Rates { memory: f64::NAN, disk, products: f64::NAN };
    Measured {
        slots_per_layer: end.slots as f64 / end.layers.max(1) as f64,
        decode_tokens_per_second: middle(&decode),
        decode_tokens_per_second_runs: (0..runs.len()).map(decode).collect(),
        decode_bound_tokens_per_second: middle(&decode_bound),
        decode_bound_ratio: middle(&|run| decode(run) / decode_bound(run)),
        prefill_tokens_per_second: middle(&prefill),
        prefill_tokens_per_second_runs: (0..runs.len()).map(prefill).collect(),
        prefill_bound_tokens_per_second: middle(&prefill_bound),
        prefill_bound_ratio: middle(&|run| prefill(run) / prefill_bound(run)),
        prefill_read_bytes: middle(&|run| runs[run].prefill_bytes as f64),
        prefill_experts_used: first.experts_used,
        time_to_first_token_seconds: first.seconds,
        first_token_read_seconds: bound::first_token_seconds(story.core_bytes, first.expert_bytes, &start),
        cold: story.cold,
        hit_rate: median(&hits).unwrap_or(f64::NAN),
        read_bytes_per_token: middle(&|run| runs[run].read_bytes as f64 / tokens),
        read_bytes_per_second: median(&reading),
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
            prefill_bytes: 7,
            decode_seconds: 4.0,
            hits: 800,
            misses: 1600,
            read_bytes: 1600 * model.stride,
            read_seconds: 3.0,
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
        assert_eq!((row.disk_bytes_per_second, row.bandwidth_bytes_per_second), (2e9, 50e9));
        assert!((row.first_token_read_seconds - 4_000.0 / 2e9).abs() < 1e-15);
        assert_eq!((row.cgroup_limit_bytes, row.cgroup_peak_bytes), (Some(2 << 30), Some(11)));
        // 40 of the 100 experts are not held at the start of a prompt.
        let prompt = bound::prompt_seconds(&model, 100, 100, 40, &rates(40e9, 2e9));
        assert!(row.prefill_bound_tokens_per_second <= 100.0 / prompt * 2.0);
    }
}
