//! Stop strings in text that arrives in pieces.
//!
//! One Knuth-Morris-Pratt automaton for each stop string says after every byte how much of the text's end could be
//! the beginning of it. That much is held back; the rest goes out. The first stop string to be complete ends the
//! text, and of those complete at the same byte the longest, so the result does not depend on how the text is cut.

use crate::{Error, Result};

/// Most stop strings of one request.
pub const MAX_STOPS: usize = 64;
/// Longest stop string, in bytes.
pub const MAX_STOP_BYTES: usize = 1024;

/// Looks for stop strings and holds back what could become one.
#[derive(Debug, Clone)]
pub struct StopStrings {
    stops: Vec<Automaton>,
    /// The text not given out yet; the longest beginning of a stop string at the end of what has come.
    held: String,
    hit: Option<usize>,
}

impl StopStrings {
    /// Watches for these strings. Empty ones are left out, for they would stop everything.
    pub fn new(stops: Vec<String>) -> Self {
        let stops =
            stops.into_iter().enumerate().filter(|(_, stop)| !stop.is_empty()).map(Automaton::new).collect();
        Self { stops, held: String::new(), hit: None }
    }

    /// Checks what a request asks for.
    ///
    /// # Errors
    /// [`Error::BadRequest`] on `stop`: too many, an empty one, or one too long.
    pub fn validate(stops: &[String]) -> Result<()> {
        if stops.len() > MAX_STOPS {
            return Err(Error::bad("stop", format!("{} strings is more than {MAX_STOPS}", stops.len())));
        }
        for (index, stop) in stops.iter().enumerate() {
            if stop.is_empty() {
                return Err(Error::bad(format!("stop[{index}]"), "must not be empty"));
            }
            if stop.len() > MAX_STOP_BYTES {
                let reason = format!("{} bytes is more than {MAX_STOP_BYTES}", stop.len());
                return Err(Error::bad(format!("stop[{index}]"), reason));
            }
        }
        Ok(())
    }

    /// Takes the next piece of text and appends to `out` what is certain to be shown. True once a stop string is
    /// complete: the text before it is out, and nothing more will be.
    pub fn push(&mut self, text: &str, out: &mut String) -> bool {
        if self.hit.is_some() {
            return true;
        }
        if self.stops.is_empty() {
            out.push_str(text);
            return false;
        }
        for (at, byte) in text.bytes().enumerate() {
            let mut complete: Option<(usize, usize)> = None;
            for stop in &mut self.stops {
                if stop.step(byte) && complete.is_none_or(|(len, _)| stop.text.len() > len) {
                    complete = Some((stop.text.len(), stop.index));
                }
            }
            if let Some((len, index)) = complete {
                // Stop strings are whole characters, so both of their ends are character borders of the text.
                self.held.push_str(&text[..=at]);
                out.push_str(&self.held[..self.held.len() - len]);
                self.held = String::new();
                self.hit = Some(index);
                return true;
            }
        }
        self.held.push_str(text);
        // What is held begins with the first byte of a stop string, so it begins at a character border.
        let hold = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        out.extend(self.held.drain(..self.held.len() - hold));
        false
    }

    /// The text is over: appends what was held back, unless a stop string ended it.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        for stop in &mut self.stops {
            stop.matched = 0;
        }
    }

    /// Which stop string ended the text, as an index into those given.
    pub fn hit(&self) -> Option<usize> {
        self.hit
    }

    /// The text held back.
    pub fn held(&self) -> &str {
        &self.held
    }
}

/// A stop string and how much of it the text ends with.
#[derive(Debug, Clone)]
struct Automaton {
    index: usize,
    text: Box<[u8]>,
    /// `borders[n]`: length of the longest proper prefix of the first n + 1 bytes that is also their suffix.
    borders: Box<[usize]>,
    matched: usize,
}

impl Automaton {
    fn new((index, text): (usize, String)) -> Self {
        let text = text.into_bytes().into_boxed_slice();
        let mut borders = vec![0; text.len()];
        let mut border = 0;
        for at in 1..text.len() {
            while border > 0 && text[at] != text[border] {
                border = borders[border - 1];
            }
            border += usize::from(text[at] == text[border]);
            borders[at] = border;
        }
        Self { index, text, borders: borders.into_boxed_slice(), matched: 0 }
    }

