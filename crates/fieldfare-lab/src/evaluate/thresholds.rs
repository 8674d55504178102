//! The marks that every change must meet, committed beside the cases.

use super::case::Case;
use crate::wrong_use;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What a share of right replies has to be.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bar {
    /// Less fails: what the committed model reaches. Raised with each better model, never lowered for a worse one.
    pub(super) floor: f64,
    /// What the project asks for; less is shown and does not fail.
    pub(super) goal: f64,
}

/// The file: a share is at least this, a distance at most.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Thresholds {
    /// Share of right replies, by group.
    pub(super) groups: BTreeMap<String, Bar>,
    /// Share of replies with one whole thought, where one is wanted.
    pub(super) thoughts: Bar,
    /// Share of replies without any, where none is wanted.
    pub(super) no_thoughts: Bar,
    /// Perplexity of the wanted replies.
    pub(super) perplexity_max: f64,
    /// Distance to the reference's mean negative log-likelihood.
    pub(super) delta_nll_max: f64,
    /// Divergence from the reference.
    pub(super) kl_max: f64,
    /// Share of positions at which the most likely id is the reference's.
    pub(super) top1_min: f64,
}

/// Reads the file and holds its groups against those of the cases.
///
/// # Errors
/// The file cannot be read, has other fields, a floor or goal is no share, or a group has no threshold or a threshold no cases.
pub(super) fn load(path: &Path, cases: &[Case]) -> Result<Thresholds> {
    let shown = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| wrong_use(format!("cannot read the thresholds {shown}: {error}")))?;
    let thresholds: Thresholds =
        serde_json::from_slice(&bytes).with_context(|| format!("the thresholds {shown}"))?;
    let own = [("thoughts", &thresholds.thoughts), ("no_thoughts", &thresholds.no_thoughts)];
    let groups = thresholds.groups.iter().map(|(group, bar)| (format!("groups.{group}"), bar));
    for (name, bar) in own.map(|(name, bar)| (name.to_owned(), bar)).into_iter().chain(groups) {
        for (field, value) in [("floor", bar.floor), ("goal", bar.goal)] {
            if !(0.0..=1.0).contains(&value) {
                bail!("{shown}: {name}.{field}: {value} is no share, which is from 0 to 1");
            }
        }
    }
    if let Some(case) = cases.iter().find(|case| !thresholds.groups.contains_key(&case.group)) {
        bail!("{shown}: groups: no threshold for the group {} (case {})", case.group, case.id);
    }
    if let Some(group) =
        thresholds.groups.keys().find(|group| !cases.iter().any(|case| case.group == **group))
    {
        bail!("{shown}: groups: a threshold for {group}, which has no cases");
    }
    if !cases.iter().any(|case| case.thinking) {
        bail!("{shown}: thoughts: a threshold for thoughts, but no case thinks");
    }
    Ok(thresholds)
}
