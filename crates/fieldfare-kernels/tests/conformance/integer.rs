//! Integer products: quantization against its definition, the scalar product against f64 arithmetic on the quantized
//! values, vectors against scalar bit for bit, errors against exact products, and the promise that one element
//! depends on its own operands only.

use crate::data::*;
use fieldfare_kernels::{Acts, Kernels, Planes, Pool, QuantData, QuantMatrix, split, tile};
use proptest::prelude::*;

const PLANES: [Planes; 2] = [Planes::One, Planes::Two];

fn quantized(kernels: &Kernels, x: &[f32], m_rows: usize, cols: usize, planes: Planes) -> Acts {
    let mut acts = Acts::new();
    kernels.quantize_acts(&Pool::new(1), x, m_rows, cols, planes, &mut acts);
    acts
}

fn product(kernels: &Kernels, w: &QuantMatrix<'_>, acts: &Acts, m_rows: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; m_rows * w.rows()];
    kernels.matmul_q(&Pool::new(1), w, acts, m_rows, &mut y);
    y
}

fn dequantized(acts: &Acts) -> Vec<f32> {
    let mut all = vec![f32::NAN; acts.rows() * acts.cols()];
    for (row, out) in all.chunks_exact_mut(acts.cols()).enumerate() {
        acts.dequantize_row(row, out);
    }
    all
}

/// (rows, cols, rows of activations): around the blocks of each, and the real shapes.
fn shapes() -> Vec<(usize, usize, usize)> {
    let mut list: Vec<_> = (1..=33).map(|rows| (rows, 64 * (1 + rows % 3), rows % 5)).collect();
    list.extend((0..=17).map(|m| (16 + m % 3 * 8, 128, m)));
    list.extend([
        (16, 64 * 15, 2),
        (16, 64 * 16, 1),
        (17, 64 * 17, 3),
        (9, 64 * 33, 3),
        (32, 128, 64),
        (19, 192, 65),
        (48, 128, 131),
    ]);
    // More rows than pass together over a matrix, numbers that do not divide.
    list.extend([(48, 192, 33), (35, 128, 131), (32, 8192, 70)]);
    list.extend([
        (704, 2816, 1),
        (704, 2816, 3),
        (2816, 704, 1),
        (128, 2816, 9),
        (2112, 128, 1),
        (32, 2816, 203),
    ]);
    list
}

/// The definition, in f64 where that cannot matter.
#[test]
fn quantization_is_what_it_says() {
    let mut r = Random(20);
    for planes in PLANES {
        let steps = if planes == Planes::One { 127.0f32 } else { 32512.0 };
        for round in 0..60 {
            let size = [1.0, 1e-20, 1e20, 1e-29, 3e38][round % 5];
            let x: Vec<f32> = r.vector(192).into_iter().map(|v| v * size).collect();
            let acts = quantized(scalar(), &x, 1, 192, planes);
            let back = dequantized(&acts);
            for (x, back) in x.chunks(64).zip(back.chunks(64)) {
                let largest = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
                let (step, inverse) = (largest / steps, steps / largest);
                for (&x, &back) in x.iter().zip(back) {
                    assert_eq!(back, (x * inverse).round_ties_even() * step, "{x:e} of {largest:e}");
                    let off = (f64::from(x) - f64::from(back)).abs();
                    // Half a step, and the roundings of f32 at up to 2^15 steps.
                    assert!(off <= 0.51 * f64::from(step), "{x:e}: {back:e}, step {step:e}");
                }
            }
        }
    }
}

