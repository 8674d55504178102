//! exp, tanh and the tanh form of GELU in f32, without branches, so that loops over them vectorize.
//!
//! Every step is an IEEE operation with one rounding, hence the same bits on every instruction set. Errors are
//! measured in `tests/conformance.rs`: exp and tanh within 2 units in the last place.

/// 1.5 * 2^23: adding it rounds a small float to the nearest integer, left in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts; the first has 9 significant bits, so its product with an exponent is exact.
const LN2_HIGH: f32 = 355.0 / 512.0;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// e^x. Above 88.72 infinity, below -103.97 zero, subnormal between; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Comparisons this way round keep a NaN. Outside these bounds the result is 0 or infinity anyway.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    // Taylor series: |r| <= ln(2)/2, so the term after r^7 is below 6e-9 of the result.
    let mut p = 1.0 / 5040.0;
    p = r.mul_add(p, 1.0 / 720.0);
    p = r.mul_add(p, 1.0 / 120.0);
    p = r.mul_add(p, 1.0 / 24.0);
    p = r.mul_add(p, 1.0 / 6.0);
    p = r.mul_add(p, 0.5);
    p = r.mul_add(p, 1.0);
    p = r.mul_add(p, 1.0);
    // 2^n in two factors, because n runs from -150 to 128. With a NaN these bits are arbitrary and harmless.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let low = n >> 1;
    p * power_of_two(low) * power_of_two(n.wrapping_sub(low))
}

/// 2^n for -126 <= n <= 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127).cast_unsigned()) << 23)
}

/// tanh x; +-1 for large |x|, NaN stays NaN, the sign of zero too.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let a = x.abs();
    // Lambert's continued fraction, cut after y^2/11: for |y| < 0.625 its error is below 1e-9.
    let z = a * a;
    let above = z.mul_add(z + 105.0, 945.0);
    let below = z.mul_add(z.mul_add(15.0, 420.0), 945.0);
    let small = a * (above / below);
    let large = 1.0 - 2.0 / (exp(a + a) + 1.0);
    (if a < 0.625 { small } else { large }).copysign(x)
}

/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written as x / (1 + e^-2u): the same function without the
/// cancellation of 1 + tanh. -0 for -infinity, NaN for NaN.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    const TWO_ROOT: f32 = 1.595_769_121_605_730_7_f64 as f32; // 2 sqrt(2/pi)
    let cubic = (x * x * 0.044_715).mul_add(x, x);
    let e = exp(-(cubic * TWO_ROOT));
    // -infinity / infinity would be NaN; any finite number this far out gives the right -0.
    let x = if x < -1e30 { -1e30 } else { x };
    x / (1.0 + e)
}

/// Sum of lanes: each fold adds the upper half to the lower one.
#[inline(always)]
pub(crate) fn fold<const N: usize, T: Copy + std::ops::Add<Output = T>>(mut lanes: [T; N]) -> T {
    let mut width = N / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = lanes[i] + lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}
