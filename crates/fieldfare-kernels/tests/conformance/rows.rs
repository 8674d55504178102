//! Element-wise operations and norms over one row.

use crate::data::*;
use fieldfare_kernels::Kernels;

/// Up to two blocks of every block size, and the model's widths.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=64).chain([128, 255, 256, 512, 704, 2112, 2816, 4097])
}

/// Runs `op` on operands at every offset with every instruction set and compares the first operand's bits.
fn check(
    name: &str,
    lens: impl Iterator<Item = usize>,
    edges: &[f32],
    op: impl Fn(&Kernels, &mut [f32], &[f32]),
) {
    let mut r = Random(name.len() as u64);
    for len in lens {
        let (x, y) = (r.vector_with(len, edges), r.vector_with(len, edges));
        let mut expected = x.clone();
        op(scalar(), &mut expected, &y);
        for kernels in vector_kernels() {
            for offset in 0..5 {
                let mut got = [vec![3.0; offset], x.clone()].concat();
                let y = [vec![5.0; offset], y.clone()].concat();
                op(kernels, &mut got[offset..], &y[offset..]);
                assert_same(&got[offset..], &expected, &format!("{name} of {len} with {:?}", kernels.isa()));
                assert!(got[..offset].iter().all(|&v| v == 3.0), "{name} wrote outside");
            }
        }
    }
}

#[test]
fn every_isa_gives_the_scalar_bits() {
    let wild = [&EDGES[..], &WILD[..]].concat();
    for edges in [&EDGES[..], &wild] {
        check("add", lengths(), edges, Kernels::add);
        check("add_scaled", lengths(), edges, |k, x, y| k.add_scaled(x, -0.3, y));
        check("scale", lengths(), edges, |k, x, _| k.scale(x, 1.7));
        check("gelu_mul", lengths(), edges, Kernels::gelu_mul);
        check("soft_cap", lengths(), edges, |k, x, _| k.soft_cap(x, 30.0));
        check("rms_norm", lengths(), edges, |k, x, y| {
            let from = x.to_vec();
            k.rms_norm(&from, Some(y), 1e-6, x);
        });
        check("rms_norm_in_place", lengths(), edges, |k, x, y| k.rms_norm_in_place(x, Some(y), 1e-6));
        check("rms_norm without weight", lengths(), edges, |k, x, _| k.rms_norm_in_place(x, None, 1e-6));
        check("rope", (0..=40).step_by(2).chain([256, 512]), edges, |k, x, y| {
            let (cos, sin) = y.split_at(y.len() / 2);
            k.rope(x, cos, sin);
        });
        check("to_f16", lengths(), edges, |k, x, _| {
            let mut bits = vec![0; x.len()];
            k.to_f16(x, &mut bits);
            // NaN payloads may differ: compare as values.
            x.iter_mut().zip(bits).for_each(|(x, b)| *x = half::f16::from_bits(b).to_f32());
        });
    }
}

#[test]
fn add_and_scale_are_what_they_say() {
    let mut x = [1.0, -2.0];
    scalar().add(&mut x, &[0.5, 0.25]);
    assert_eq!(x, [1.5, -1.75]);
    scalar().add_scaled(&mut x, 2.0, &[1.0, 10.0]);
    assert_eq!(x, [3.5, 18.25]);
    scalar().scale(&mut x, -2.0);
    assert_eq!(x, [-7.0, -36.5]);
}

#[test]
fn rms_norm_against_f64() {
    let mut r = Random(11);
    for len in [1, 2, 15, 16, 17, 256, 704, 2816] {
        for size in [1e-20, 1e-3, 1.0, 1e4, 1e20] {
            let x: Vec<f32> = r.vector(len).iter().map(|v| v * size).collect();
            let weight = r.vector(len);
            let mut out = vec![0.0; len];
            scalar().rms_norm(&x, Some(&weight), 1e-6, &mut out);
            let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / len as f64;
            let factor = (mean + f64::from(1e-6f32)).sqrt().recip();
            for ((&o, &x), &w) in out.iter().zip(&x).zip(&weight) {
                let exact = f64::from(x) * factor * f64::from(w);
                assert!((f64::from(o) - exact).abs() <= 2e-7 * exact.abs() + 1e-44, "{o} is not {exact}");
            }
            let mut same_one = x.clone();
            scalar().rms_norm_in_place(&mut same_one, Some(&weight), 1e-6);
            assert_same(&same_one, &out, "in place");
        }
    }
    let mut zeros = [0.0; 20];
    scalar().rms_norm_in_place(&mut zeros, None, 1e-6);
    assert_eq!(zeros, [0.0; 20]);
    scalar().rms_norm(&[], None, 1e-6, &mut []);
}

