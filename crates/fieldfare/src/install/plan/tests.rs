use super::*;

fn piece(file: usize, offset: u64, len: u64) -> Piece {
    Piece { file, offset, len }
}

#[test]
fn pieces_are_joined_up_to_gap_and_window() {
    let pieces = || vec![piece(1, 0, 10), piece(0, 30, 10), piece(0, 0, 10), piece(0, 12, 8)];
    assert_eq!(coalesce(pieces(), 100, 10), [piece(0, 0, 40), piece(1, 0, 10)]);
    assert_eq!(coalesce(pieces(), 100, 9), [piece(0, 0, 20), piece(0, 30, 10), piece(1, 0, 10)]);
    assert_eq!(
        coalesce(pieces(), 19, 10),
        [piece(0, 0, 10), piece(0, 12, 8), piece(0, 30, 10), piece(1, 0, 10)]
    );
    assert_eq!(coalesce(vec![piece(0, 0, 20), piece(0, 5, 3)], 100, 0), [piece(0, 0, 20)]);
}