#[test]
fn every_isa_quantizes_alike_whatever_the_values() {
    let mut r = Random(21);
    let edges = [&EDGES[..], &WILD[..]].concat();
    let ties: Vec<f32> = (-127..127).map(|i| i as f32 + 0.5).chain([127.0, -127.0]).collect();
    for planes in PLANES {
        for round in 0..40 {
            let (m_rows, cols) = (1 + round % 4, 64 * (1 + round % 7));
            let mut x = if round % 2 == 0 {
                r.vector_with(m_rows * cols, &EDGES)
            } else {
                r.vector_with(m_rows * cols, &edges[..EDGES.len() + round / 2 % WILD.len()])
            };
            x[..64].copy_from_slice(&ties[round..round + 64]);
            let expected = quantized(scalar(), &x, m_rows, cols, planes);
            for kernels in vector_kernels() {
                let acts = quantized(kernels, &x, m_rows, cols, planes);
                assert_same(&dequantized(&acts), &dequantized(&expected), "quantized");
                // The sums, which only products see: through weights 0 with bias 1.
                let sides = vec![(0.0, 1.0); 16 * cols / 64];
                let ones = Matrix::with_sides(&mut r, 16, cols, 4, &sides);
                let sums = |acts| product(scalar(), &ones.view(), acts, m_rows);
                assert_same(&sums(&acts), &sums(&expected), "sums");
            }
        }
    }
}

#[test]
fn quantizing_on_a_pool_gives_the_same() {
    let x = Random(22).vector(33 * 2816);
    for planes in PLANES {
        let expected = dequantized(&quantized(scalar(), &x, 33, 2816, planes));
        for threads in 1..=4 {
            let mut acts = Acts::with_capacity(1, 64, planes);
            let pool = Pool::new(threads);
            for kernels in all_kernels() {
                kernels.quantize_acts(&pool, &x, 33, 2816, planes, &mut acts);
                assert_same(&dequantized(&acts), &expected, "pool");
            }
        }
    }
}

/// The product of what was quantized, to f32's accuracy.
#[test]
fn scalar_is_the_product_of_the_quantized_values() {
    let mut r = Random(23);
    for (rows, cols, m_rows) in shapes().into_iter().filter(|s| s.0 * s.1 * s.2 < 400_000) {
        for (bits, planes) in [(4, Planes::One), (4, Planes::Two), (8, Planes::One), (8, Planes::Two)] {
            let matrix = Matrix::random(&mut r, rows, cols, bits);
            let acts = quantized(scalar(), &r.vector(m_rows * cols), m_rows, cols, planes);
            let x = dequantized(&acts);
            for (i, &y) in product(scalar(), &matrix.view(), &acts, m_rows).iter().enumerate() {
                let (m, row) = (i / rows, i % rows);
                let term = |c: usize| matrix.weight(row, c) * f64::from(x[m * cols + c]);
                let (sum, size) = (0..cols).map(term).fold((0.0, 0.0), |(s, z), t| (s + t, z + t.abs()));
                let error = (f64::from(y) - sum).abs();
                assert!(
                    error <= 2e-6 * size,
                    "{rows}x{cols}, {bits} bits, ({m}, {row}): {error:e} of {size}"
                );
            }
        }
    }
}

/// Against the product of what was not quantized: relative to the result's own size, over a whole vector. Where
/// single outliers make up the result, their group's 64 errors of up to half a step do too: sqrt(64 / 12) steps.
#[test]
fn errors_stay_within_their_bounds() {
    let mut r = Random(24);
    let (rows, cols) = (352, 2816);
    for bits in [4, 8] {
        let matrix = Matrix::random(&mut r, rows, cols, bits);
        for outliers in [0, 3, 40] {
            // About normal: sums of uniform values.
            let mut x: Vec<f32> = (0..cols).map(|_| (0..6).map(|_| r.unit()).sum::<f32>()).collect();
            for _ in 0..outliers {
                let at = r.below(cols);
                x[at] *= 60.0;
            }
            let exact: Vec<f64> = (0..rows)
                .map(|row| (0..cols).map(|c| matrix.weight(row, c) * f64::from(x[c])).sum())
                .collect();
            let size = exact.iter().map(|y| y * y).sum::<f64>().sqrt();
            for (planes, steps, ordinary) in [(Planes::One, 127.0, 7e-3), (Planes::Two, 32512.0, 3e-5)] {
                let worst = 1.1 * (64.0f64 / 12.0).sqrt() / steps;
                let bound = if outliers == 0 { ordinary } else { worst };
                let acts = quantized(scalar(), &x, 1, cols, planes);
                let y = product(scalar(), &matrix.view(), &acts, 1);
                let off = y.iter().zip(&exact).map(|(&y, e)| (f64::from(y) - e).powi(2)).sum::<f64>().sqrt();
                let error = off / size;
                println!("{bits} bits, {planes:?}, {outliers} outliers: {error:.2e}");
                assert!(error <= bound, "{bits} bits, {planes:?}, {outliers} outliers: {error:e}");
                assert!(error >= bound / 100.0, "a plane is missing somewhere: {error:e}");
            }
        }
    }
}

