//! What Gemma 4 26B-A4B would do on this machine: slots, hits and tokens per second for some budgets.

use super::facts::Facts;
use fieldfare::engine::budget::{Sizes, expected_hits};
use fieldfare::engine::{self, EngineOptions, MemoryBudget, Plan};
use fieldfare::measure::bound::{Rates, token_seconds};
use fieldfare::measure::traffic::{FULL_SIZE_CORE, FULL_SIZE_STRIDE, Traffic};
use fieldfare::model::{Config, Footprint, RunnerOptions};
use serde::Serialize;

/// Budgets that are worked out beside `auto`, in GiB.
const BUDGETS: [u64; 5] = [2, 3, 4, 6, 8];
/// Tokens of context that the rates are for.
const CONTEXT: usize = 512;

/// What to expect.
#[derive(Debug, Serialize)]
pub(super) struct Expected {
    /// The plan of `--memory auto`.
    pub(super) auto: Option<Plan>,
    /// By budget, `auto` last.
    pub(super) budgets: Vec<Budget>,
}

/// One budget.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Budget {
    /// `2 GiB` or `auto`.
    pub(super) memory: String,
    /// Its bytes, as far as they are known.
    pub(super) memory_bytes: Option<u64>,
    /// Slots of a layer, 512 tokens into a conversation.
    pub(super) slots_per_layer: Option<f64>,
    /// Expected share of experts that are held.
    pub(super) hit_rate: Option<f64>,
    /// What the machine allows at most; `None` where something was not measured.
    pub(super) decode_bound_tokens_per_second: Option<f64>,
    /// Why it does not work here.
    pub(super) error: Option<String>,
}

/// Works it out.
pub(super) fn expect(facts: &Facts) -> Expected {
    let model = Traffic::full_size();
    // The usual options are within their bounds.
    let Ok(takes) = footprint(&EngineOptions::default()) else {
        return Expected { auto: None, budgets: Vec::new() };
    };
    let rates = rates(facts);
    let given = BUDGETS.map(|gib| (format!("{gib} GiB"), MemoryBudget::Bytes(gib << 30)));
    let mut auto = None;
    let mut budgets = Vec::new();
    for (name, memory) in given.into_iter().chain([("auto".to_owned(), MemoryBudget::Auto)]) {
        let plan = plan(&takes, memory);
        let kv = takes.kv_bytes(CONTEXT);
        budgets.push(budget(&model, kv, name, memory, plan.as_ref(), rates.as_ref(), facts));
        if memory == MemoryBudget::Auto {
            auto = plan.ok();
        }
    }
    Expected { auto, budgets }
}

fn rates(facts: &Facts) -> Option<Rates> {
    let disk = facts.folder.as_ref()?.disk.as_ref()?.bytes_per_second;
    Some(Rates { memory: facts.bandwidth_bytes_per_second?, disk, products: f64::NAN })
}

/// What the model takes besides its weights, with these options.
fn footprint(options: &EngineOptions) -> fieldfare::Result<Footprint> {
    let runner = RunnerOptions {
        max_context: options.max_context,
        prefill_chunk_tokens: options.prefill_chunk_tokens,
        precision: options.precision,
        threads: options.threads,
        ..RunnerOptions::default()
    };
    Footprint::new(Config::full_size(), FULL_SIZE_STRIDE, &runner)
}

fn plan(takes: &Footprint, memory: MemoryBudget) -> fieldfare::Result<Plan> {
    let sizes = Sizes {
        core: FULL_SIZE_CORE,
        stride: FULL_SIZE_STRIDE,
        layers: takes.config().layers.len(),
        experts: takes.config().num_experts,
        kv: &|tokens| takes.kv_bytes(tokens),
        scratch: takes.scratch_bytes(),
        pass: &|tokens| takes.pass_bytes(tokens),
        process: 0,
    };
    engine::plan_absent(&sizes, &EngineOptions { memory, ..EngineOptions::default() })
}