#[test]
fn rope_turns_pairs_of_halves() {
    let mut r = Random(12);
    let d = 512;
    let x = r.vector(d);
    let angles: Vec<f64> = (0..d / 2).map(|i| if i < 64 { 3.0 * f64::from(r.unit()) } else { 0.0 }).collect();
    let cos: Vec<f32> = angles.iter().map(|a| a.cos() as f32).collect();
    let sin: Vec<f32> = angles.iter().map(|a| a.sin() as f32).collect();
    let mut y = x.clone();
    scalar().rope(&mut y, &cos, &sin);
    for i in 0..d / 2 {
        let (a, b) = (f64::from(x[i]), f64::from(x[i + d / 2]));
        let (s, c) = angles[i].sin_cos();
        assert!((f64::from(y[i]) - (a * c - b * s)).abs() < 2e-7);
        assert!((f64::from(y[i + d / 2]) - (b * c + a * s)).abs() < 2e-7);
        if i >= 64 {
            assert_eq!((y[i], y[i + d / 2]), (x[i], x[i + d / 2]), "unturned pairs stay");
        }
    }
}

#[test]
fn soft_cap_against_f64() {
    let mut r = Random(14);
    for size in [1e-6, 0.5, 10.0, 40.0, 1e4, 1e30] {
        let x: Vec<f32> = r.vector(1000).iter().map(|v| v * size).collect();
        for kernels in all_kernels() {
            let mut y = x.clone();
            kernels.soft_cap(&mut y, 30.0);
            for (&y, &x) in y.iter().zip(&x) {
                let exact = 30.0 * (f64::from(x) / 30.0).tanh();
                assert!((f64::from(y) - exact).abs() <= 5e-7 * exact.abs(), "{x}: {y} is not {exact}");
            }
        }
    }
    let mut x = [f32::INFINITY, f32::NEG_INFINITY, 0.0];
    Kernels::detect().soft_cap(&mut x, 30.0);
    assert_eq!(x, [30.0, -30.0, 0.0]);
}

#[test]
fn gelu_mul_multiplies_by_up() {
    for kernels in all_kernels() {
        let mut gate = [0.0, 1.0, -1.0, 100.0, -100.0, 1e38, -1e38];
        let up = [5.0, 2.0, 2.0, 0.5, 3.0, 1.0, 1.0];
        kernels.gelu_mul(&mut gate, &up);
        let close = |a: f32, b: f32| (a - b).abs() < 1e-6;
        assert!(gate[0] == 0.0 && close(gate[1], 2.0 * 0.841_192) && close(gate[2], 2.0 * -0.158_808));
        assert_eq!(gate[3..], [50.0, 0.0, 1e38, 0.0]);
    }
}

#[test]
fn f16_rounds_to_even_and_overflows_like_ieee() {
    let cases = [
        (0.0, 0),
        (-0.0, 0x8000),
        (1.0, 0x3C00),
        (65504.0, 0x7BFF),
        (65519.9, 0x7BFF),
        (65520.0, 0x7C00), // halfway to 65536: even is infinity
        (-1e9, 0xFC00),
        (f32::INFINITY, 0x7C00),
        (2049.0, 0x6800), // halfway between 2048 and 2050
        (2051.0, 0x6802),
        (5.960_464_5e-8, 1), // the smallest subnormal
        (2.980_232_2e-8, 0), // half of it
        (2.980_232_6e-8, 1),
        (1e-40, 0),
    ];
    for kernels in all_kernels() {
        for (x, bits) in cases {
            for len in [1, 8, 16, 17] {
                let mut out = vec![0xABCD; len];
                kernels.to_f16(&vec![x; len], &mut out);
                assert_eq!(out, vec![bits; len], "{x}");
            }
        }
        let mut out = [0];
        kernels.to_f16(&[f32::NAN], &mut out);
        assert!(half::f16::from_bits(out[0]).is_nan());
    }
}