#[test]
fn every_isa_gives_the_scalar_bits_from_rows_and_tiles() {
    let mut r = Random(25);
    for (rows, cols, m_rows) in shapes() {
        for bits in [4, 8] {
            let matrix = Matrix::random(&mut r, rows, cols, bits);
            let x = r.vector(m_rows * cols);
            for planes in PLANES {
                let acts = quantized(scalar(), &x, m_rows, cols, planes);
                let expected = product(scalar(), &matrix.view(), &acts, m_rows);
                let what = format!("{rows}x{cols}, {bits} bits, {m_rows} rows, {planes:?}");
                for kernels in vector_kernels() {
                    let got = product(kernels, &matrix.view(), &acts, m_rows);
                    assert_same(&got, &expected, &format!("{:?} {what}", kernels.isa()));
                }
                if tile::is_tileable(rows, cols, bits) {
                    let (bytes, panel_stride) = matrix.tiles(rows % 3 * 64);
                    let data = QuantData::Tiles { data: &bytes, panel_stride };
                    let view = QuantMatrix::new(rows, cols, bits, data).unwrap();
                    for kernels in all_kernels() {
                        let got = product(kernels, &view, &acts, m_rows);
                        assert_same(&got, &expected, &format!("{:?} tiles {what}", kernels.isa()));
                    }
                }
            }
        }
    }
}

#[test]
fn any_start_of_weights_and_results() {
    let mut r = Random(26);
    let (rows, cols) = (48, 192);
    for (bits, planes) in [(4, Planes::One), (4, Planes::Two), (8, Planes::One), (8, Planes::Two)] {
        let matrix = Matrix::random(&mut r, rows, cols, bits);
        for m_rows in [1, 3] {
            let x = r.vector(m_rows * cols);
            let acts = quantized(scalar(), &x, m_rows, cols, planes);
            let expected = product(scalar(), &matrix.view(), &acts, m_rows);
            for offset in 0..17 {
                let moved = matrix.shifted(offset);
                let (tiles, panel_stride) = moved.tiles(offset);
                let tiles = [vec![1; offset], tiles].concat();
                let x = [vec![7.0; offset], x.clone()].concat();
                for kernels in all_kernels() {
                    let acts = quantized(kernels, &x[offset..], m_rows, cols, planes);
                    let end = offset + m_rows * rows;
                    let mut y = vec![f32::NAN; end + 1];
                    kernels.matmul_q(&Pool::new(1), &moved.view(), &acts, m_rows, &mut y[offset..end]);
                    assert_same(&y[offset..end], &expected, "moved rows");
                    if bits == 4 {
                        let data = QuantData::Tiles { data: &tiles[offset..], panel_stride };
                        let view = QuantMatrix::new(rows, cols, 4, data).unwrap();
                        y[offset..end].fill(f32::NAN);
                        kernels.matmul_q(&Pool::new(1), &view, &acts, m_rows, &mut y[offset..end]);
                        assert_same(&y[offset..end], &expected, "moved tiles");
                    }
                    assert!(y[..offset].iter().all(|v| v.is_nan()) && y[end].is_nan(), "wrote outside");
                }
            }
        }
    }
}

