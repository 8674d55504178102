//! f32 activations to integers, without branches inside a group, so that compilers vectorize it; and the plain
//! pass over memory that bounds what a kernel can stream.

use crate::acts::{Line, Planes, Side};
use crate::quant::GROUP;

/// Groups without a larger value than this become zeros: below, a step or its inverse would leave the normal f32.
pub(crate) const SMALLEST: f32 = 1.0 / (1u128 << 100) as f32;
/// Adding it rounds to the nearest integer, ties to even, and leaves that in the low bits; right up to 2^22.
const MAGIC: f32 = 12_582_912.0;

/// Whole groups: `x` has 64 values for each of `sides`, `lines` a line for each plane of each.
#[inline(always)]
pub(crate) fn quantize(x: &[f32], planes: Planes, lines: &mut [Line], sides: &mut [Side]) {
    let groups = x.as_chunks::<GROUP>().0.iter().zip(sides);
    match planes {
        Planes::One => {
            for ((x, side), line) in groups.zip(lines) {
                let mut whole = [0; GROUP];
                *side = group(x, planes, &mut whole);
                set(line, &whole.map(|x| x as i8));
            }
        }
        Planes::Two => {
            for ((x, side), [high, low]) in groups.zip(lines.as_chunks_mut::<2>().0) {
                let mut whole = [0; GROUP];
                *side = group(x, planes, &mut whole);
                // -128 <= low < 128, so it fits, and high is at most (32512 + 128) >> 8 = 127.
                set(high, &whole.map(|x| ((x + 128) >> 8) as i8));
                set(low, &whole.map(|x| x as i8));
            }
        }
    }
}

/// The integers of one group.
#[inline(always)]
fn group(x: &[f32; GROUP], planes: Planes, whole: &mut [i32; GROUP]) -> Side {
    // Without the sign, f32 bits order as their values do, infinity above all numbers and NaN above that.
    let bits = x.iter().fold(0, |max: u32, x| max.max(x.to_bits() & 0x7FFF_FFFF));
    let largest = f32::from_bits(bits);
    if !largest.is_finite() {
        return Side { step: f32::NAN, sum: 0.0 };
    }
    if largest < SMALLEST {
        return Side { step: 0.0, sum: 0.0 };
    }
    let inverse = planes.steps() / largest;
    let mut sum = 0;
    for (whole, x) in whole.iter_mut().zip(x) {
        *whole = (x * inverse + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32;
        sum += *whole;
    }
    Side { step: largest / planes.steps(), sum: sum as f32 }
}

/// Columns to their places.
#[inline(always)]
fn set(line: &mut Line, columns: &[i8; GROUP]) {
    for (to, from) in line.0.as_chunks_mut::<8>().0.iter_mut().zip(columns.as_chunks::<8>().0) {
        let &[a, b, c, d, e, f, g, h] = from;
        *to = [a, c, e, g, b, d, f, h];
    }
}

/// XOR of all 8-byte words (bytes beyond the last whole 64 are left out).
pub(crate) fn xor(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; 8];
    for line in bytes.as_chunks::<64>().0 {
        for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
            *sum ^= u64::from_le_bytes(*word);
        }
    }
    sums.into_iter().fold(0, |all, sum| all ^ sum)
}
