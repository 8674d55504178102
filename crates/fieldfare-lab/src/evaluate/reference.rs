//! The reference: what transformers computes in float32 from the same dequantized weights, for held-out sequences, and
//! how far we are from it.
//!
//! A safetensors file with `ids` i32 [N, T] (from `<bos>`, padded on the right), `lengths` i32 [N], `scored` u8 [N, T] (1
//! where the model had to write the token), `logprob` f32 [N, T] (natural logarithm of the probability of the token at t
//! given those before; 0 at t = 0), `top_ids` i32 and `top_logprobs` f32 [N, T, K] (the most likely next ids after
//! position t, falling).

use crate::wrong_use;
use anyhow::{Context as _, Result, ensure};
use fieldfare::model::{Forward as _, Runner};
use safetensors::{Dtype, SafeTensors};
use std::ops::ControlFlow;
use std::path::Path;

/// Log-probabilities in float32 of one softmax must agree this well with themselves.
const OWN_ERROR: f64 = 1e-3;

/// One held-out sequence. Vectors other than `scored` and `logprob` end with the position before the last.
pub(super) struct Sequence {
    /// The ids, without padding.
    ids: Vec<u32>,
    /// Whether the model had to write the id at t.
    scored: Vec<bool>,
    /// Log-probability of the id at t.
    logprob: Vec<f32>,
    /// The most likely ids after t and their log-probabilities, falling.
    top: Vec<Vec<(u32, f32)>>,
}

/// How far we are from the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub(super) struct Comparison {
    /// Sequences compared.
    pub(super) sequences: usize,
    /// Positions with a successor, all of which are compared.
    pub(super) positions: usize,
    /// Positions whose id the model had to write: those that negative log-likelihoods are averaged over.
    pub(super) scored: usize,
    /// Mean negative log-likelihood of scored ids, the reference's.
    pub(super) reference_nll: f64,
    /// The same, ours minus the reference's, without its sign.
    pub(super) delta_nll: f64,
    /// Mean of KL(reference | ours) over the reference's most likely ids and one bucket for all others.
    pub(super) kl: f64,
    /// Share of positions at which the most likely next id is the same.
    pub(super) top1: f64,
    /// Largest difference of the log-probability of any given id.
    pub(super) max_logprob_error: f64,
}

/// Reads and checks a reference for a model of `vocab` ids.
///
/// # Errors
/// The file cannot be read, lacks something, or contradicts itself.
pub(super) fn load(path: &Path, vocab: usize, bos: u32) -> Result<Vec<Sequence>> {
    let shown = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| wrong_use(format!("cannot read the reference {shown}: {error}")))?;
    parse(&bytes, vocab, bos).with_context(|| format!("the reference {shown}"))
}

