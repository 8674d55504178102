//! From logits to the next token.
//!
//! The order of the steps is fixed: what a guide forbids (`guide`); bias, then penalties, on the logits; Top-P on the full distribution; Top-K; min-p;
//! then temperature, and a draw. Temperature 0 takes the largest logit, the lowest id among equals. Candidates are
//! found by selection, never by sorting the vocabulary, and weights are integers (`logits`), so a seed gives the
//! same tokens for the same logits on every machine and for every way of adding up. `stop` watches the text for
//! stop strings.

mod ahead;
mod guide;
mod logits;
pub mod rng;
pub mod stop;
#[cfg(test)]
mod tests;

pub use guide::{Allowed, Guide, IdSet, Plan};
pub use stop::StopStrings;

use crate::{Error, Result};
use ahead::Ahead;
use logits::Selection;
use rng::Rng;
use std::collections::{BTreeMap, VecDeque};

/// Largest vocabulary: keeps sums of weights within 64 bits.
pub const MAX_VOCAB: usize = 1 << 20;
/// Most entries of [`Sampling::logit_bias`].
pub const MAX_BIASES: usize = 1024;

/// How the next token is chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 to 2. Divides the logits of the candidates; 0 is greedy.
    pub temperature: f32,
    /// Keep this many of the likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Above 0, up to 1: keep the fewest likeliest tokens whose share of the full distribution (before Top-K and
    /// temperature) reaches this; 1 keeps all.
    pub top_p: f32,
    /// 0 to 1: keep tokens at least this likely, relative to the likeliest (before temperature); 0 keeps all.
    pub min_p: f32,
    /// Above 0: positive logits of tokens in the window are divided by it, others multiplied; 1 changes nothing.
    pub repetition_penalty: f32,
    /// How many of the last tokens, prompt and generated, the repetition penalty looks at. 0 switches it off;
    /// `usize::MAX` looks at everything.
    pub repetition_window: usize,
    /// -2 to 2: subtracted once from the logit of each token that was generated.
    pub presence_penalty: f32,
    /// -2 to 2: subtracted from the logit of each token as often as it was generated.
    pub frequency_penalty: f32,
    /// Token ids and what is added to their logits, -100 to 100, before the penalties; -100 forbids the token.
    pub logit_bias: Vec<(u32, f32)>,
    /// The seed of the draws; without one a fresh seed is taken, and [`Sampler::seed`] tells which.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.2,
            top_k: 64,
            top_p: 0.95,
            min_p: 0.0,
            repetition_penalty: 1.0,
            repetition_window: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl Sampling {
    /// Checks all ranges.
    ///
    /// # Errors
    /// [`Error::BadRequest`] naming the field and its range.
    pub fn validate(&self) -> Result<()> {
        let range = |field: &str, value: f32, low: f32, high: f32| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(Error::bad(field, format!("must be from {low} to {high}, not {value}")))
            }
        };
        range("temperature", self.temperature, 0.0, 2.0)?;
        range("min_p", self.min_p, 0.0, 1.0)?;
        range("presence_penalty", self.presence_penalty, -2.0, 2.0)?;
        range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?;
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(Error::bad("top_p", format!("must be above 0 and at most 1, not {}", self.top_p)));
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            let reason = format!("must be a number above 0, not {}", self.repetition_penalty);
            return Err(Error::bad("repetition_penalty", reason));
        }
        if self.logit_bias.len() > MAX_BIASES {
            let reason = format!("{} entries is more than {MAX_BIASES}", self.logit_bias.len());
            return Err(Error::bad("logit_bias", reason));
        }
        let mut ids = std::collections::BTreeSet::new();
        for &(id, bias) in &self.logit_bias {
            range(&format!("logit_bias[{id}]"), bias, -100.0, 100.0)?;
            if !ids.insert(id) {
                return Err(Error::bad(format!("logit_bias[{id}]"), "is given twice"));
            }
        }
        Ok(())
    }
}

/// Chooses tokens. Holds the history that penalties look at, the generator, and room to work in.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    vocab: usize,
    rng: Rng,
    seed: u64,
    history: History,
    selection: Selection,
    guide: Option<Ahead>,
}

