//! Why the second process ended, in words.

use crate::message::Trouble;
use crate::process::Ending;
use crate::trouble::plain;

/// What is said to a person about a service that ended unasked.
pub(crate) fn explain(ending: &Ending) -> Trouble {
    let signal = ending.status.strip_prefix("signal: ").and_then(|rest| rest.split([' ', ',']).next());
    let signal: Option<u32> = signal.and_then(|number| number.parse().ok());
    // A process that is killed has no say in it: its words are about something else.
    if signal != Some(9)
        && let Some(error) = said(&ending.last_words)
    {
        let remedy = if error.contains("weights can no longer be read") {
            "Check the disk and the model folder, then verify the model."
        } else {
            ""
        };
        return plain(format!("the model's process ended: {error}"), remedy);
    }
    match signal {
        Some(9) => plain(
            "the model's process was killed, most likely by the system because memory ran out",
            "Close other programs, or give the model less memory in the settings.",
        ),
        Some(15) => plain("the model's process was ended by another program", ""),
        Some(number) => plain(
            format!("the model's process crashed ({})", name(number)),
            "If it happens again, verify the model; then please report it.",
        ),
        None => {
            let status =
                ending.code.map_or_else(|| ending.status.clone(), |code| format!("exit code {code}"));
            plain(format!("the model's process ended without saying why ({status})"), "")
        }
    }
}

/// What it said itself: a panic with its place, or a line that begins with `error:`.
fn said(words: &str) -> Option<String> {
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let error = lines.iter().rev().find_map(|line| line.strip_prefix("error: "));
    if let Some(error) = error {
        return Some(error.to_owned());
    }
    let at = lines.iter().rposition(|line| line.starts_with("thread '") && line.contains("panicked at"))?;
    let place = lines[at].split_once("panicked at ").map_or("", |(_, place)| place).trim_end_matches(':');
    let text = lines.get(at + 1).filter(|line| !line.starts_with("note:"));
    Some(text.map_or_else(|| format!("a fault at {place}"), |text| format!("{text} (a fault at {place})")))
}

fn name(signal: u32) -> String {
    let word = match signal {
        4 => "an instruction that this processor does not have",
        6 => "aborted",
        7 => "a page of a file that cannot be read",
        8 => "arithmetic",
        11 => "memory access",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal}, {word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: &str, code: Option<i32>, words: &str) -> String {
        let ending = Ending { code, status: status.into(), last_words: words.into(), asked: false };
        explain(&ending).message
    }

    #[test]
    fn each_end_has_its_words() {
        assert!(ended("signal: 9 (SIGKILL)", None, "").contains("memory ran out"));
        assert!(ended("signal: 11 (SIGSEGV) (core dumped)", None, "").contains("signal 11, memory access"));
        assert!(ended("signal: 15 (SIGTERM)", None, "").contains("another program"));
        assert!(ended("signal: 31 (SIGSYS)", None, "").contains("signal 31"));
        assert!(ended("exit status: 3", Some(3), "nothing of note").contains("exit code 3"));
        let panic = "\nthread 'main' (7) panicked at src/x.rs:3:5:\nno more wires\nnote: run with `RUST_BACKTRACE=1`\n";
        let text = ended("exit status: 101", Some(101), panic);
        assert!(text.ends_with("no more wires (a fault at src/x.rs:3:5)."), "{text}");
        let fault = "error: the model's weights can no longer be read: the disk failed\nhint: check it\n";
        assert!(ended("exit status: 1", Some(1), fault).contains("can no longer be read"));
        // What it said itself says more than the signal that came after.
        assert!(ended("signal: 6 (SIGABRT)", None, panic).contains("no more wires"));
    }
}
