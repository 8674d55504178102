//! Matrices: scalar against f64, vectors against scalar, and the promise that one element depends on its own
//! operands only.

use crate::data::*;
use fieldfare_kernels::{Kernels, Pool, QuantData, QuantMatrix, split, tile};
use proptest::prelude::*;

fn product(kernels: &Kernels, w: &QuantMatrix<'_>, x: &[f32], m_rows: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; m_rows * w.rows()];
    kernels.matmul(&Pool::new(1), w, x, m_rows, &mut y);
    y
}

/// (rows, cols, x rows): around the blocks of rows, groups and x rows, and the real shapes.
fn shapes() -> Vec<(usize, usize, usize)> {
    let mut list: Vec<_> = (1..=33).map(|rows| (rows, 64 * (1 + rows % 3), rows % 5)).collect();
    list.extend((0..=18).map(|m| (19, 128, m)));
    list.extend([
        (16, 64 * 15, 2),
        (16, 64 * 16, 1),
        (17, 64 * 17, 1),
        (9, 64 * 33, 3),
        (32, 128, 64),
        (35, 64, 131),
    ]);
    list.extend([
        (704, 2816, 1),
        (704, 2816, 3),
        (2816, 704, 1),
        (2816, 704, 2),
        (128, 2816, 9),
        (2112, 128, 1),
    ]);
    list
}

#[test]
fn scalar_is_the_definition() {
    let mut r = Random(1);
    for (rows, cols, m_rows) in shapes().into_iter().filter(|s| s.0 * s.1 * s.2 < 400_000) {
        for bits in [4, 8] {
            let matrix = Matrix::random(&mut r, rows, cols, bits);
            let x = r.vector(m_rows * cols);
            let y = product(scalar(), &matrix.view(), &x, m_rows);
            for (i, &y) in y.iter().enumerate() {
                let (m, row) = (i / rows, i % rows);
                let terms = (0..cols).map(|c| matrix.weight(row, c) * f64::from(x[m * cols + c]));
                let (sum, size) = terms.fold((0.0, 0.0f64), |(sum, size), t| (sum + t, size + t.abs()));
                let error = (f64::from(y) - sum).abs();
                assert!(
                    error <= 1e-6 * size,
                    "{rows}x{cols}, {bits} bits: ({m}, {row}) is off by {error:e} of {size}"
                );
            }
        }
    }
}

#[test]
fn every_isa_gives_the_scalar_bits_from_rows_and_tiles() {
    let mut r = Random(2);
    for (rows, cols, m_rows) in shapes() {
        for bits in [4, 8] {
            let matrix = Matrix::random(&mut r, rows, cols, bits);
            let x = r.vector(m_rows * cols);
            let expected = product(scalar(), &matrix.view(), &x, m_rows);
            let what = format!("{rows}x{cols}, {bits} bits, {m_rows} rows of x");
            for kernels in vector_kernels() {
                let got = product(kernels, &matrix.view(), &x, m_rows);
                assert_same(&got, &expected, &format!("{:?} {what}", kernels.isa()));
            }
            if tile::is_tileable(rows, cols, bits) {
                let (bytes, panel_stride) = matrix.tiles(rows % 3 * 64);
                let data = QuantData::Tiles { data: &bytes, panel_stride };
                let view = QuantMatrix::new(rows, cols, bits, data).unwrap();
                for kernels in all_kernels() {
                    let got = product(kernels, &view, &x, m_rows);
                    assert_same(&got, &expected, &format!("{:?} tiles {what}", kernels.isa()));
                }
            }
        }
    }
}

#[test]
fn any_start_of_any_operand() {
    let mut r = Random(3);
    let (rows, cols) = (48, 192);
    for bits in [4, 8] {
        let matrix = Matrix::random(&mut r, rows, cols, bits);
        for m_rows in [1, 3] {
            let x = r.vector(m_rows * cols);
            let expected = product(scalar(), &matrix.view(), &x, m_rows);
            for offset in 0..17 {
                let moved = matrix.shifted(offset);
                let x = [vec![7.0; offset], x.clone()].concat();
                let (tiles, panel_stride) = moved.tiles(offset);
                let tiles = [vec![1; offset], tiles].concat();
                for kernels in all_kernels() {
                    let mut y = vec![f32::NAN; offset + m_rows * rows + 1];
                    let end = offset + m_rows * rows;
                    kernels.matmul(&Pool::new(1), &moved.view(), &x[offset..], m_rows, &mut y[offset..end]);
                    assert_same(&y[offset..end], &expected, "moved rows");
                    if bits == 4 {
                        let data = QuantData::Tiles { data: &tiles[offset..], panel_stride };
                        let view = QuantMatrix::new(rows, cols, 4, data).unwrap();
                        kernels.matmul(&Pool::new(1), &view, &x[offset..], m_rows, &mut y[offset..end]);
                        assert_same(&y[offset..end], &expected, "moved tiles");
                    }
                    assert!(y[..offset].iter().all(|v| v.is_nan()) && y[end].is_nan(), "wrote outside");
                }
            }
        }
    }
}

