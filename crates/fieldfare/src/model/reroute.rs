//! Other experts than the router's, for measurements only: so that two builds, or two budgets, see the same experts, and
//! so that a model of random weights is asked for experts as a trained one asks for them.
//!
//! The answer must depend on layer and position alone: a prompt may be fed in any chunks, layer by layer or not, and
//! again after a rewind.

/// Chooses experts in place of the router.
pub trait RouteOverride: Send {
    /// Replaces `ids`, the experts that the token at `position` uses in `layer`, by others: as many, all different and
    /// below the model's number of experts. They may come in any order.
    fn choose(&mut self, layer: usize, position: usize, ids: &mut [usize]);

    /// Replaces `ids`, what the layer's router is guessed to choose for the token at `position`, best first, by what is to
    /// stand for it. Without anything there is no look-ahead: the model's guess says nothing of other experts.
    fn guess(&mut self, layer: usize, position: usize, ids: &mut Vec<usize>) {
        let _ = (layer, position);
        ids.clear();
    }
}
