//! Measures the tokenizer: `tokenizer_bench TOKENIZER.json [TEXT-FILE] [CACHE-DIR]`.
//!
//! Prints how long loading takes (first build and from the compiled form), what it does to the process's memory
//! (Linux), the encoding speed on a text, and the time of 100,000-character lines that give the merge loop nowhere to
//! rest. Without a text file it encodes English of its own making.

use fieldfare::tokenizer::Tokenizer;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Resident anonymous, mapped-file and peak memory in MB, where the system says.
fn memory() -> Option<[f64; 3]> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
    };
    Some([field("RssAnon:")?, field("RssFile:")?, field("VmHWM:")?])
}

/// Processor time used so far in ms, where the system says (it counts in steps of a few).
fn processor_ms() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e6)
}

fn show_memory(when: &str) {
    if let Some([anon, file, peak]) = memory() {
        println!("memory {when:<22} RssAnon {anon:7.1} MB   RssFile {file:7.1} MB   peak {peak:7.1} MB");
    }
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

fn main() -> fieldfare::Result<()> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(json) = args.next() else {
        eprintln!("usage: tokenizer_bench TOKENIZER.json [TEXT-FILE] [CACHE-DIR]");
        std::process::exit(2);
    };
    let text = match args.next() {
        Some(path) => {
            let bytes = std::fs::read(&path).map_err(fieldfare::Error::io("read", &path))?;
            String::from_utf8_lossy(&bytes).into_owned()
        }
        None => english(),
    };
    let cache: PathBuf =
        args.next().unwrap_or_else(|| std::env::temp_dir().join("fieldfare-tokenizer-bench"));
    show_memory("at start");
    let load = |what: &str, cache: Option<&Path>| {
        let (start, before) = (Instant::now(), processor_ms());
        let tokenizer = Tokenizer::open(&json, cache)?;
        print!("{what:<29} {:8.1} ms", start.elapsed().as_secs_f64() * 1e3);
        match before.zip(processor_ms()) {
            Some((before, after)) => println!("   (processor {:.1} ms)", after - before),
            None => println!(),
        }
        show_memory("after it");
        Ok::<_, fieldfare::Error>(tokenizer)
    };
    drop(load("load (builds if not cached)", Some(&cache))?);
    let tokenizer = load("load from compiled form", Some(&cache))?;
    let (seconds, ids) = time(&tokenizer, &text, 5);
    println!(
        "encode {:.2} MB of text         {:8.1} MB/s   ({ids} ids)",
        text.len() as f64 / 1e6,
        text.len() as f64 / seconds / 1e6
    );
    for (name, line) in long_lines() {
        let (seconds, ids) = time(&tokenizer, &line, 3);
        println!("100,000 characters: {name:<20} {:8.1} ms   ({ids} ids)", seconds * 1e3);
    }
    show_memory("at the end");
    Ok(())
}
