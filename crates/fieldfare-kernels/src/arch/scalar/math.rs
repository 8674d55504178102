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
    // Lambert's continued fraction, cut after y^2/9: for |y| < 0.625 its error is below 1e-9. Written as y minus a
    // correction of at most an eighth, which keeps its roundings small.
    let z = a * a;
    let below = z.mul_add(z.mul_add(15.0, 420.0), 945.0);
    let small = a - a * (z * z.mul_add(14.0, 315.0) / below);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units in the last place of the f32 nearest to `exact`.
    fn ulps(got: f32, exact: f64) -> f64 {
        let near = (exact as f32).abs().max(f32::MIN_POSITIVE);
        let unit = f64::from(near.next_up()) - f64::from(near);
        (f64::from(got) - exact).abs() / unit
    }

    /// Every 997th float of either sign up to `limit`.
    fn floats(limit: f32) -> impl Iterator<Item = f32> {
        (0..limit.to_bits()).step_by(997).map(f32::from_bits).flat_map(|x| [x, -x])
    }

    #[test]
    fn exp_within_two_ulps() {
        let worst = floats(87.3).map(|x| ulps(exp(x), f64::from(x).exp())).fold(0.0, f64::max);
        assert!(worst <= 2.0, "{worst} ulps");
        assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
    }

    #[test]
    fn exp_saturates_and_passes_through_subnormals() {
        assert_eq!(exp(88.8), f32::INFINITY);
        assert_eq!(exp(f32::MAX), f32::INFINITY);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(-104.5), 0.0);
        assert_eq!(exp(f32::MIN), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(88.7) < f32::MAX);
        for x in [-87.5f32, -90.0, -100.0, -103.0] {
            let (got, exact) = (f64::from(exp(x)), f64::from(x).exp());
            assert!(
                (got - exact).abs() <= 1.5 * f64::from(f32::from_bits(1)),
                "exp({x}) = {got}, not {exact}"
            );
        }
    }

    #[test]
    fn tanh_within_two_ulps() {
        let worst = floats(12.0).map(|x| ulps(tanh(x), f64::from(x).tanh())).fold(0.0, f64::max);
        assert!(worst <= 2.0, "{worst} ulps");
        assert_eq!(tanh(-0.0).to_bits(), (-0.0f32).to_bits());
        for x in [20.0, 1e10, f32::MAX, f32::INFINITY] {
            assert_eq!((tanh(x), tanh(-x)), (1.0, -1.0));
        }
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn gelu_is_the_tanh_form() {
        for x in floats(30.0) {
            let v = f64::from(x);
            let u = (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v);
            // Without the cancellation of 1 + tanh, as here.
            let exact = v / (1.0 + (-2.0 * u).exp());
            let error = (f64::from(gelu(x)) - exact).abs();
            // (A result below 1e-37 is -0: its e^-2u overflows.) In the negative tail the rounding of 2u, which is large, becomes a relative error of e^2u.
            let bound = 3e-7 * exact.abs() * (1.0 + u.abs()) + 1e-37;
            assert!(error <= bound, "gelu({x}) = {} is {error:e} from {exact}", gelu(x));
        }
        for x in [50.0, 1e10, 1e30, f32::MAX, f32::INFINITY] {
            assert_eq!(gelu(x), x);
            assert_eq!(gelu(-x).to_bits(), (-0.0f32).to_bits());
        }
        assert!(gelu(f32::NAN).is_nan());
    }

    #[test]
    fn fold_adds_halves() {
        assert_eq!(fold([1.0f32, 2.0, 4.0, 8.0]), 15.0);
        assert_eq!(fold([1e8f32, 1.0, -1e8, 1.0]), 2.0); // (1e8 - 1e8) + (1 + 1)
    }
}