/// A row of activations alone, in batches of 1 to 17, gathered elsewhere; on pools of 1 to 4; whole and in slices.
#[test]
fn an_element_depends_on_its_own_operands_only() {
    let mut r = Random(27);
    let (rows, cols, m_rows) = (208, 320, 21);
    let pools: Vec<Pool> = (1..=4).map(Pool::new).collect();
    for (bits, planes) in [(4, Planes::One), (4, Planes::Two), (8, Planes::One), (8, Planes::Two)] {
        let matrix = Matrix::random(&mut r, rows, cols, bits);
        let w = matrix.view();
        let acts = quantized(scalar(), &r.vector(m_rows * cols), m_rows, cols, planes);
        for kernels in all_kernels() {
            let whole = product(kernels, &w, &acts, m_rows);
            for pool in &pools {
                let mut y = vec![f32::NAN; m_rows * rows];
                kernels.matmul_q(pool, &w, &acts, m_rows, &mut y);
                assert_same(&y, &whole, "pool");
            }
            for count in 1..=17 {
                let got = product(kernels, &w, &acts, count);
                assert_same(&got, &whole[..count * rows], "fewer rows");
            }
            let mut some = Acts::new();
            for picked in [vec![], vec![20], vec![3, 19, 3], (0..9).rev().collect()] {
                some.gather(&acts, &picked);
                let got = product(kernels, &w, &some, picked.len());
                for (got, &m) in got.chunks(rows).zip(&picked) {
                    assert_same(got, &whole[m * rows..][..rows], "gathered");
                }
            }
            for range in [0..16, 16..208, 0..1, 5..6, 7..99, 200..208, 15..17, 3..3] {
                for count in [1, 2, 9] {
                    let mut y = vec![f32::NAN; count * range.len()];
                    kernels.matmul_q_rows(&w, range.clone(), &acts, count, &mut y);
                    for (m, y) in y.chunks(range.len().max(1)).enumerate() {
                        assert_same(y, &whole[m * rows..][range.clone()], "rows");
                    }
                }
            }
        }
    }
}

#[test]
fn splits_of_real_shapes() {
    let mut r = Random(28);
    let matrix = Matrix::random(&mut r, 704, 2816, 4);
    let (bytes, panel_stride) = matrix.tiles(0);
    let w = QuantMatrix::new(704, 2816, 4, QuantData::Tiles { data: &bytes, panel_stride }).unwrap();
    let kernels = Kernels::detect();
    let acts = quantized(kernels, &r.vector(2816), 1, 2816, Planes::Two);
    let whole = product(kernels, &w, &acts, 1);
    for threads in [2, 3] {
        for index in 0..threads {
            let rows = split(704, threads, index, 1);
            let mut y = vec![0.0; rows.len()];
            kernels.matmul_q_rows(&w, rows.clone(), &acts, 1, &mut y);
            assert_same(&y, &whole[rows], "unaligned split");
        }
    }
}