fn parse(bytes: &[u8], vocab: usize, bos: u32) -> Result<Vec<Sequence>> {
    let file = SafeTensors::deserialize(bytes)?;
    let shape = file.tensor("ids").context("ids")?.shape().to_vec();
    let &[n, t] = &shape[..] else { anyhow::bail!("ids: shape {shape:?} is not [N, T]") };
    let top_shape = file.tensor("top_ids").context("top_ids")?.shape().to_vec();
    ensure!(
        top_shape.len() == 3 && top_shape[..2] == [n, t] && top_shape[2] > 0,
        "top_ids: shape {top_shape:?} is not [{n}, {t}, K]"
    );
    let k = top_shape[2];
    let tensor = |name: &str, dtype: Dtype, shape: &[usize]| -> Result<Vec<u8>> {
        let view = file.tensor(name).with_context(|| name.to_owned())?;
        ensure!(
            view.dtype() == dtype && view.shape() == shape,
            "{name}: {:?} {:?} in place of {dtype:?} {shape:?}",
            view.dtype(),
            view.shape()
        );
        Ok(view.data().to_vec())
    };
    let ids = words(&tensor("ids", Dtype::I32, &[n, t])?, i32::from_le_bytes);
    let lengths = words(&tensor("lengths", Dtype::I32, &[n])?, i32::from_le_bytes);
    let scored = tensor("scored", Dtype::U8, &[n, t])?;
    let logprob = words(&tensor("logprob", Dtype::F32, &[n, t])?, f32::from_le_bytes);
    let top_ids = words(&tensor("top_ids", Dtype::I32, &[n, t, k])?, i32::from_le_bytes);
    let top_logprobs = words(&tensor("top_logprobs", Dtype::F32, &[n, t, k])?, f32::from_le_bytes);
    ensure!(n > 0, "no sequences");
    let id = |id: i32| {
        let id = u32::try_from(id).ok().filter(|&id| (id as usize) < vocab);
        id.context("an id is not in the vocabulary of this model")
    };
    let mut sequences = Vec::with_capacity(n);
    for (row, &length) in lengths.iter().enumerate() {
        let length = usize::try_from(length).ok().filter(|length| (2..=t).contains(length));
        let length = length.with_context(|| format!("lengths: sequence {row} is not 2 to {t} ids long"))?;
        let span = row * t..row * t + length;
        let after = span.start..span.end - 1;
        let top = after.map(|at| {
            let ids = &top_ids[at * k..(at + 1) * k];
            let pairs = ids.iter().zip(&top_logprobs[at * k..(at + 1) * k]);
            pairs.map(|(&top, &logprob)| Ok((id(top)?, logprob))).collect::<Result<Vec<_>>>()
        });
        let sequence = Sequence {
            ids: ids[span.clone()].iter().map(|&i| id(i)).collect::<Result<_>>()?,
            scored: scored[span.clone()].iter().map(|&flag| flag != 0).collect(),
            logprob: logprob[span].to_vec(),
            top: top.collect::<Result<_>>()?,
        };
        sequence.check(bos).with_context(|| format!("sequence {row}"))?;
        sequences.push(sequence);
    }
    ensure!(sequences.iter().any(|s| s.scored.contains(&true)), "no position is scored");
    Ok(sequences)
}

fn words<T>(bytes: &[u8], read: fn([u8; 4]) -> T) -> Vec<T> {
    bytes.as_chunks::<4>().0.iter().map(|&word| read(word)).collect()
}

impl Sequence {
    /// What must hold of any softmax: falling, summing up to at most one, the given id's value the same in both lists.
    fn check(&self, bos: u32) -> Result<()> {
        ensure!(self.ids[0] == bos, "does not begin with id {bos}");
        ensure!(!self.scored[0], "its first id is scored");
        for (t, top) in self.top.iter().enumerate() {
            ensure!(top.is_sorted_by(|a, b| a.1 >= b.1), "position {t}: top_logprobs do not fall");
            let sum: f64 = top.iter().map(|&(_, logprob)| f64::from(logprob).exp()).sum();
            ensure!(
                sum <= 1.0 + OWN_ERROR,
                "position {t}: the probabilities of top_logprobs sum up to {sum}"
            );
            let (next, logprob) = (self.ids[t + 1], f64::from(self.logprob[t + 1]));
            let listed = top.iter().find(|(id, _)| *id == next).map(|&(_, logprob)| f64::from(logprob));
            let own = match (listed, top.last()) {
                (Some(listed), _) => (listed - logprob).abs() <= OWN_ERROR,
                (None, Some(&(_, least))) => logprob <= f64::from(least) + OWN_ERROR,
                (None, None) => true,
            };
            ensure!(
                own && logprob.is_finite(),
                "position {}: logprob {logprob} contradicts top_logprobs",
                t + 1
            );
        }
        Ok(())
    }
}

/// Sums over positions.
#[derive(Default)]
pub(super) struct Sums {
    positions: usize,
    agree: usize,
    kl: f64,
    max: f64,
    scored: usize,
    reference_nll: f64,
    delta: f64,
}

