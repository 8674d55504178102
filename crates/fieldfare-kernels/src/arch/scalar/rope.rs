//! Rotary positions, halves layout, from tables of cosines and sines.

/// For i < d/2: `(x[i], x[i + d/2])` turns by the angle of `cos[i]`, `sin[i]`. Products are rounded before they are
/// combined, so cos 1 and sin 0 (the unturned part of a partial rope) leave the pair as it is.
#[inline(always)]
pub(crate) fn rope(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = head.split_at_mut(head.len() / 2);
    for (((a, b), &cos), &sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        let (x, y) = (*a, *b);
        *a = x * cos - y * sin;
        *b = y * cos + x * sin;
    }
}