impl Sampler {
    /// A sampler for a vocabulary of this size.
    ///
    /// # Errors
    /// A parameter is out of its range ([`Sampling::validate`]), or a biased id is outside the vocabulary.
    pub fn new(sampling: &Sampling, vocab: usize) -> Result<Self> {
        sampling.validate()?;
        if vocab > MAX_VOCAB {
            return Err(Error::Unsupported(format!("a vocabulary of {vocab} entries (at most {MAX_VOCAB})")));
        }
        if let Some((id, _)) = sampling.logit_bias.iter().find(|(id, _)| *id as usize >= vocab) {
            return Err(Error::bad(
                format!("logit_bias[{id}]"),
                format!("the vocabulary has {vocab} entries"),
            ));
        }
        let seed = sampling.seed.unwrap_or_else(rng::fresh_seed);
        let window = if sampling.repetition_penalty == 1.0 { 0 } else { sampling.repetition_window };
        let counts_generated = sampling.presence_penalty != 0.0 || sampling.frequency_penalty != 0.0;
        Ok(Self {
            sampling: sampling.clone(),
            vocab,
            rng: Rng::new(seed),
            seed,
            history: History { window, counts_generated, ..History::default() },
            selection: Selection::default(),
            guide: None,
        })
    }

    /// The same with a guide, which [`Sampler::choose`] asks.
    #[must_use]
    pub fn guided(self, guide: Option<Box<dyn Guide>>) -> Self {
        Self { guide: guide.map(Ahead::new), ..self }
    }

    /// The next token is going to be chosen once its logits are computed: what may come can be told meanwhile, on another
    /// thread. The choice is the same whether this is called or not.
    pub fn look_ahead(&mut self) {
        if let Some(ahead) = &mut self.guide {
            ahead.prepare();
        }
    }

    /// Adds a generated token to the history, and tells the guide. All penalties count it.
    pub fn accept(&mut self, id: u32) {
        self.history.push(id);
        self.history.generate(id);
        if let Some(ahead) = &mut self.guide
            && let Some(mut guide) = ahead.take()
        {
            guide.accept(id);
            ahead.put(guide);
        }
    }

    /// Whether the guide says that the answer is complete.
    pub fn is_over(&self) -> bool {
        self.guide.as_ref().is_some_and(Ahead::is_over)
    }

    /// As [`Sampler::sample`], but only what the guide allows.
    ///
    /// # Errors
    /// The guide does not know.
    pub fn choose(&mut self, logits: &mut [f32]) -> Result<u32> {
        let Some(ahead) = &mut self.guide else { return Ok(self.sample(logits)) };
        let lost = || Error::Unsupported("an answer whose guide is lost".to_owned());
        let mut guide = ahead.take().ok_or_else(lost)?;
        let chosen = guide.allowed().map(|allowed| {
            allowed.apply(logits);
            allowed.corrected(self.sample(logits))
        });
        if let Some(ahead) = &mut self.guide {
            ahead.put(guide);
        }
        chosen
    }

    /// Adds a prompt token, which only the repetition penalty counts.
    pub fn accept_prompt(&mut self, id: u32) {
        self.history.push(id);
    }

    /// Chooses the next token; it is not added to the history. One logit for each id; the slice is changed by bias
    /// and penalties.
    ///
    /// NaN counts as minus infinity. If no logit is above that, there is nothing to choose and the answer is 0.
    /// Each call with a temperature above 0 draws exactly one number from the generator.
    pub fn sample(&mut self, logits: &mut [f32]) -> u32 {
        let vocab = self.vocab.min(logits.len());
        let logits = &mut logits[..vocab];
        self.adjust(logits);
        if self.sampling.temperature == 0.0 {
            return logits::greedy(logits);
        }
        let random = self.rng.next_u64();
        self.selection.select(&self.sampling, logits);
        self.selection.draw(random).unwrap_or(0)
    }

    /// The seed of the draws: the one asked for, or the fresh one.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Bias, then penalties.
    fn adjust(&self, logits: &mut [f32]) {
        for &(id, bias) in &self.sampling.logit_bias {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = if bias <= -100.0 { f32::NEG_INFINITY } else { *logit + bias };
            }
        }
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } = self.sampling;
        for &id in self.history.counts.keys() {
            let Some(logit) = logits.get_mut(id as usize) else { continue };
            *logit = if *logit > 0.0 { *logit / repetition_penalty } else { *logit * repetition_penalty };
        }
        for (&id, &count) in &self.history.generated {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit -= presence_penalty + frequency_penalty * count as f32;
            }
        }
    }
}

/// The tokens that penalties look at.
#[derive(Debug, Default)]
struct History {
    /// The last so many, and how often each is among them.
    window: usize,
    last: VecDeque<u32>,
    counts: BTreeMap<u32, u32>,
    /// How often each was generated, if anything asks.
    counts_generated: bool,
    generated: BTreeMap<u32, u32>,
}

impl History {
    fn generate(&mut self, id: u32) {
        if self.counts_generated {
            *self.generated.entry(id).or_default() += 1;
        }
    }

    fn push(&mut self, id: u32) {
        if self.window == 0 {
            return;
        }
        if self.last.len() == self.window
            && let Some(old) = self.last.pop_front()
            && let Some(count) = self.counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
        self.last.push_back(id);
        *self.counts.entry(id).or_default() += 1;
    }
}
