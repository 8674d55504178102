//! Measures the tokenizer: how long loading takes (first build and from the compiled form), what it does to the
//! process's memory, the encoding speed on a text, and the time of 100,000-character lines that give the merge loop
//! nowhere to rest. With `--check` each figure is held against its bound.

use crate::wrong_use;
use anyhow::Context;
use clap::Args;
use fieldfare::tokenizer::Tokenizer;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Resident anonymous and mapped-file memory in MB, where the system says.
fn memory() -> Option<[f64; 2]> {
    let now = fieldfare::sys::memory::process();
    Some([now.rss_anon? as f64 / 1e6, now.rss_file? as f64 / 1e6])
}

/// About two megabytes of plain English, the same on every run: sentences from a small grammar, with a counter so
/// that they differ.
fn english() -> String {
    const WHO: [&str; 8] = [
        "The fieldfare",
        "A careful reader",
        "Nobody in the village",
        "The old engineer",
        "Her younger sister",
        "Every scheduler",
        "The committee",
        "A travelling musician",
    ];
    const DID: [&str; 8] = [
        "watched the hedges along the river",
        "remembered what the librarian had promised",
        "measured the temperature twice",
        "didn't believe the newspapers",
        "wrote a long, patient letter",
        "counted thirty-seven migrating birds",
        "rebuilt the machine from its drawings",
        "argued about the meaning of bandwidth",
    ];
    const WHEN: [&str; 8] = [
        "before the snow came",
        "while the kettle boiled",
        "in spite of everything",
        "as soon as the road was open",
        "for the first time since 1987",
        "without saying a word",
        "until it was too dark to see",
        "because it mattered",
    ];
    let mut text = String::new();
    let mut state = 1_u64;
    while text.len() < 2_000_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = |shift: u32| (state >> shift) as usize % 8;
        text += &format!("{} {} {}. ", WHO[pick(33)], DID[pick(40)], WHEN[pick(47)]);
        if pick(54) == 0 {
            text += "\n\n";
        }
    }
    text
}

/// The best of several runs, in seconds, and the number of ids.
fn time(tokenizer: &Tokenizer, text: &str, runs: usize) -> (f64, usize) {
    let mut out = Vec::new();
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        out.clear();
        let start = Instant::now();
        tokenizer.encode(text, &mut out);
        best = best.min(start.elapsed().as_secs_f64());
    }
    (best, out.len())
}

fn long_lines() -> Vec<(&'static str, String)> {
    const CHARS: usize = 100_000;
    let mut state = 7_u64;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as u32) % below
    };
    let letters = (0..CHARS).map(|_| char::from(b'a' + random(26) as u8)).collect();
    let cjk = (0..CHARS).filter_map(|_| char::from_u32(0x4E00 + random(0x5000))).collect();
    let emoji = (0..CHARS).filter_map(|_| char::from_u32(0x1F300 + random(0x300))).collect();
    let words = english().chars().filter(|c| c.is_alphabetic()).take(CHARS).collect();
    vec![
        ("aaaa…", "a".repeat(CHARS)),
        ("abab…", "ab".repeat(CHARS / 2)),
        ("----…", "-".repeat(CHARS)),
        ("spaces", " ".repeat(CHARS)),
        ("\"> > >\"", "> ".repeat(CHARS / 2)),
        ("English, no spaces", words),
        ("random letters", letters),
        ("random CJK", cjk),
        ("one CJK character", "\u{4E00}".repeat(CHARS)),
        ("emoji", emoji),
    ]
}

/// Longest load of the compiled form at full vocabulary.
const LOAD_MS: f64 = 150.0;
/// Most memory that a loaded tokenizer adds to the process, mapped pages included.
const MEMORY_MB: f64 = 25.0;
/// Least encoding speed of English text.
const ENCODE_MB_S: f64 = 5.0;
/// Longest encoding of a 100,000-character line.
const LINE_MS: f64 = 100.0;
/// Loads of the compiled form; the best counts, since other programs use the machine too.
const LOADS: usize = 5;

/// Options of `fieldfare-lab tokenizer`.
#[derive(Args)]
pub(crate) struct Options {
    /// The tokenizer.json
    file: PathBuf,
    /// Text to encode [default: two megabytes of English of its own making]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Fail if a figure misses its bound (150 ms, 25 MB, 5 MB/s, 100 ms a line)
    #[arg(long)]
    check: bool,
}

/// Measures and prints; false if `--check` found a figure out of bounds.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    if !options.file.is_file() {
        return Err(wrong_use(format!("{} is not a file", options.file.display())));
    }
    let text = match &options.text {
        Some(path) => std::fs::read_to_string(path).with_context(|| path.display().to_string())?,
        None => english(),
    };
    let cache = tempfile::tempdir().context("a scratch folder")?;
    let mut missed = Vec::new();
    let mut hold = |what: &str, value: f64, bound: f64, at_most: bool| {
        if (at_most && value > bound) || (!at_most && value < bound) {
            missed.push(format!("{what}: {value:.1}, bound {bound}"));
        }
    };

    let before = memory();
    let (_, build_ms) = load(&options.file, cache.path())?;
    println!("first build                   {build_ms:8.1} ms");
    let (tokenizer, mut load_ms) = load(&options.file, cache.path())?;
    let after = memory();
    for _ in 1..LOADS {
        load_ms = load_ms.min(load(&options.file, cache.path())?.1);
    }
    println!("load from compiled form       {load_ms:8.1} ms   (best of {LOADS})");
    hold("load, ms", load_ms, LOAD_MS, true);
    if let Some((before, after)) = before.zip(after) {
        let (anon, file) = (after[0] - before[0], after[1] - before[1]);
        // What the allocator kept of the first build counts against it too.
        println!("memory it takes               {anon:8.1} MB anonymous, {file:.1} MB mapped");
        hold("memory, MB", anon + file, MEMORY_MB, true);
    }
    let (seconds, ids) = time(&tokenizer, &text, 5);
    let rate = text.len() as f64 / seconds / 1e6;
    println!("encode {:6.2} MB of text       {rate:8.1} MB/s ({ids} ids)", text.len() as f64 / 1e6);
    hold("encode, MB/s", rate, ENCODE_MB_S, false);
    for (name, line) in long_lines() {
        let (seconds, ids) = time(&tokenizer, &line, 3);
        println!("100,000 characters: {name:<20} {:6.1} ms   ({ids} ids)", seconds * 1e3);
        hold(name, seconds * 1e3, LINE_MS, true);
    }
    if options.check {
        for line in &missed {
            println!("out of bounds: {line}");
        }
        println!("{} figures out of bounds", missed.len());
    }
    Ok(!options.check || missed.is_empty())
}

fn load(file: &Path, cache: &Path) -> anyhow::Result<(Tokenizer, f64)> {
    let start = Instant::now();
    let tokenizer = Tokenizer::open(file, Some(cache))?;
    Ok((tokenizer, start.elapsed().as_secs_f64() * 1e3))
}
