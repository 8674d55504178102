//! The result of an evaluation: marks against thresholds, figures, and how they are printed.

use super::experts::Spread;
use super::reference::Comparison;
use super::thresholds::{Bar, Thresholds};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Everything that is printed.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The model directory.
    pub(super) model: String,
    /// Precision of keys and values.
    pub(super) precision: &'static str,
    /// Whether every mark meets its threshold; `None` without thresholds.
    pub(super) passed: Option<bool>,
    /// The marks.
    pub(super) marks: Vec<Mark>,
    /// Distance to the reference in full.
    pub(super) reference: Comparison,
    /// How the router spreads its choices, by layer.
    pub(super) router: Vec<Spread>,
    /// What it took.
    pub(super) cost: Cost,
    /// Wrong replies, as many of each group as were asked for.
    pub(super) failures: Vec<Failure>,
}

/// A figure with a threshold.
#[derive(Debug, Serialize)]
pub(super) struct Mark {
    /// What is measured.
    pub(super) name: String,
    /// For shares: how many are right, of how many.
    pub(super) count: Option<(usize, usize)>,
    /// The figure.
    pub(super) value: f64,
    /// What it must reach, or must not exceed; `None` if it is only reported.
    pub(super) threshold: Option<f64>,
    /// What is asked for beyond that; missing it does not fail.
    pub(super) goal: Option<f64>,
    /// Which of both.
    pub(super) at_least: bool,
    /// Whether it does; `None` without a threshold.
    pub(super) ok: Option<bool>,
}

/// Time, work and memory.
#[derive(Debug, Default, Serialize)]
pub(super) struct Cost {
    /// From the first case to the last comparison.
    pub(super) seconds: f64,
    /// Cases run.
    pub(super) cases: usize,
    /// Tokens of prompts and given texts that were computed.
    pub(super) read_tokens: u64,
    /// Prompt tokens that were in the cache already.
    pub(super) reused_tokens: u64,
    /// Tokens made.
    pub(super) made_tokens: u64,
    /// Seconds for those, from the first of each reply, of all engines together.
    pub(super) made_seconds: f64,
    /// Share of experts that were in a slot when asked for.
    pub(super) expert_hit_rate: Option<f64>,
    /// Slots of a layer.
    pub(super) slots: usize,
    /// Engines side by side.
    pub(super) workers: usize,
    /// Threads of each.
    pub(super) threads: usize,
    /// Most memory held resident at any time.
    pub(super) peak_rss_bytes: Option<u64>,
}

/// A wrong reply.
#[derive(Debug, Serialize)]
pub(super) struct Failure {
    /// The case.
    pub(super) id: String,
    /// Its group.
    pub(super) group: String,
    /// What is wrong.
    pub(super) reason: String,
    /// What was wanted.
    pub(super) wanted: String,
    /// What was written.
    pub(super) got: String,
}

/// How many are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Right ones.
    pub(super) right: usize,
    /// All.
    pub(super) total: usize,
}

impl Count {
    /// One more.
    pub(super) fn add(&mut self, right: bool) {
        self.right += usize::from(right);
        self.total += 1;
    }
}

/// What the cases gave.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// By group.
    pub(super) groups: BTreeMap<String, Count>,
    /// Of cases with a thought.
    pub(super) thoughts: Count,
    /// Of cases without.
    pub(super) no_thoughts: Count,
    /// Sum of the negative log-probabilities of wanted replies, and their ids.
    pub(super) nll: f64,
    /// Ids of the wanted replies.
    pub(super) targets: usize,
}

impl Tally {
    /// Holds the figures against the thresholds, if there are any. Under `--limit` a kind of thoughts may have no cases; it
    /// then has no mark.
    pub(super) fn marks(&self, reference: &Comparison, thresholds: Option<&Thresholds>) -> Vec<Mark> {
        let share = |name: &str, count: Count, bar: Option<&Bar>| Mark {
            count: Some((count.right, count.total)),
            goal: bar.map(|bar| bar.goal),
            ..mark(name, count.right as f64 / count.total as f64, bar.map(|bar| bar.floor), true)
        };
        // A group that was lost on the way misses.
        let names = |thresholds: &Thresholds| thresholds.groups.keys().cloned().collect();
        let names: Vec<String> = thresholds.map_or_else(|| self.groups.keys().cloned().collect(), names);
        let group = |name: &String| {
            let bar = thresholds.and_then(|thresholds| thresholds.groups.get(name));
            share(name, self.groups.get(name).copied().unwrap_or_default(), bar)
        };
        let mut marks: Vec<Mark> = names.iter().map(group).collect();
        for (name, count, bar) in [
            ("thoughts", self.thoughts, thresholds.map(|thresholds| &thresholds.thoughts)),
            ("no thoughts", self.no_thoughts, thresholds.map(|thresholds| &thresholds.no_thoughts)),
        ] {
            if count.total > 0 {
                marks.push(share(name, count, bar));
            }
        }
        let perplexity = (self.nll / self.targets as f64).exp();
        let bar = |value: fn(&Thresholds) -> f64| thresholds.map(value);
        marks.push(mark("perplexity", perplexity, bar(|bars| bars.perplexity_max), false));
        marks.push(mark("delta-NLL", reference.delta_nll, bar(|bars| bars.delta_nll_max), false));
        marks.push(mark("KL", reference.kl, bar(|bars| bars.kl_max), false));
        marks.push(mark("top-1", reference.top1, bar(|bars| bars.top1_min), true));
        marks
    }
}