impl Sums {
    /// The logits after position `t`.
    fn add(&mut self, sequence: &Sequence, t: usize, logits: &[f32]) {
        let (norm, best) = normalise(logits);
        let ours = |id: u32| f64::from(logits[id as usize]) - norm;
        let top = &sequence.top[t];
        self.positions += 1;
        self.agree += usize::from(top.first().is_some_and(|&(id, _)| id == best));
        self.kl += divergence(top.iter().map(|&(id, theirs)| (f64::from(theirs), ours(id))));
        let theirs = f64::from(sequence.logprob[t + 1]);
        let difference = theirs - ours(sequence.ids[t + 1]);
        self.max = self.max.max(difference.abs());
        if sequence.scored[t + 1] {
            self.scored += 1;
            self.reference_nll -= theirs;
            self.delta += difference;
        }
    }
}

/// ln of the sum of exp, and the lowest of the ids with the largest logit.
fn normalise(logits: &[f32]) -> (f64, u32) {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &logit) in (0..).zip(logits) {
        if logit > best.1 {
            best = (id, logit);
        }
    }
    let largest = f64::from(best.1);
    (largest + logits.iter().map(|&x| (f64::from(x) - largest).exp()).sum::<f64>().ln(), best.0)
}

/// KL(p | q) from pairs of log-probabilities, all that they leave over as one more event.
fn divergence(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut kl, mut p_rest, mut q_rest) = (0.0, 1.0, 1.0);
    for (p, q) in pairs {
        kl += p.exp() * (p - q);
        p_rest -= p.exp();
        q_rest -= q.exp();
    }
    // What rounding leaves of a bucket that is all but empty says nothing, but must not become a NaN.
    let (p_rest, q_rest) = (f64::max(p_rest, 1e-9), f64::max(q_rest, 1e-9));
    kl + p_rest * (p_rest / q_rest).ln()
}

/// Runs a sequence in an empty cache.
///
/// # Errors
/// Those of the model.
pub(super) fn compare(runner: &mut Runner, sequence: &Sequence) -> Result<Sums> {
    let mut sums = Sums::default();
    runner.rewind(0);
    // Nothing is compared after the last id.
    let given = &sequence.ids[..sequence.ids.len() - 1];
    runner.prefill_each(given, &mut || ControlFlow::Continue(()), &mut |t, logits| {
        sums.add(sequence, t, logits);
        ControlFlow::Continue(())
    })?;
    Ok(sums)
}