/// One row of x alone, in a batch, in another place of a batch; on pools of 1, 2 and 3; whole and in slices.
#[test]
fn an_element_depends_on_its_own_operands_only() {
    let mut r = Random(4);
    let (rows, cols, m_rows) = (208, 320, 77);
    let pools = [Pool::new(1), Pool::new(2), Pool::new(3)];
    for bits in [4, 8] {
        let matrix = Matrix::random(&mut r, rows, cols, bits);
        let w = matrix.view();
        let x = r.vector(m_rows * cols);
        for kernels in all_kernels() {
            let whole = product(kernels, &w, &x, m_rows);
            for pool in &pools {
                let mut y = vec![f32::NAN; m_rows * rows];
                kernels.matmul(pool, &w, &x, m_rows, &mut y);
                assert_same(&y, &whole, "pool");
            }
            for m in [0, 1, 7, 8, 63, 64, 76] {
                let alone = product(kernels, &w, &x[m * cols..(m + 1) * cols], 1);
                assert_same(&alone, &whole[m * rows..(m + 1) * rows], "alone");
                let count = (m_rows - m).min(5);
                let some = product(kernels, &w, &x[m * cols..(m + count) * cols], count);
                assert_same(&some, &whole[m * rows..(m + count) * rows], "batch from another row on");
            }
            for range in [0..16, 16..208, 0..1, 5..6, 7..99, 200..208, 15..17, 3..3] {
                for count in [1, 2, 9] {
                    let mut y = vec![f32::NAN; count * range.len()];
                    kernels.matmul_rows(&w, range.clone(), &x[..count * cols], count, &mut y);
                    for (m, y) in y.chunks(range.len().max(1)).enumerate() {
                        assert_same(y, &whole[m * rows..][range.clone()], "rows");
                    }
                }
            }
        }
    }
}

#[test]
fn splits_of_real_shapes_over_pools() {
    let mut r = Random(5);
    let matrix = Matrix::random(&mut r, 704, 2816, 4);
    let (bytes, panel_stride) = matrix.tiles(0);
    let w = QuantMatrix::new(704, 2816, 4, QuantData::Tiles { data: &bytes, panel_stride }).unwrap();
    let x = r.vector(2816);
    let kernels = Kernels::detect();
    let whole = product(kernels, &w, &x, 1);
    for threads in [2, 3] {
        let mut y = vec![0.0; 704];
        kernels.matmul(&Pool::new(threads), &w, &x, 1, &mut y);
        assert_same(&y, &whole, "pool");
        for index in 0..threads {
            let rows = split(704, threads, index, 1);
            let mut y = vec![0.0; rows.len()];
            kernels.matmul_rows(&w, rows.clone(), &x, 1, &mut y);
            assert_same(&y, &whole[rows], "unaligned split");
        }
    }
}

/// Zeros, subnormals, large values, negative scales; then what infinities and NaN do.
#[test]
fn edges_of_scales_and_activations() {
    let mut r = Random(6);
    let (rows, cols) = (20, 192);
    let finite = [0.0, -0.0, 1e-40, -1e-39, 1.0, -1.0, 1e9, -1e9, 3e-5, f32::MIN_POSITIVE];
    for bits in [4, 8] {
        for round in 0..20 {
            let sides: Vec<_> = (0..rows * cols / 64)
                .map(|_| (finite[r.below(finite.len())], finite[r.below(finite.len())]))
                .collect();
            let matrix = Matrix::with_sides(&mut r, rows, cols, bits, &sides);
            let mut x = r.vector_with(2 * cols, &EDGES);
            if round % 2 == 1 {
                x[r.below(2 * cols)] = WILD[round / 2 % WILD.len()];
            }
            let expected = product(scalar(), &matrix.view(), &x, 2);
            for kernels in vector_kernels() {
                assert_same(&product(kernels, &matrix.view(), &x, 2), &expected, "two rows of x");
                assert_same(
                    &product(kernels, &matrix.view(), &x[cols..], 1),
                    &expected[rows..],
                    "one row of x",
                );
            }
            if round % 2 == 0 {
                assert!(expected.iter().all(|v| v.is_finite()));
            }
        }
        let mut matrix = Matrix::random(&mut r, 16, 64, bits);
        let mut x = r.vector(64);
        x[17] = f32::NAN;
        assert!(all_kernels().iter().all(|k| product(k, &matrix.view(), &x, 1).iter().all(|v| v.is_nan())));
        // A damaged scale spoils its row and no other.
        matrix = Matrix::with_sides(&mut r, 2, 64, bits, &[(f32::INFINITY, 0.0), (0.5, 0.0)]);
        x[17] = 1.0;
        for kernels in all_kernels() {
            let y = product(kernels, &matrix.view(), &x, 1);
            assert!(!y[0].is_finite() && y[1].is_finite());
        }
    }
}