fn mark(name: &str, value: f64, threshold: Option<f64>, at_least: bool) -> Mark {
    // What is no number misses either way.
    let meets = |threshold| if at_least { value >= threshold } else { value <= threshold };
    Mark {
        name: name.to_owned(),
        count: None,
        value,
        threshold,
        goal: None,
        at_least,
        ok: threshold.map(meets),
    }
}

impl Mark {
    /// In a word or two: whether the command fails for it, else whether the goal is still to be reached.
    fn verdict(&self) -> &'static str {
        match (self.ok, self.goal) {
            (None, _) => "",
            (Some(false), _) => "FAIL",
            (_, Some(goal)) if self.value < goal => "below goal",
            _ => "ok",
        }
    }
}

impl Report {
    /// The tables.
    ///
    /// # Errors
    /// Those of `out`.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        for failure in &self.failures {
            let Failure { id, reason, wanted, got, .. } = failure;
            writeln!(out, "{id}: {reason}\n    wanted {wanted}\n    got    {got}")?;
        }
        writeln!(out, "{:<20} {:>11} {:>10} {:>12} {:>9}", "", "right", "value", "threshold", "goal")?;
        for mark in &self.marks {
            let right = mark.count.map(|(right, total)| format!("{right}/{total}")).unwrap_or_default();
            let is_share = mark.count.is_some() || mark.name == "top-1";
            let shown = |x: f64| if is_share { format!("{:.2} %", x * 100.0) } else { format!("{x:.6}") };
            let sign = if mark.at_least { ">=" } else { "<=" };
            let threshold = mark.threshold.map(|bar| format!("{sign} {}", shown(bar))).unwrap_or_default();
            let goal = mark.goal.map(shown).unwrap_or_default();
            let (value, verdict) = (shown(mark.value), mark.verdict());
            let line =
                format!("{:<20} {right:>11} {value:>10} {threshold:>12} {goal:>9}  {verdict}", mark.name);
            writeln!(out, "{}", line.trim_end())?;
        }
        let r = &self.reference;
        writeln!(
            out,
            "\nreference: {} sequences, {} positions, {} scored, NLL {:.4}, largest log-probability error {:.6} ({} precision)",
            r.sequences, r.positions, r.scored, r.reference_nll, r.max_logprob_error, self.precision
        )?;
        writeln!(out, "\nrouter: layer, least and most used expert, evenness (1: all alike), unused")?;
        for (layer, s) in self.router.iter().enumerate() {
            let (least, most) = (s.least * 100.0, s.most * 100.0);
            writeln!(out, "{layer:>7} {least:>6.2} % {most:>6.2} % {:>6.3} {:>3}", s.evenness, s.unused)?;
        }
        self.cost.print(out)
    }
}

impl Cost {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let rate = |count: f64, seconds: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let hits = self.expert_hit_rate.map_or("no experts asked for".to_owned(), |rate| {
            format!("{:.2} % of experts held ({} slots)", rate * 100.0, self.slots)
        });
        writeln!(
            out,
            "\n{} cases in {:.1} s ({:.1} a second) with {} engines of {} threads; {} tokens read, {} reused, {} made ({:.0} a second by one engine); {hits}",
            self.cases,
            self.seconds,
            rate(self.cases as f64, self.seconds),
            self.workers,
            self.threads,
            self.read_tokens,
            self.reused_tokens,
            self.made_tokens,
            rate(self.made_tokens as f64, self.made_seconds),
        )?;
        match self.peak_rss_bytes {
            Some(bytes) => writeln!(out, "peak resident memory {:.1} MB", bytes as f64 / 1e6),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_meets_or_misses_its_threshold() {
        let thresholds = Thresholds {
            groups: [
                ("a".to_owned(), Bar { floor: 0.5, goal: 0.9 }),
                ("b".to_owned(), Bar { floor: 0.5, goal: 0.9 }),
            ]
            .into(),
            thoughts: Bar { floor: 1.0, goal: 1.0 },
            no_thoughts: Bar { floor: 1.0, goal: 1.0 },
            perplexity_max: 2.0,
            delta_nll_max: 0.001,
            kl_max: 0.001,
            top1_min: 0.998,
        };
        let mut tally = Tally { nll: 2.0 * 2.0_f64.ln(), targets: 2, ..Tally::default() };
        tally.groups.insert("a".to_owned(), Count { right: 1, total: 2 });
        tally.groups.insert("b".to_owned(), Count { right: 0, total: 1 });
        tally.thoughts.add(true);
        tally.no_thoughts.add(false);
        let reference = Comparison { delta_nll: 0.002, kl: f64::NAN, top1: 0.998, ..Comparison::default() };
        let marks = tally.marks(&reference, Some(&thresholds));
        let got: Vec<_> =
            marks.iter().map(|mark| (mark.name.as_str(), mark.ok == Some(true), mark.verdict())).collect();
        let wanted = [
            ("a", true, "below goal"),
            ("b", false, "FAIL"),
            ("thoughts", true, "ok"),
            ("no thoughts", false, "FAIL"),
            ("perplexity", true, "ok"),
            ("delta-NLL", false, "FAIL"),
            ("KL", false, "FAIL"),
            ("top-1", true, "ok"),
        ];
        assert_eq!(got, wanted);
        // A group that was lost on the way misses too.
        tally.groups.remove("a");
        assert_eq!(tally.marks(&reference, Some(&thresholds))[0].ok, Some(false));
        // Without thresholds the groups that there are, and no verdict.
        let marks = tally.marks(&reference, None);
        let names: Vec<_> = marks.iter().map(|mark| mark.name.as_str()).collect();
        assert_eq!(names, ["b", "thoughts", "no thoughts", "perplexity", "delta-NLL", "KL", "top-1"]);
        assert!(marks.iter().all(|mark| mark.ok.is_none() && mark.verdict().is_empty()));
    }
}