/// The largest weights and activations of one sign: nothing saturates. Then scales and values at the edges of f32.
#[test]
fn extremes_are_exact_and_edges_agree() {
    let mut r = Random(29);
    let (rows, cols) = (32, 192);
    for (bits, largest) in [(4, 15.0f32), (8, 255.0)] {
        for planes in PLANES {
            for value in [1.0f32, -1.0] {
                let sides = vec![(1.0, 0.0); rows * cols / 64];
                let matrix = Matrix::with_sides(&mut r, rows, cols, bits, &sides).filled(0xFF);
                let steps = if planes == Planes::One { 127.0 } else { 32512.0f32 };
                let x = vec![value * steps; 3 * cols];
                for kernels in all_kernels() {
                    let acts = quantized(kernels, &x, 3, cols, planes);
                    for m_rows in 1..=3 {
                        let expected = vec![value * steps * largest * cols as f32; m_rows * rows];
                        assert_same(&product(kernels, &matrix.view(), &acts, m_rows), &expected, "largest");
                    }
                }
            }
        }
        let finite = [0.0, -0.0, 1e-40, -1e-39, 1.0, -1.0, 1e9, -1e9, 3e-5, f32::MIN_POSITIVE];
        for round in 0..28 {
            let planes = PLANES[round % 2];
            let pick = |r: &mut Random| (finite[r.below(finite.len())], finite[r.below(finite.len())]);
            let sides: Vec<_> = (0..rows * cols / 64).map(|_| pick(&mut r)).collect();
            let matrix = Matrix::with_sides(&mut r, rows, cols, bits, &sides);
            let mut x = r.vector_with(3 * cols, &EDGES);
            x[cols..2 * cols].fill(0.0);
            let wild = WILD[round / 2 % WILD.len()];
            x[2 * cols + r.below(cols)] = wild;
            let acts = quantized(scalar(), &x, 3, cols, planes);
            let expected = product(scalar(), &matrix.view(), &acts, 3);
            assert!(expected[..2 * rows].iter().all(|y| !y.is_nan()));
            assert!(expected[rows..2 * rows].iter().all(|&y| y == 0.0), "a row of zeros");
            assert!(expected[2 * rows..].iter().all(|y| y.is_nan() != wild.is_finite()), "{wild}");
            let (bytes, panel_stride) = if bits == 4 { matrix.tiles(3) } else { (vec![], 0) };
            for kernels in all_kernels() {
                assert_same(&product(kernels, &matrix.view(), &acts, 3), &expected, "rows");
                if bits == 4 {
                    let data = QuantData::Tiles { data: &bytes, panel_stride };
                    let view = QuantMatrix::new(rows, cols, 4, data).unwrap();
                    assert_same(&product(kernels, &view, &acts, 3), &expected, "tiles");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rows_tiles_and_isas_agree(
        panels in 1usize..4, groups in 1usize..20, m_rows in 0usize..18, gap in 0usize..100, seed: u64, two: bool,
    ) {
        let mut r = Random(seed);
        let planes = PLANES[usize::from(two)];
        let matrix = Matrix::random(&mut r, panels * 16, groups * 64, 4);
        let (bytes, panel_stride) = matrix.tiles(gap);
        let data = QuantData::Tiles { data: &bytes, panel_stride };
        let tiled = QuantMatrix::new(matrix.rows, matrix.cols, 4, data).unwrap();
        let x = r.vector_with(m_rows * matrix.cols, &EDGES);
        let acts = quantized(scalar(), &x, m_rows, matrix.cols, planes);
        let expected = product(scalar(), &matrix.view(), &acts, m_rows);
        for kernels in all_kernels() {
            for view in [&matrix.view(), &tiled] {
                let got = product(kernels, view, &acts, m_rows);
                prop_assert!(got.iter().zip(&expected).all(|(&a, &b)| same(a, b)));
            }
        }
    }
}

#[test]
fn streams_fold_every_word() {
    let mut r = Random(30);
    for len in [0, 1, 63, 64, 65, 255, 256, 1000, 4096 + 64 * 3, 100_000] {
        let bytes = r.bytes(len + 3);
        let bytes = &bytes[3..];
        let words = bytes[..len / 64 * 64].chunks(8);
        let expected = words.fold(0, |all, word| all ^ u64::from_le_bytes(word.try_into().unwrap()));
        for kernels in all_kernels() {
            for threads in [1, 3] {
                assert_eq!(kernels.stream(&Pool::new(threads), bytes), expected);
            }
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let matrix = Matrix::random(&mut Random(31), 16, 64, 4);
    let acts = quantized(scalar(), &[1.0; 128], 2, 64, Planes::One);
    let wide = quantized(scalar(), &[1.0; 128], 1, 128, Planes::One);
    let refused = |acts: &Acts, m_rows: usize, y: usize| {
        let run = || scalar().matmul_q(&Pool::new(1), &matrix.view(), acts, m_rows, &mut vec![0.0; y]);
        std::panic::catch_unwind(run).is_err()
    };
    assert!(!refused(&acts, 2, 32) && !refused(&acts, 1, 16));
    assert!(refused(&acts, 3, 48) && refused(&acts, 2, 33) && refused(&acts, 1, 32) && refused(&wide, 1, 16));
    let quantize = |x: usize, m_rows: usize, cols: usize| {
        std::panic::catch_unwind(|| quantized(scalar(), &vec![0.0; x], m_rows, cols, Planes::Two).rows())
    };
    assert_eq!(quantize(128, 2, 64).ok(), Some(2));
    assert!(
        quantize(127, 2, 64).is_err() && quantize(64, 2, 32).is_err() && quantize(0, usize::MAX, 64).is_err()
    );
    let gather = |row| std::panic::catch_unwind(|| Acts::new().gather(&acts, &[row]));
    assert!(gather(1).is_ok() && gather(2).is_err());
}
