//! Replays expert requests through a cache of one layer: the hit rates that a policy would have had.
//!
//! A request is one token's experts. All that miss are loaded; an expert of the current request is never evicted.

use clap::ValueEnum;

/// Which expert makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Fewest uses, each use counting half as much after 32 further tokens; ties to the one unused longest.
    Lfu,
    /// Fewest uses since the start, counts kept for experts that are not held; ties to the one unused longest.
    LfuTotal,
    /// Longest unused.
    Lru,
}

impl Policy {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lfu => "lfu",
            Self::LfuTotal => "lfu-total",
            Self::Lru => "lru",
        }
    }

    /// Factor by which a use gains weight over one made a token earlier.
    fn growth(self) -> f64 {
        match self {
            Self::Lfu => 2.0_f64.powf(1.0 / 32.0),
            Self::LfuTotal | Self::Lru => 1.0,
        }
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The cache of one layer.
struct Cache {
    policy: Policy,
    slots: usize,
    held: Vec<usize>,
    is_held: Vec<bool>,
    count: Vec<f64>,
    /// Token of the last use; for the least recently used one also its rank in that request.
    last: Vec<(usize, usize)>,
    weight: f64,
    now: usize,
}

impl Cache {
    fn new(policy: Policy, slots: usize, experts: usize) -> Self {
        Self {
            policy,
            slots,
            held: Vec::with_capacity(slots),
            is_held: vec![false; experts],
            count: vec![0.0; experts],
            last: vec![(0, 0); experts],
            weight: 1.0,
            now: 0,
        }
    }

    /// Serves one request and returns the number of hits.
    fn request(&mut self, experts: &[usize]) -> usize {
        self.now += 1;
        self.weight *= self.policy.growth();
        if self.weight > 1e200 {
            self.count.iter_mut().for_each(|c| *c /= self.weight);
            self.weight = 1.0;
        }
        let mut hits = 0;
        for (rank, &expert) in experts.iter().enumerate() {
            self.count[expert] += self.weight;
            self.last[expert] = (self.now, if self.policy == Policy::Lru { rank } else { 0 });
            if self.is_held[expert] {
                hits += 1;
                continue;
            }
            if self.held.len() >= self.slots {
                self.evict(experts);
            }
            self.held.push(expert);
            self.is_held[expert] = true;
        }
        hits
    }

    /// Drops the coldest expert that is not in `needed` (nothing if all are: the cache then holds one too many for
    /// the time of this request, as a transit buffer would).
    fn evict(&mut self, needed: &[usize]) {
        let rank = |&(_, &e): &(usize, &usize)| match self.policy {
            Policy::Lru => (0.0, self.last[e]),
            Policy::Lfu | Policy::LfuTotal => (self.count[e], self.last[e]),
        };
        let coldest = self
            .held
            .iter()
            .enumerate()
            .filter(|(_, e)| !needed.contains(e))
            .min_by(|a, b| rank(a).0.total_cmp(&rank(b).0).then(rank(a).1.cmp(&rank(b).1)));
        if let Some((at, &expert)) = coldest {
            self.held.swap_remove(at);
            self.is_held[expert] = false;
        }
    }
}

/// Share of requests after the first `warm` tokens that find their expert held, over all layers. `layers[l][t]` are
/// the experts of token `t` in layer `l`.
pub(crate) fn hit_rate(
    layers: &[Vec<Vec<usize>>],
    experts: usize,
    policy: Policy,
    slots: usize,
    warm: usize,
) -> f64 {
    let (mut hits, mut requests) = (0, 0);
    for tokens in layers {
        let mut cache = Cache::new(policy, slots, experts);
        for (t, wanted) in tokens.iter().enumerate() {
            let found = cache.request(wanted);
            if t >= warm {
                hits += found;
                requests += wanted.len();
            }
        }
    }
    hits as f64 / requests.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(requests: &[&[usize]], policy: Policy, slots: usize) -> f64 {
        hit_rate(&[requests.iter().map(|r| r.to_vec()).collect()], 8, policy, slots, 0)
    }

    #[test]
    fn frequency_and_recency_part_ways() {
        // 0 is used often, then 1, 2 and 3 pass through two slots
        let requests: &[&[usize]] = &[&[0], &[0], &[0], &[1], &[2], &[3], &[0]];
        assert_eq!(rate(requests, Policy::LfuTotal, 2), 3.0 / 7.0);
        assert_eq!(rate(requests, Policy::Lfu, 2), 3.0 / 7.0);
        assert_eq!(rate(requests, Policy::Lru, 2), 2.0 / 7.0);
    }

    #[test]
    fn the_current_request_is_never_evicted() {
        let requests: &[&[usize]] = &[&[0, 1], &[2, 3], &[2, 3]];
        for policy in [Policy::Lfu, Policy::LfuTotal, Policy::Lru] {
            assert_eq!(rate(requests, policy, 2), 2.0 / 6.0, "{policy:?}");
        }
    }

    #[test]
    fn decay_forgets_an_old_favourite() {
        let mut requests: Vec<Vec<usize>> = vec![vec![0]; 100];
        requests.extend((0..400).map(|i| vec![1 + i % 2]));
        let rate = |policy| hit_rate(&[requests.clone()], 8, policy, 2, 100);
        assert!(rate(Policy::Lfu) > 0.5 && rate(Policy::LfuTotal) < 0.51);
    }
}
