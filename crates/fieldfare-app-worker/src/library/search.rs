//! Finding a text in another, whatever its case.
//!
//! A scan of all messages, not an index: it finds any part of any word in any script, costs nothing to keep, and takes some
//! tens of milliseconds for thousands of conversations (the figures are in ADR 9).

/// Characters that are shown before and after what was found.
const AROUND: usize = 30;

/// What is looked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needle {
    /// In lower case.
    text: String,
}

impl Needle {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.trim().chars().flat_map(char::to_lowercase).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn is_in(&self, text: &str) -> bool {
        self.find(text).is_some()
    }

    /// First byte of what was found, and the first after it.
    fn find(&self, text: &str) -> Option<(usize, usize)> {
        if self.text.is_empty() {
            return None;
        }
        if self.text.is_ascii() {
            return self.find_ascii(text.as_bytes());
        }
        if text.is_ascii() {
            return None;
        }
        text.char_indices().find_map(|(at, _)| {
            let mut wanted = self.text.chars();
            let mut next = wanted.next();
            for (offset, c) in text[at..].char_indices() {
                if next.is_none() {
                    return Some((at, at + offset));
                }
                for lower in c.to_lowercase() {
                    if next.is_some() && next != Some(lower) {
                        return None;
                    }
                    next = wanted.next().filter(|_| next.is_some());
                }
            }
            next.is_none().then_some((at, text.len()))
        })
    }

    /// ASCII is never a part of another character's bytes.
    fn find_ascii(&self, text: &[u8]) -> Option<(usize, usize)> {
        let wanted = self.text.as_bytes();
        let (first, len) = (*wanted.first()?, wanted.len());
        let upper = first.to_ascii_uppercase();
        let last = text.len().checked_sub(len)?;
        let mut from = 0;
        while from <= last {
            let at = from + text[from..=last].iter().position(|&byte| byte == first || byte == upper)?;
            if text[at..at + len].eq_ignore_ascii_case(wanted) {
                return Some((at, at + len));
            }
            from = at + 1;
        }
        None
    }

    /// The place on one line, with what stands around it.
    pub(super) fn place(&self, text: &str) -> Option<String> {
        let (start, end) = self.find(text)?;
        let from = text[..start].char_indices().rev().take(AROUND).last().map_or(start, |(at, _)| at);
        let to = text[end..].char_indices().nth(AROUND).map_or(text.len(), |(at, _)| end + at);
        let words: Vec<&str> = text[from..to].split_whitespace().collect();
        let (before, after) = (if from > 0 { "…" } else { "" }, if to < text.len() { "…" } else { "" });
        Some(format!("{before}{}{after}", words.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_words_are_found_in_any_case_and_script() {
        for (needle, text, found) in [
            ("FIELD", "the fieldfare", true),
            ("dfa", "the Fieldfare", true),
            ("äh", "NÄHE", true),
            ("STRASSE", "die Straße", false),
            ("İ", "x i\u{307} y", true),
            ("田", "麦田里", true),
            ("🐦x", "a 🐦X", true),
            ("fieldfares", "the fieldfare", false),
            ("é", "e", false),
            ("re", "re", true),
            ("", "anything", false),
        ] {
            assert_eq!(Needle::new(needle).is_in(text), found, "{needle} in {text}");
        }
    }

    #[test]
    fn the_two_ways_to_look_agree() {
        let text = "The quick Brown fox; naïve café. ".repeat(3);
        for needle in ["quick brown", "FOX; NA", "x; naïve", "fé. the", "z"] {
            let needle = Needle::new(needle);
            let slow = text.to_lowercase().contains(&needle.text);
            assert_eq!(needle.is_in(&text), slow, "{needle:?}");
        }
    }

    #[test]
    fn the_place_is_one_line_with_what_is_around() {
        let needle = Needle::new("there");
        assert_eq!(needle.place("is\n  it there?").unwrap(), "is it there?");
        let long = format!("{} THERE {}", "ä".repeat(100), "b ".repeat(100));
        let place = needle.place(&long).unwrap();
        assert!(place.starts_with("…ä") && place.contains(" THERE b") && place.ends_with('…'), "{place}");
        assert_eq!(needle.place("nowhere"), None);
    }
}
