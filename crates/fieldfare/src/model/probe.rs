//! A look inside the forward pass, for tests and for developers: intermediates and routing decisions by name.

/// Receives what the forward pass computes on its way. Names are those of the reference fixture:
/// `embed_scaled`, `input`, `attn_q`, `attn_k`, `attn_v`, `attn_out`, `post_attn_hidden`, `shared_raw`,
/// `shared_out`, `router_logits`, `routed_raw`, `routed_out`, `ffn_out`, `layer_out`, `final_norm` (only rows
/// whose logits are wanted).
pub trait Probe: Send {
    /// Rows of one tensor: `data` is `[rows][row_len]`, the first row is that of `first_position`. `layer` is
    /// `None` outside the layers.
    fn tensor(
        &mut self,
        layer: Option<usize>,
        name: &'static str,
        first_position: usize,
        row_len: usize,
        data: &[f32],
    );

    /// The experts that one token chose in `layer`, by falling logit, and their weights (renormalised, then
    /// times the expert's own scale).
    fn experts(&mut self, layer: usize, position: usize, ids: &[usize], weights: &[f32]);
}