#[test]
fn dequantized_rows_are_what_matmul_multiplies_with() {
    let mut r = Random(7);
    for (rows, cols) in [(16, 64), (32, 704), (5, 192)] {
        for bits in [4, 8] {
            let matrix = Matrix::random(&mut r, rows, cols, bits);
            for row in 0..rows {
                let mut expected = vec![0.0; cols];
                scalar().dequantize_row(&matrix.view(), row, &mut expected);
                for (c, &v) in expected.iter().enumerate() {
                    // q * scale is exact, the sum rounds once: the f64 value rounded is the same.
                    assert_eq!(v, matrix.weight(row, c) as f32);
                }
                for kernels in vector_kernels() {
                    let mut got = vec![f32::NAN; cols];
                    kernels.dequantize_row(&matrix.view(), row, &mut got);
                    assert_same(&got, &expected, "rows");
                    if tile::is_tileable(rows, cols, bits) {
                        let (bytes, panel_stride) = matrix.tiles(64);
                        let data = QuantData::Tiles { data: &bytes, panel_stride };
                        kernels.dequantize_row(
                            &QuantMatrix::new(rows, cols, bits, data).unwrap(),
                            row,
                            &mut got,
                        );
                        assert_same(&got, &expected, "tiles");
                    }
                }
            }
        }
    }
    // Through matmul: a unit vector picks a column.
    let matrix = Matrix::random(&mut r, 32, 128, 4);
    for c in [0, 1, 63, 64, 127] {
        let mut x = vec![0.0; 128];
        x[c] = 1.0;
        for kernels in all_kernels() {
            let y = product(kernels, &matrix.view(), &x, 1);
            for (row, &y) in y.iter().enumerate() {
                assert_eq!(y, matrix.weight(row, c) as f32);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packing_has_an_inverse(groups in 1usize..8, seed: u64) {
        let cols = groups * 64;
        let mut r = Random(seed);
        let parts = [16 * cols / 2, 16 * groups * 2, 16 * groups * 2];
        let source = parts.map(|n| r.bytes(n));
        let mut panel = vec![0; tile::panel_bytes(cols)];
        tile::pack_panel(cols, &source[0], &source[1], &source[2], &mut panel);
        let mut back = parts.map(|n| vec![0; n]);
        let [w, s, b] = &mut back;
        tile::unpack_panel(cols, &panel, w, s, b);
        prop_assert_eq!(&back, &source);
        // And the other way: every panel is the packing of what it unpacks to.
        let other = r.bytes(panel.len());
        let [w, s, b] = &mut back;
        tile::unpack_panel(cols, &other, w, s, b);
        tile::pack_panel(cols, &back[0], &back[1], &back[2], &mut panel);
        prop_assert_eq!(panel, other);
    }

    #[test]
    fn tiles_and_rows_agree(panels in 1usize..4, groups in 1usize..20, m_rows in 0usize..12, gap in 0usize..100, seed: u64) {
        let mut r = Random(seed);
        let matrix = Matrix::random(&mut r, panels * 16, groups * 64, 4);
        let (bytes, panel_stride) = matrix.tiles(gap);
        let data = QuantData::Tiles { data: &bytes, panel_stride };
        let tiled = QuantMatrix::new(matrix.rows, matrix.cols, 4, data).unwrap();
        let x = r.vector(m_rows * matrix.cols);
        for kernels in all_kernels() {
            let (a, b) = (product(kernels, &matrix.view(), &x, m_rows), product(kernels, &tiled, &x, m_rows));
            prop_assert!(a.iter().zip(&b).all(|(&a, &b)| same(a, b)));
        }
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let matrix = Matrix::random(&mut Random(8), 16, 64, 4);
    let attempt = |x: usize, m_rows: usize, y: usize| {
        let run = || scalar().matmul(&Pool::new(1), &matrix.view(), &vec![0.0; x], m_rows, &mut vec![0.0; y]);
        std::panic::catch_unwind(run).is_err()
    };
    assert!(!attempt(128, 2, 32));
    assert!(attempt(127, 2, 32) && attempt(128, 2, 33) && attempt(128, 1, 32) && attempt(64, usize::MAX, 16));
    let rows =
        |range| std::panic::catch_unwind(|| scalar().matmul_rows(&matrix.view(), range, &[], 0, &mut []));
    assert!(rows(0..16).is_ok() && rows(0..17).is_err());
}
