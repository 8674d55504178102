//! Figures of the moment: asked of the service a few times a second, made into what the window draws.

use super::{Client, Failure, gone, read};
use crate::message::{ExpertCell, Sample};
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Between two samples.
const PAUSE: Duration = Duration::from_millis(250);
/// Rates are those of so long a time.
const WINDOW: Duration = Duration::from_millis(1500);
/// What is left of an expert's heat after a second.
const COOLING: f64 = 0.7;

/// What the service says of itself.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Stats {
    #[serde(default)]
    tokens: u64,
    #[serde(default)]
    running: u64,
    #[serde(default)]
    prefill: Prefill,
    #[serde(default)]
    memory: Memory,
    #[serde(default)]
    pub(super) experts: Experts,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Prefill {
    done: u64,
    total: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Memory {
    #[serde(default)]
    resident: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Experts {
    #[serde(default)]
    pub(super) hits: u64,
    #[serde(default)]
    pub(super) misses: u64,
    #[serde(default)]
    pub(super) bytes_read: u64,
    #[serde(default)]
    map: Option<Map>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Map {
    experts: usize,
    /// Four experts a hexadecimal digit, the first one its highest bit.
    layers: Vec<String>,
    #[serde(default)]
    uses: Vec<Vec<u32>>,
    #[serde(default)]
    reads: Vec<Vec<u32>>,
}

impl Client {
    /// Figures of the moment, with those of each expert if `counts`.
    ///
    /// # Errors
    /// The service is gone.
    pub(crate) fn stats(&self, counts: bool) -> Result<Stats, Failure> {
        let query = if counts { "?counts" } else { "" };
        let response = self
            .agent
            .get(format!("{}/stats{query}", self.base))
            .header("authorization", self.bearer())
            .call()
            .map_err(gone)?;
        read(response)
    }
}

/// Asks again and again, as long as `wanted` says yes (the last word counts) and until it is dropped or the service is
/// gone.
pub(crate) fn watch(
    client: &Client,
    budget: u64,
    since: Instant,
    wanted: &Receiver<bool>,
    each: &mut dyn FnMut(Sample),
) {
    let mut eyes = Eyes::new(budget);
    let mut open = true;
    loop {
        let said = if open {
            wanted.recv_timeout(PAUSE)
        } else {
            wanted.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match said {
            Ok(word) => {
                open = word;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        match client.stats(true) {
            Ok(stats) => {
                let at_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
                each(eyes.look(&stats, Instant::now(), at_ms));
            }
            // The process is watched elsewhere, and this ends with it.
            Err(_) => continue,
        }
    }
}

/// From counts to rates.
struct Eyes {
    budget: u64,
    last: Option<(Instant, Stats)>,
    /// Counts of the last moments: of so few tokens a second one pause may see none.
    recent: VecDeque<(Instant, Counts)>,
    heat: Vec<Vec<f64>>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    tokens: u64,
    bytes: u64,
    hits: u64,
    misses: u64,
}

impl Eyes {
    fn new(budget: u64) -> Self {
        Self { budget, last: None, recent: VecDeque::new(), heat: Vec::new() }
    }

    fn look(&mut self, stats: &Stats, now: Instant, at_ms: u64) -> Sample {
        let Experts { hits, misses, bytes_read: bytes, .. } = stats.experts;
        let counts = Counts { tokens: stats.tokens, bytes, hits, misses };
        while self.recent.len() > 1 && now.duration_since(self.recent[1].0) >= WINDOW {
            self.recent.pop_front();
        }
        let (since, before) = self.recent.front().copied().unwrap_or((now, counts));
        self.recent.push_back((now, counts));
        let seconds = now.duration_since(since).as_secs_f64();
        let per_second = |now: u64, before: u64| {
            if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
        };
        let hits = hits.saturating_sub(before.hits);
        let all = hits + misses.saturating_sub(before.misses);
        let Prefill { done, total } = stats.prefill;
        let mut sample = Sample {
            at_ms,
            memory_bytes: stats.memory.resident.unwrap_or(0),
            budget_bytes: self.budget,
            prefill: (stats.running > 0 && done < total).then_some((done, total)),
            tokens_per_second: per_second(stats.tokens, before.tokens),
            read_bytes_per_second: per_second(bytes, before.bytes),
            hit_rate: if all == 0 { 0.0 } else { hits as f64 / all as f64 },
            experts: Vec::new(),
        };
        if let Some(map) = &stats.experts.map {
            let was = self.last.as_ref().and_then(|(_, stats)| stats.experts.map.as_ref());
            let seconds = self.last.as_ref().map_or(0.0, |(at, _)| now.duration_since(*at).as_secs_f64());
            sample.experts = cells(map, was, seconds, &mut self.heat);
        }
        self.last = Some((now, stats.clone()));
        sample
    }
}

fn cells(map: &Map, was: Option<&Map>, seconds: f64, heat: &mut Vec<Vec<f64>>) -> Vec<Vec<ExpertCell>> {
    let layers = map.layers.len();
    heat.resize_with(layers, Vec::new);
    let at = |counts: &[Vec<u32>], layer: usize, expert: usize| {
        counts.get(layer).and_then(|row| row.get(expert)).copied().unwrap_or(0)
    };
    let more = |now: u32, before: Option<u32>| before.map_or(0, |before| now.wrapping_sub(before));
    let left = COOLING.powf(seconds);
    let mut hottest = 0.0_f64;
    for (layer, row) in heat.iter_mut().enumerate() {
        row.resize(map.experts, 0.0);
        for (expert, heat) in row.iter_mut().enumerate() {
            let now = at(&map.uses, layer, expert);
            // At the first look all that was before is what there is to see.
            let uses = was.map_or(now, |was| more(now, Some(at(&was.uses, layer, expert))));
            *heat = *heat * left + f64::from(uses);
            hottest = hottest.max(*heat);
        }
    }
    map.layers
        .iter()
        .enumerate()
        .map(|(layer, held)| {
            let digits: Vec<u32> = held.chars().map(|digit| digit.to_digit(16).unwrap_or(0)).collect();
            (0..map.experts)
                .map(|expert| ExpertCell {
                    resident: digits.get(expert / 4).is_some_and(|digit| digit >> (3 - expert % 4) & 1 == 1),
                    heat: if hottest > 0.0 { (heat[layer][expert] / hottest) as f32 } else { 0.0 },
                    missed: more(at(&map.reads, layer, expert), was.map(|was| at(&was.reads, layer, expert)))
                        > 0,
                })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_rates_heat_and_misses() {
        let stats = |json: &str| serde_json::from_str::<Stats>(json).unwrap();
        let first = stats(
            r#"{"tokens":10,"prefill":{"done":3,"total":9},"memory":{"resident":77,"peak":null},"running":1,"waiting":0,
            "experts":{"hits":5,"misses":5,"bytes_read":1000,
                "map":{"experts":6,"layers":["84","00"],"uses":[[4,0,0,0,0,2],[0,0,0,0,0,0]],"reads":[[1,0,0,0,0,0],[0,0,0,0,0,0]]}}}"#,
        );
        let second = stats(
            r#"{"tokens":14,"prefill":{"done":9,"total":9},"memory":{"resident":78},"running":1,
            "experts":{"hits":8,"misses":6,"bytes_read":3000,
                "map":{"experts":6,"layers":["84","20"],"uses":[[4,0,0,0,0,2],[0,0,9,0,0,0]],"reads":[[1,0,0,0,0,0],[0,0,1,0,0,0]]}}}"#,
        );
        let (mut eyes, start) = (Eyes::new(500), Instant::now());
        let sample = eyes.look(&first, start, 1);
        assert_eq!((sample.prefill, sample.memory_bytes, sample.budget_bytes), (Some((3, 9)), 77, 500));
        assert_eq!((sample.tokens_per_second, sample.read_bytes_per_second), (0.0, 0.0));
        let row = &sample.experts[0];
        let resident: Vec<bool> = row.iter().map(|cell| cell.resident).collect();
        assert_eq!(resident, [true, false, false, false, false, true]);
        assert_eq!((row[0].heat, row[5].heat), (1.0, 0.5));
        assert!(sample.experts.iter().flatten().all(|cell| !cell.missed), "nothing is known to be new");
        let sample = eyes.look(&second, start + Duration::from_secs(2), 2);
        assert_eq!(
            (sample.prefill, sample.tokens_per_second, sample.read_bytes_per_second),
            (None, 2.0, 1000.0)
        );
        assert_eq!(sample.hit_rate, 0.75);
        let cell = sample.experts[1][2];
        assert!(cell.resident && cell.missed && cell.heat == 1.0, "{cell:?}");
        // Two seconds later the first one has cooled down.
        let cooled = f64::from(sample.experts[0][0].heat);
        assert!((cooled - 4.0 * COOLING * COOLING / 9.0).abs() < 1e-6, "{cooled}");
        assert!(!sample.experts[0][0].missed);
    }
}
