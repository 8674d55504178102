//! From the window's settings to the engine's options, and from the engine's plan to the window's.

use crate::message::{EngineSettings, Plan};
use fieldfare::engine::budget::expected_hits;
use fieldfare::engine::{self, EngineOptions, MemoryBudget};
use fieldfare::store::RdAdvise;
use fieldfare::{Error, Result};
use std::path::{Path, PathBuf};

/// Contexts that are tried when none is asked for, the largest first.
const CONTEXTS: [usize; 4] = [32_768, 16_384, 8192, 4096];
/// Conversations that are kept in memory as far as there is room: going from one to another and back costs little then.
const CONVERSATIONS: usize = 4;

/// The options for these settings with this context.
fn options(settings: &EngineSettings, max_context: usize, locks: Option<&Path>) -> Result<EngineOptions> {
    let usual = EngineOptions::default();
    let rdadvise = match settings.advice.as_str() {
        "off" => RdAdvise::Off,
        "default" | "" => RdAdvise::Default,
        "bounded" => RdAdvise::Bounded,
        "adaptive" => RdAdvise::Adaptive,
        other => {
            return Err(Error::bad(
                "advice",
                format!("{other:?} is none of off, default, bounded, adaptive"),
            ));
        }
    };
    Ok(EngineOptions {
        max_context,
        memory: settings.memory_bytes.map_or(MemoryBudget::Auto, MemoryBudget::Bytes),
        expert_cache_slots: settings.slots.map(|slots| slots as usize),
        threads: settings.threads.map(|threads| threads as usize),
        prefill_chunk_tokens: if settings.prefill { usual.prefill_chunk_tokens } else { 1 },
        rdadvise,
        conversations: CONVERSATIONS,
        runtime_dir: locks.map(PathBuf::from),
        ..usual
    })
}

/// The options with which the model at `path` would be opened now, and the plan that they come to: with the context asked
/// for, or with the largest one that fits.
///
/// # Errors
/// Those of the plan; the last of several tries.
pub(crate) fn planned(
    path: &Path,
    settings: &EngineSettings,
    locks: Option<&Path>,
) -> Result<(EngineOptions, engine::Plan)> {
    let contexts = settings.context.map_or_else(|| CONTEXTS.to_vec(), |context| vec![context as usize]);
    let mut refusal = None;
    for context in contexts {
        let options = options(settings, context, locks)?;
        match engine::plan(path, &options) {
            Ok(plan) => return Ok((options, plan)),
            // The budget, or a model that knows fewer positions.
            Err(error @ Error::BadRequest { .. }) => refusal = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or_else(|| Error::bad("max-context", "no context fits")))
}

/// The plan for the window. Bytes are those beside a full context; slots and hits those that a conversation begins with.
pub(crate) fn shown(settings: &EngineSettings, plan: &engine::Plan) -> Plan {
    let slots = (plan.slots_full.saturating_add(plan.spares) as u64).saturating_mul(plan.slot_bytes);
    let per_layer = plan.slots_per_layer();
    Plan {
        settings: settings.clone(),
        memory_bytes: plan.limit_bytes.unwrap_or_else(|| plan.full_bytes()),
        core_bytes: plan.core_bytes,
        kv_bytes: plan.kv_full_bytes,
        slot_bytes: slots,
        other_bytes: plan
            .full_bytes()
            .saturating_sub(plan.core_bytes + plan.kv_full_bytes)
            .saturating_sub(slots),
        slots_per_layer: u32::try_from(per_layer).unwrap_or(u32::MAX),
        experts_per_layer: u32::try_from(plan.experts).unwrap_or(u32::MAX),
        context: u32::try_from(plan.max_context).unwrap_or(u32::MAX),
        hit_rate: hit_rate(per_layer, plan.experts),
        tokens_per_second: None,
    }
}

/// Share of experts to find in memory: as measured for 128 experts; for other models as if all were used alike, which no
/// model does worse than.
fn hit_rate(slots: usize, experts: usize) -> f64 {
    expected_hits(slots, experts).unwrap_or_else(|| (slots as f64 / experts.max(1) as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn usual() -> EngineSettings {
        EngineSettings { context: Some(512), threads: Some(1), ..EngineSettings::default() }
    }

    #[test]
    fn settings_become_options() {
        let asked = EngineSettings { prefill: false, advice: "bounded".into(), slots: Some(5), ..usual() };
        let options = options(&asked, 512, None).unwrap();
        assert_eq!((options.prefill_chunk_tokens, options.expert_cache_slots), (1, Some(5)));
        assert_eq!((options.rdadvise, options.threads), (RdAdvise::Bounded, Some(1)));
        let wrong = EngineSettings { advice: "loud".into(), ..usual() };
        assert!(super::options(&wrong, 512, None).unwrap_err().to_string().contains("loud"));
    }

    #[test]
    fn hits_are_those_measured_or_even() {
        assert_eq!(hit_rate(16, 128), 0.66);
        assert_eq!(hit_rate(4, 16), 0.25);
        assert_eq!(hit_rate(16, 16), 1.0);
    }
}