fn budget(
    model: &Traffic,
    kv: u64,
    name: String,
    memory: MemoryBudget,
    plan: Result<&Plan, &fieldfare::Error>,
    rates: Option<&Rates>,
    facts: &Facts,
) -> Budget {
    let asked = match memory {
        MemoryBudget::Bytes(bytes) => Some(bytes),
        MemoryBudget::Auto => None,
    };
    let failed = |error: String| Budget {
        memory: name.clone(),
        memory_bytes: asked,
        slots_per_layer: None,
        hit_rate: None,
        decode_bound_tokens_per_second: None,
        error: Some(error),
    };
    let most = [facts.memory.total, facts.memory.group_limit].into_iter().flatten().min();
    if let (Some(asked), Some(most)) = (asked, most)
        && asked > most
    {
        return failed("more than there is".to_owned());
    }
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => return failed(error.to_string()),
    };
    let slots = plan.slots_beside(kv) as f64 / plan.layers.max(1) as f64;
    let hits = hits(slots, model.experts);
    let rate = |rates: &Rates| hits.map(|hits| 1.0 / token_seconds(model, CONTEXT, hits, rates));
    Budget {
        memory: name,
        memory_bytes: asked.or(plan.limit_bytes),
        slots_per_layer: Some(slots),
        hit_rate: hits,
        decode_bound_tokens_per_second: rates.and_then(rate),
        error: None,
    }
}

/// The table's value at a number of slots that need not be whole.
fn hits(slots: f64, experts: usize) -> Option<f64> {
    let (low, share) = (slots.floor(), slots.fract());
    let (here, next) = (low as usize, (low as usize + 1).min(experts));
    let (here, next) = (expected_hits(here, experts)?, expected_hits(next, experts)?);
    Some(here + share * (next - here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_between_whole_slots() {
        assert_eq!(hits(16.0, 128), Some(0.66));
        let between = hits(6.5, 128).unwrap();
        assert!((between - 0.36).abs() < 1e-9, "{between}");
        assert_eq!((hits(128.0, 128), hits(4.0, 16)), (Some(1.0), None));
    }

    #[test]
    fn the_buffers_of_the_full_size() {
        let takes = footprint(&EngineOptions::default()).unwrap();
        // A page each at first: 25 layers of 64 positions in 8 KiB, 5 of 256 in 4 KiB.
        let page = 25 * 64 * 8192;
        assert_eq!(takes.kv_bytes(1), page + 5 * 256 * 4096);
        // Transit buffers and about 26 KB a token.
        assert_eq!(takes.pass_bytes(1), 0);
        let pass = (takes.pass_bytes(4096) - takes.pass_bytes(1024)) as f64 / 3072.0;
        assert!((25_000.0..27_500.0).contains(&pass), "{pass}");
        assert!((30..120).contains(&(takes.scratch_bytes() / 1_000_000)), "{}", takes.scratch_bytes());
        // The traffic's own idea of the cache is the same, less the page that a window has begun to leave.
        let model = Traffic::full_size();
        let kv: u64 = model.layers.iter().map(|layer| layer.kv(4096)).sum();
        assert_eq!(takes.kv_bytes(4096), kv + page);
    }

    #[test]
    fn two_gib_have_six_slots_or_are_refused() {
        let takes = footprint(&EngineOptions::default()).unwrap();
        // A machine with less says what it has.
        if let Ok(plan) = plan(&takes, MemoryBudget::Bytes(2 << 30))
            && plan.limit_bytes == Some(2 << 30)
        {
            let slots = plan.slots_beside(takes.kv_bytes(CONTEXT)) as f64 / 30.0;
            assert!((5.0..7.0).contains(&slots), "{slots}");
        }
        let error = plan(&takes, MemoryBudget::Bytes(1 << 30)).unwrap_err().to_string();
        assert!(error.starts_with("memory: this model needs"), "{error}");
    }
}
