//! A compiled tokenizer with a right checksum and anything in it: refused, or wrong answers, but answers. The input
//! is patches of the tiny tokenizer's form (three bytes of place, one of width, eight of value), then text.
#![no_main]
use fieldfare::tokenizer::fuzzing::{compile, open};
use std::sync::LazyLock;

static FORM: LazyLock<Vec<u64>> = LazyLock::new(|| {
    compile(include_bytes!("../../fixtures/tiny-gemma4-a/tokenizer.json")).expect("the fixture compiles")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&count, rest)) = bytes.split_first() else { return };
    let (patches, text) = rest.split_at(rest.len().min(usize::from(count) * 12));
    let mut words = FORM.clone();
    for patch in patches.chunks_exact(12) {
        let place = usize::from(patch[0]) | usize::from(patch[1]) << 8 | usize::from(patch[2]) << 16;
        let value = u64::from_le_bytes(patch[4..].try_into().expect("eight bytes"));
        match patch[3] % 4 {
            // A word of the header, a word anywhere, a run of words, another length.
            0 => words[place % 40] = value,
            1 => {
                let at = place % words.len();
                words[at] = value;
            }
            2 => {
                let at = place % words.len();
                let end = (at + usize::from(patch[3] / 4)).min(words.len());
                words[at..end].fill(value);
            }
            _ => {
                words.resize((place % (FORM.len() + 64)).max(40), value);
                words[2] = words.len() as u64 * 8;
            }
        }
    }
    let Some(tokenizer) = open(words) else { return };
    let text = String::from_utf8_lossy(text);
    let mut ids = Vec::new();
    tokenizer.encode(&text, &mut ids);
    tokenizer.encode_with_control(&text, &mut ids);
    for &id in ids.iter().chain(&[0, 1, 255, u32::MAX]) {
        let _ = tokenizer.piece(id).map(|piece| tokenizer.id_of(piece));
        let _ = tokenizer.is_control(id);
    }
    let _ = tokenizer.decode(&ids, false);
    let _ = tokenizer.decode(&ids, true);
});
