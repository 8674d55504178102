//! A start as it would be: where the memory goes, and what speed to expect if this machine was measured.

use crate::message::{EngineSettings, Plan, Trouble};
use crate::setup;
use crate::trouble::trouble;
use crate::wire::Rates;
use fieldfare::engine::budget::Origin;
use fieldfare::format::{Integrity, ModelDir};
use fieldfare::measure::bound::token_seconds;
use fieldfare::measure::traffic::Traffic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tokens of context that the speed is for, as in `fieldfare doctor`.
const CONTEXT: usize = 512;
/// Bytes of an element of the KV cache.
const ELEMENT: u64 = 2;
/// What is reached of what the machine allows, where no benchmark has said (experiments 13 and 20: 0.63 to 0.79).
const USUAL_SHARE: f64 = 0.7;

/// What was measured, by model directory: disks differ.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    #[serde(default)]
    models: BTreeMap<String, Measured>,
}

/// What was measured beside one model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// What the machine gives.
    pub(crate) rates: Rates,
    /// The share of it that a benchmark reached.
    pub(crate) reached: Option<f64>,
}

impl Machine {
    /// What the file says; nothing if it says nothing that can be read: it can be measured again.
    pub(crate) fn read(path: &Path) -> Self {
        crate::settings::read(path).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Notes a measurement beside a model.
    pub(crate) fn note(path: &Path, model: &Path, rates: Option<Rates>, reached: Option<f64>) {
        let mut machine = Self::read(path);
        let key = model.display().to_string();
        let before = machine.models.get(&key).copied();
        let Some(rates) = rates.or(before.map(|before| before.rates)) else { return };
        let reached = reached.or(before.and_then(|before| before.reached));
        machine.models.insert(key, Measured { rates, reached });
        // What is not kept is measured again.
        let _ = crate::settings::write(path, &crate::wire::line(&machine));
    }

    /// What was measured beside this model.
    pub(crate) fn of(&self, model: &Path) -> Option<Measured> {
        self.models.get(&model.display().to_string()).copied()
    }
}

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The model.
    pub(crate) model: PathBuf,
    /// How it would be started.
    pub(crate) settings: EngineSettings,
    /// Memory that is given back first: that of the service which runs.
    pub(crate) freed: u64,
}

/// Answers questions; it remembers what the last model's tokens need.
pub(crate) struct Planner {
    machine: PathBuf,
    traffic: Option<(PathBuf, Traffic)>,
}

impl Planner {
    /// A planner that reads measurements from this file.
    pub(crate) fn new(machine: PathBuf) -> Self {
        Self { machine, traffic: None }
    }

    /// The start as it would be.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(crate) fn plan(&mut self, asked: &Asked) -> Result<Plan, Trouble> {
        let Asked { model, settings, freed } = asked;
        let say = |error| trouble(&error);
        let (_, mut plan) = setup::planned(model, settings, None)
            .or_else(|error| match settings.memory_bytes {
                // What does not fit beside the service may fit in its place.
                None if *freed > 0 => {
                    let free = fieldfare::sys::memory::room().free().unwrap_or(0);
                    let instead =
                        EngineSettings { memory_bytes: Some(free / 8 * 7 + freed), ..settings.clone() };
                    setup::planned(model, &instead, None)
                }
                _ => Err(error),
            })
            .map_err(say)?;
        if let (Some(limit), Some(Origin::Free), true) = (plan.limit_bytes, plan.limit_origin, *freed > 0) {
            let instead =
                EngineSettings { memory_bytes: Some(limit.saturating_add(*freed)), ..settings.clone() };
            (_, plan) = setup::planned(model, &instead, None).map_err(say)?;
        }
        let mut shown = setup::shown(settings, &plan);
        shown.tokens_per_second = self.speed(model, shown.hit_rate);
        Ok(shown)
    }

    fn speed(&mut self, model: &Path, hit_rate: f64) -> Option<f64> {
        let Measured { rates, reached } = Machine::read(&self.machine).of(model)?;
        if self.traffic.as_ref().is_none_or(|(known, _)| known != model) {
            let dir = ModelDir::open(model, Integrity::Receipt).ok()?;
            self.traffic = Some((model.to_path_buf(), Traffic::of(&dir, ELEMENT).ok()?));
        }
        let (_, traffic) = self.traffic.as_ref()?;
        let bound = 1.0 / token_seconds(traffic, CONTEXT, hit_rate, &rates.measured());
        Some(bound * reached.unwrap_or(USUAL_SHARE)).filter(|speed| speed.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_kept_by_model_and_a_share_outlives_new_rates() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("machine.json");
        let (a, b) = (Path::new("/a"), Path::new("/b"));
        let rates = |disk| Rates { memory: 30e9, disk, products: 1e11 };
        Machine::note(&file, a, None, Some(0.5));
        assert_eq!(Machine::read(&file).of(a), None, "a share of nothing");
        Machine::note(&file, a, Some(rates(1e9)), None);
        Machine::note(&file, a, None, Some(0.5));
        Machine::note(&file, a, Some(rates(2e9)), None);
        Machine::note(&file, b, Some(rates(3e9)), None);
        let machine = Machine::read(&file);
        assert_eq!(machine.of(a), Some(Measured { rates: rates(2e9), reached: Some(0.5) }));
        assert_eq!(machine.of(b), Some(Measured { rates: rates(3e9), reached: None }));
        std::fs::write(&file, "[]").unwrap();
        assert_eq!(Machine::read(&file).of(a), None);
    }
}
