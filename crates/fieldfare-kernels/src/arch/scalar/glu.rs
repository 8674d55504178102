//! The gated unit: tanh-GELU of the gate times up.

use super::math::gelu;

/// `gate = gelu(gate) * up`
#[inline(always)]
pub(crate) fn gelu_mul(gate: &mut [f32], up: &[f32]) {
    for (gate, &up) in gate.iter_mut().zip(up) {
        *gate = gelu(*gate) * up;
    }
}
