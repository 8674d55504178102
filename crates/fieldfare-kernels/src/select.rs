//! The k largest of a row: the router's experts, candidates of the sampler.

use std::cmp::Ordering;

/// Up to this many are kept sorted while the row passes by; for more, the whole index list is partitioned.
const SMALL: usize = 128;

/// Indices of the `k` largest elements of `x` (all, if there are fewer), falling; equal values by rising index, NaN
/// after everything else. `ids` is cleared first.
pub fn top_k(x: &[f32], k: usize, ids: &mut Vec<usize>) {
    ids.clear();
    let k = k.min(x.len());
    if k == 0 {
        return;
    }
    if k > SMALL {
        ids.extend(0..x.len());
        let order = |&a: &usize, &b: &usize| falling(x[a], x[b]).then(a.cmp(&b));
        ids.select_nth_unstable_by(k - 1, order);
        ids.truncate(k);
        ids.sort_unstable_by(order);
        return;
    }
    for (index, &value) in x.iter().enumerate() {
        // Equal to the last one kept means: after it, because the index is higher.
        if ids.len() == k && falling(value, x[ids[k - 1]]).is_ge() {
            continue;
        }
        let at = ids.partition_point(|&kept| falling(x[kept], value).is_le());
        ids.truncate(k - 1);
        ids.insert(at, index);
    }
}

/// Larger first, NaN last and equal to itself; the two zeros are equal.
fn falling(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(x: &[f32], k: usize) -> Vec<usize> {
        let mut ids: Vec<usize> = (0..x.len()).collect();
        ids.sort_by(|&a, &b| match (x[a].is_nan(), x[b].is_nan()) {
            (false, false) => x[b].partial_cmp(&x[a]).unwrap(),
            (a, b) => a.cmp(&b),
        });
        ids.truncate(k);
        ids
    }

    #[test]
    fn ties_zeros_and_nan() {
        let mut ids = vec![9, 9];
        let x = [f32::NAN, 1.0, -0.0, 3.0, 0.0, 3.0, f32::NEG_INFINITY, f32::NAN];
        top_k(&x, 8, &mut ids);
        assert_eq!(ids, [3, 5, 1, 2, 4, 6, 0, 7]);
        top_k(&x, 1, &mut ids);
        assert_eq!(ids, [3]);
        top_k(&x, 0, &mut ids);
        assert!(ids.is_empty());
        top_k(&[], 3, &mut ids);
        assert!(ids.is_empty());
    }

    proptest! {
        #[test]
        fn like_a_stable_sort(
            x in proptest::collection::vec(prop_oneof![-3i8..3, Just(i8::MAX)], 0..400),
            k in 0usize..420,
        ) {
            let x: Vec<f32> = x.iter().map(|&v| if v == i8::MAX { f32::NAN } else { f32::from(v) }).collect();
            let mut ids = Vec::new();
            top_k(&x, k, &mut ids);
            prop_assert_eq!(ids, naive(&x, k));
        }
    }
}
