//! The demonstration model on the command line: unpacking it, offering it, and saying each time that it is a toy.

use crate::Outcome;
use crate::failure::Failure;
use crate::interrupt;
use crate::ui::progress::{Progress, Unit};
use crate::ui::report;
use fieldfare_demo::Step;
use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Whether somebody wrote `demo` where a model directory belongs. A directory of that name is `./demo`.
pub fn is_meant(name: impl AsRef<OsStr>) -> bool {
    name.as_ref() == fieldfare_demo::NAME
}

/// Its model directory; the first time it is unpacked, with a line on standard error unless `quiet`.
///
/// # Errors
/// No place to unpack it, something else in its place, or Ctrl-C.
pub fn ready(quiet: bool) -> Outcome<PathBuf> {
    interrupt::listen();
    let started = Instant::now();
    // Mostly there is nothing to do, and then nothing to show.
    let mut line = None;
    let ready = fieldfare_demo::ensure(&mut |step| {
        let progress = line.get_or_insert_with(|| Progress::new("unpacking", Unit::Bytes, quiet));
        match step {
            Step::Waiting => progress.say("waiting for another process that unpacks the demonstration model"),
            Step::Unpacking { done, total } => {
                progress.say("unpacking");
                progress.set(done, total);
            }
        }
        interrupt::flow()
    });
    // Removes the line.
    drop(line);
    let ready = ready?;
    for warning in &ready.warnings {
        report::warning(warning);
    }
    if ready.unpacked && !quiet {
        let (path, time) = (ready.path.display(), report::span(started.elapsed()));
        let size = fieldfare_demo::size_in_words();
        report::note(&format!(
            "unpacked the demonstration model ({size} parameters, a toy) into {path} in {time}"
        ));
    }
    Ok(ready.path)
}

/// Asks on a terminal whether to go on with the toy, since no model is installed.
///
/// # Errors
/// The terminal failed.
pub fn offer(answers: &mut dyn BufRead, out: &mut dyn Write) -> Outcome<bool> {
    let failed = |error| Failure::failed(format!("cannot use the terminal: {error}"));
    writeln!(out, "No model is installed. There is {}; run `fieldfare install` for Gemma 4 26B-A4B.", it())
        .map_err(failed)?;
    loop {
        write!(out, "Try it? [Y/n] ").and_then(|()| out.flush()).map_err(failed)?;
        let mut line = String::new();
        if answers.read_line(&mut line).map_err(failed)? == 0 {
            // Ctrl-D; the line is not ended yet.
            writeln!(out).map_err(failed)?;
            return Ok(false);
        }
        match line.trim().to_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => {}
        }
    }
}

/// What a conversation with it begins with.
pub fn banner() -> String {
    format!(
        "This is {}: it knows little and is often wrong. For Gemma 4 26B-A4B run `fieldfare install`.",
        it()
    )
}

/// `a demonstration model of 18 million parameters, a toy`.
fn it() -> String {
    format!("a demonstration model of {} parameters, a toy", fieldfare_demo::size_in_words())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_name_alone_is_meant() {
        assert!(is_meant("demo") && is_meant(Path::new("demo")));
        for other in ["./demo", "demo/", "Demo", "demo.gturbo", ""] {
            assert!(!is_meant(other) && !is_meant(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn the_offer_says_what_it_is_and_asks_until_it_is_answered() {
        for (typed, wanted, asked) in
            [("\n", true, 1), ("Yes\n", true, 1), ("n\n", false, 1), ("", false, 1), ("what\nNO\n", false, 2)]
        {
            let mut out = Vec::new();
            assert_eq!(offer(&mut typed.as_bytes(), &mut out).unwrap(), wanted, "{typed:?}");
            let out = String::from_utf8(out).unwrap();
            assert_eq!(out.matches("Try it? [Y/n]").count(), asked, "{typed:?}");
            for word in ["No model is installed", "million parameters", "a toy", "fieldfare install"] {
                assert!(out.contains(word), "{word}: {out}");
            }
        }
    }
}
