use super::*;

const MIXED: &str = "# Title\nA paragraph\nof two lines.\n\n- one\n- two\n\n  still two\n\n1. first\n2. second\n\n```rust\nfn main() {}\n\nlet a = 1;\n```\nafter\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n> more\n\n- item\n\n  ```\n  code in a list\n\n  more\n  ```\n\nend $x_1$ and `code`.\n";

fn shapes(doc: &Doc) -> Vec<(Range<usize>, Kind)> {
    doc.blocks().iter().map(|block| (block.range.clone(), block.kind.clone())).collect()
}

#[test]
fn blocks_are_what_stands_between_blank_lines() {
    let doc = Doc::markdown(MIXED);
    let sources: Vec<&str> = (0..doc.blocks().len()).map(|index| doc.source(index).trim()).collect();
    assert_eq!(
        sources,
        [
            "# Title",
            "A paragraph\nof two lines.",
            "- one\n- two\n\n  still two\n\n1. first\n2. second",
            "fn main() {}\n\nlet a = 1;",
            "after",
            "| a | b |\n|---|---|\n| 1 | 2 |",
            "> quote\n> more",
            "- item\n\n  ```\n  code in a list\n\n  more\n  ```",
            "end $x_1$ and `code`.",
        ]
    );
    assert!(
        matches!(&doc.blocks()[3].kind, Kind::Code { language, first: true, last: true, .. } if language == "rust")
    );
}

#[test]
fn growing_by_any_piece_ends_in_the_same_blocks_as_the_whole() {
    let mut long = MIXED.repeat(3);
    long.push_str("```\n");
    for line in 0..200 {
        long.push_str(&format!("line {line}\n"));
    }
    long.push_str("```\n\n");
    long.push_str("| a | b |\n|---|---|\n");
    for row in 0..400 {
        long.push_str(&format!("| row {row} | of a long table |\n"));
    }
    long.push_str("\n| c |\n|---|\n| 1 |\n# Heading\n");
    long.push_str(&"word ".repeat(4_000));
    for step in [1usize, 3, 7, 64] {
        let mut grown = Doc::markdown("");
        let mut at = 0;
        while at < long.len() {
            at = (at + step).min(long.len());
            grown.set(&long[..at]);
            if at % 11 == 0 || at == long.len() {
                assert_eq!(shapes(&grown), shapes(&Doc::markdown(&long[..at])), "after {at} bytes by {step}");
            }
        }
    }
}

#[test]
fn more_text_leaves_all_but_the_last_blocks_alone() {
    let mut text = String::new();
    for paragraph in 0..1_000 {
        text.push_str(&format!("Paragraph {paragraph} says something about nothing.\n\n"));
    }
    let mut doc = Doc::markdown(&text);
    for block in doc.blocks_mut() {
        block.height = Some((20.0, 700.0));
    }
    text.push_str("And on");
    let kept = doc.set(&text);
    assert!(kept >= 998, "{kept} kept");
    assert_eq!(doc.blocks().iter().filter(|block| block.height.is_some()).count(), kept);
}

#[test]
fn code_of_any_length_is_copied_whole() {
    let code: String = (0..500).map(|line| format!("let x{line} = {line};\n")).collect();
    let doc = Doc::markdown(&format!("before\n\n```rust\n{code}```\n\nafter\n"));
    assert!(doc.blocks().len() > 8);
    assert_eq!(doc.whole_code(1), code);
    let unfinished = Doc::markdown(&format!("```\n{code}"));
    assert_eq!(unfinished.whole_code(0), code);
}

#[test]
fn a_long_table_is_cut_between_rows_and_every_piece_has_its_head() {
    let mut table = String::from("| number | word |\n|---:|---|\n");
    for row in 0..500 {
        table.push_str(&format!("| {row} | a word that takes some room |\n"));
    }
    let mut doc = Doc::markdown(&format!("before\n\n{table}\nafter\n"));
    let pieces = doc.blocks().len() - 2;
    assert!(pieces > 3, "{pieces} pieces");
    let mut rows = 0;
    for index in 1..=pieces {
        let nodes = doc.nodes(index);
        let [Node::Table(align, piece)] = &nodes[..] else { panic!("{index}: {nodes:?}") };
        assert_eq!((align.len(), piece[0][0][0].text.as_str()), (2, "number"));
        rows += piece.len() - 1;
    }
    assert_eq!(rows, 500);
    assert!(matches!(doc.nodes(pieces + 1)[..], [Node::Paragraph(_)]));
}

#[test]
fn guesses_are_made_once_for_a_width_and_not_of_what_was_measured() {
    let mut doc = Doc::markdown("one\n\ntwo\n\nthree\n");
    doc.blocks_mut()[0].height = Some((20.0, 700.0));
    let count = std::cell::Cell::new(0);
    let guess = |doc: &mut Doc, width: f32| {
        doc.guess(width, |_| {
            count.set(count.get() + 1);
            33.0
        });
        count.take()
    };
    assert_eq!(guess(&mut doc, 700.0), 2);
    assert_eq!(guess(&mut doc, 700.0), 0);
    assert_eq!(guess(&mut doc, 500.0), 2);
    assert_eq!(doc.blocks()[2].guess, Some((33.0, 500.0)));
}

#[test]
fn another_text_starts_anew() {
    let mut doc = Doc::markdown("one\n\ntwo");
    doc.set("three");
    assert_eq!(doc.blocks().len(), 1);
    assert_eq!(doc.source(0), "three");
    doc.set("");
    assert!(doc.blocks().is_empty());
}

#[test]
fn a_line_without_end_is_cut() {
    let doc = Doc::markdown(&"word ".repeat(40_000));
    assert!(doc.blocks().len() > 20, "{}", doc.blocks().len());
    let whole: String = (0..doc.blocks().len()).map(|index| doc.source(index)).collect();
    assert_eq!(whole, "word ".repeat(40_000));
}

#[test]
fn every_byte_of_a_plain_text_is_in_one_block() {
    let text = "a question\n\nof many lines\n".repeat(200);
    let doc = Doc::plain(&text);
    let whole: String = (0..doc.blocks().len()).map(|index| doc.source(index)).collect();
    assert_eq!(whole, text);
    assert!(doc.blocks().len() > 5);
}