impl Comparison {
    /// Means over the sums of all sequences.
    pub(super) fn of<'a>(parts: impl Iterator<Item = &'a Sums>) -> Self {
        let (mut all, mut sequences) = (Sums::default(), 0);
        for part in parts {
            sequences += 1;
            all.positions += part.positions;
            all.agree += part.agree;
            all.kl += part.kl;
            all.max = all.max.max(part.max);
            all.scored += part.scored;
            all.reference_nll += part.reference_nll;
            all.delta += part.delta;
        }
        let (positions, scored) = (all.positions as f64, all.scored as f64);
        Self {
            sequences,
            positions: all.positions,
            scored: all.scored,
            reference_nll: all.reference_nll / scored,
            delta_nll: (all.delta / scored).abs(),
            kl: all.kl / positions,
            top1: all.agree as f64 / positions,
            max_logprob_error: all.max,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use safetensors::tensor::{TensorView, serialize};

    /// A reference's tensors, to be spoilt by tests.
    #[derive(Clone)]
    pub(in super::super) struct Tensors {
        pub(in super::super) shape: [usize; 3],
        pub(in super::super) ids: Vec<i32>,
        pub(in super::super) lengths: Vec<i32>,
        pub(in super::super) scored: Vec<u8>,
        pub(in super::super) logprob: Vec<f32>,
        pub(in super::super) top_ids: Vec<i32>,
        pub(in super::super) top_logprobs: Vec<f32>,
    }

    impl Tensors {
        pub(in super::super) fn bytes(&self) -> Vec<u8> {
            let [n, t, k] = self.shape;
            let ints = |x: &[i32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
            let floats = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
            let parts = [
                ("ids", Dtype::I32, vec![n, t], ints(&self.ids)),
                ("lengths", Dtype::I32, vec![n], ints(&self.lengths)),
                ("scored", Dtype::U8, vec![n, t], self.scored.clone()),
                ("logprob", Dtype::F32, vec![n, t], floats(&self.logprob)),
                ("top_ids", Dtype::I32, vec![n, t, k], ints(&self.top_ids)),
                ("top_logprobs", Dtype::F32, vec![n, t, k], floats(&self.top_logprobs)),
            ];
            let views = parts.iter().map(|(name, dtype, shape, data)| {
                (*name, TensorView::new(*dtype, shape.clone(), data).unwrap())
            });
            serialize(views, None).unwrap()
        }
    }

    /// Two ids of four after `<bos>` (2), one of them scored.
    fn small() -> Tensors {
        let (a, b, c) = (0.5_f32.ln(), 0.25_f32.ln(), 0.125_f32.ln());
        Tensors {
            shape: [1, 4, 2],
            ids: vec![2, 0, 3, 0],
            lengths: vec![3],
            scored: vec![0, 0, 1, 0],
            logprob: vec![0.0, a, c, 0.0],
            top_ids: vec![0, 1, 1, 0, 0, 0, 0, 0],
            top_logprobs: vec![a, b, a, b, 0.0, 0.0, 0.0, 0.0],
        }
    }

    #[test]
    fn figures_by_hand() {
        let sequences = parse(&small().bytes(), 4, 2).unwrap();
        let mut sums = Sums::default();
        let logits = |p: [f32; 4]| p.map(|p| p.ln() + 3.0);
        sums.add(&sequences[0], 0, &logits([0.5, 0.25, 0.125, 0.125]));
        assert!(sums.kl.abs() < 1e-7 && sums.max < 1e-6 && sums.agree == 1 && sums.scored == 0);
        sums.add(&sequences[0], 1, &logits([0.5, 0.25, 0.1875, 0.0625]));
        // ids 1, 0 and the rest: theirs 1/2, 1/4, 1/4, ours 1/4, 1/2, 1/4
        let kl = 0.5 * 2.0_f64.ln() - 0.25 * 2.0_f64.ln();
        assert!((sums.kl - kl).abs() < 1e-6, "{}", sums.kl);
        assert_eq!((sums.positions, sums.agree, sums.scored), (2, 1, 1));
        assert!((sums.delta - 2.0_f64.ln()).abs() < 1e-6 && (sums.max - 2.0_f64.ln()).abs() < 1e-6);
        assert!((sums.reference_nll - 8.0_f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn a_certain_model_has_no_divergence_from_itself() {
        let kl = divergence([(0.0, 0.0), (-50.0, -50.0)].into_iter());
        assert!(kl.abs() < 1e-12, "{kl}");
        // Certain of different things: large, and a number.
        let kl = divergence([(0.0, -40.0)].into_iter());
        assert!(kl > 30.0 && kl.is_finite(), "{kl}");
    }

    #[test]
    fn a_reference_that_contradicts_itself_is_refused() {
        type Spoil = fn(&mut Tensors);
        let table: [(Spoil, &str); 9] = [
            (|t| t.ids[0] = 1, "does not begin with"),
            (|t| t.ids[1] = 4, "not in the vocabulary"),
            (|t| t.top_ids[0] = -1, "not in the vocabulary"),
            (|t| t.lengths[0] = 5, "not 2 to 4"),
            (|t| t.scored[2] = 0, "no position is scored"),
            (|t| t.scored[0] = 1, "first id is scored"),
            (|t| t.logprob[1] = -3.0, "position 1: logprob"),
            (|t| t.logprob[2] = -0.5, "position 2: logprob"),
            (|t| t.top_logprobs[1] = -0.1, "do not fall"),
        ];
        for (spoil, wanted) in table {
            let mut tensors = small();
            spoil(&mut tensors);
            let error = format!("{:#}", parse(&tensors.bytes(), 4, 2).err().unwrap());
            assert!(error.contains(wanted), "{error}");
        }
        let mut tensors = small();
        tensors.top_logprobs[..2].copy_from_slice(&[-0.1, -0.2]);
        tensors.logprob[1] = -0.1;
        let error = format!("{:#}", parse(&tensors.bytes(), 4, 2).err().unwrap());
        assert!(error.contains("sum up to"), "{error}");
        assert!(parse(b"12345678", 4, 2).is_err());
    }
}