    /// Takes a byte; true if the text now ends with the whole string.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.text[self.matched] != byte {
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += usize::from(self.text[self.matched] == byte);
        self.matched == self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Text shown and stop string met, the whole text given at once to the plainest search there is.
    fn naive(stops: &[String], text: &str) -> (String, Option<usize>) {
        for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
            let longest = stops.iter().enumerate().filter(|(_, stop)| text[..end].ends_with(stop.as_str()));
            if let Some((index, stop)) = longest.rev().max_by_key(|(_, stop)| stop.len()) {
                return (text[..end - stop.len()].into(), Some(index));
            }
        }
        (text.into(), None)
    }

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut watch = StopStrings::new(stops.iter().map(|stop| (*stop).into()).collect());
        let mut shown = Vec::new();
        let mut hit = false;
        for piece in pieces {
            let mut out = String::new();
            hit = watch.push(piece, &mut out);
            shown.push(out);
        }
        let mut out = String::new();
        watch.finish(&mut out);
        shown.push(out);
        (shown, hit)
    }

    #[test]
    fn a_beginning_is_held_back_and_given_out_when_it_is_none() {
        let (shown, hit) = run(&["two thr"], &["one tw", "o th", "ings"]);
        assert_eq!(shown, ["one ", "", "two things", ""]);
        assert!(!hit);
    }

    #[test]
    fn nothing_of_the_stop_string_is_shown() {
        let (shown, hit) = run(&["two thr"], &["one t", "wo", " three", " four"]);
        assert_eq!(shown, ["one ", "", "", "", ""]);
        assert!(hit);
    }

    #[test]
    fn the_first_complete_one_wins_and_then_the_longest() {
        assert_eq!(run(&["abcd", "bc"], &["xabcd"]).0.concat(), "xa");
        assert_eq!(run(&["bc", "abc"], &["xabcd"]).0.concat(), "x");
    }

    #[test]
    fn held_text_comes_out_at_the_end() {
        assert_eq!(run(&["###"], &["a##"]).0, ["a", "##"]);
        assert_eq!(run(&["é!"], &["aé"]).0, ["a", "é"]);
        assert_eq!(run(&[""], &["ab"]).0, ["ab", ""]);
    }

    #[test]
    fn limits_name_the_field() {
        assert!(StopStrings::validate(&["a".into()]).is_ok());
        for (stops, field) in [
            (vec!["a".to_owned(); 65], "stop:"),
            (vec!["a".into(), String::new()], "stop[1]:"),
            (vec!["x".repeat(1025)], "stop[0]:"),
        ] {
            let message = StopStrings::validate(&stops).unwrap_err().to_string();
            assert!(message.starts_with(field), "{message}");
        }
    }

    proptest! {
        #[test]
        fn any_cut_of_the_text_gives_the_same(
            stops in prop::collection::vec("[abé\u{1F600}]{1,5}", 0..4),
            pieces in prop::collection::vec("[abé\u{1F600}]{0,6}", 0..8),
        ) {
            let text = pieces.concat();
            let wanted = naive(&stops, &text);
            for cut in [pieces.clone(), vec![text.clone()], text.chars().map(String::from).collect()] {
                let mut watch = StopStrings::new(stops.clone());
                let mut out = String::new();
                let mut hit = false;
                let mut pushed = 0;
                for piece in &cut {
                    hit = watch.push(piece, &mut out);
                    pushed += piece.len();
                    // Held is exactly the longest suffix that could begin a stop string.
                    if !hit {
                        let so_far = &text[..pushed];
                        let longest = (0..=so_far.len())
                            .filter(|&at| so_far.is_char_boundary(at))
                            .map(|at| &so_far[at..])
                            .find(|tail| tail.is_empty() || stops.iter().any(|stop| stop.starts_with(tail)));
                        prop_assert_eq!(Some(watch.held()), longest);
                    }
                }
                watch.finish(&mut out);
                prop_assert_eq!((&out, watch.hit()), (&wanted.0, wanted.1));
                prop_assert_eq!(hit, wanted.1.is_some());
            }
        }
    }
}
