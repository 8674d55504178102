//! What Gemma 4 26B-A4B would do on this machine: slots, hits and tokens per second for some budgets.

use super::facts::Facts;
use fieldfare::engine::budget::{Sizes, expected_hits};
use fieldfare::engine::{self, EngineOptions, MemoryBudget, Plan};
use fieldfare::measure::bound::{Rates, token_seconds};
use fieldfare::measure::traffic::{FULL_SIZE_CORE, FULL_SIZE_STRIDE, Traffic};
use serde::Serialize;

/// Budgets that are worked out beside `auto`, in GiB.
const BUDGETS: [u64; 5] = [2, 3, 4, 6, 8];
/// Tokens of context that the rates are for.
const CONTEXT: usize = 512;
/// Positions that the KV cache takes at a time.
const PAGE: usize = 256;
/// What a pass over a prompt takes: transit buffers, and for each token.
const PASS: u64 = 16 * FULL_SIZE_STRIDE;
const PASS_TOKEN: u64 = 25_600;
/// Activation buffers with the usual options, as a plan for the model's own directory has them.
const SCRATCH: u64 = 60_000_000;

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
    let rates = rates(facts);
    let given = BUDGETS.map(|gib| (format!("{gib} GiB"), MemoryBudget::Bytes(gib << 30)));
    let mut auto = None;
    let mut budgets = Vec::new();
    for (name, memory) in given.into_iter().chain([("auto".to_owned(), MemoryBudget::Auto)]) {
        let plan = plan(&model, memory);
        budgets.push(budget(&model, name, memory, plan.as_ref(), rates.as_ref(), facts));
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

/// Bytes of the KV cache with so many tokens.
fn kv_bytes(model: &Traffic, tokens: usize) -> u64 {
    let rows = tokens.max(1).next_multiple_of(PAGE);
    model.layers.iter().map(|layer| layer.kv(rows)).sum()
}

fn plan(model: &Traffic, memory: MemoryBudget) -> fieldfare::Result<Plan> {
    let sizes = Sizes {
        core: FULL_SIZE_CORE,
        stride: FULL_SIZE_STRIDE,
        layers: model.layers.len(),
        experts: model.experts,
        kv: &|tokens| kv_bytes(model, tokens),
        scratch: SCRATCH,
        pass: &|tokens| if tokens > 1 { PASS + PASS_TOKEN * tokens as u64 } else { 0 },
        process: 0,
    };
    engine::plan_absent(&sizes, &EngineOptions { memory, ..EngineOptions::default() })
}

fn budget(
    model: &Traffic,
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
    let slots = plan.slots_beside(kv_bytes(model, CONTEXT)) as f64 / plan.layers.max(1) as f64;
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
    fn the_cache_is_that_of_the_engine() {
        let model = Traffic::full_size();
        // Pages of 256 positions, windows of 1,024: 58 MB at first, 294 MB at 4,096.
        assert_eq!(kv_bytes(&model, 1) / 1_000_000, 57);
        assert_eq!(kv_bytes(&model, 4096) / 1_000_000, 293);
    }

    #[test]
    fn two_gib_have_six_slots_or_are_refused() {
        let model = Traffic::full_size();
        // A machine with less says what it has.
        if let Ok(plan) = plan(&model, MemoryBudget::Bytes(2 << 30))
            && plan.limit_bytes == Some(2 << 30)
        {
            let slots = plan.slots_beside(kv_bytes(&model, CONTEXT)) as f64 / 30.0;
            assert!((5.0..7.0).contains(&slots), "{slots}");
        }
        let error = plan(&model, MemoryBudget::Bytes(1 << 30)).unwrap_err().to_string();
        assert!(error.starts_with("memory: this model needs"), "{error}");
    }
}
