//! Text from elsewhere on its way to a terminal. A model, a file name or a manifest may hold control characters; on a
//! terminal an escape sequence can move the cursor, rename the window or worse, so they are shown, not obeyed. Text
//! that goes to a file or a pipe is never touched.

use std::borrow::Cow;
use std::io::IsTerminal;

/// Whether a person is at both ends: nothing is piped in, and all that is written is seen.
pub fn is_whole() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
}

/// The text with control characters replaced by visible ones; line ends and tabs stay.
pub fn neutral(text: &str) -> Cow<'_, str> {
    replace(text, |c| c != '\n' && c != '\t' && c.is_control())
}

/// The text as one line for a message: line ends and tabs are shown as well.
pub fn one_line(text: &str) -> Cow<'_, str> {
    replace(text, char::is_control)
}

fn replace(text: &str, unsafe_here: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&unsafe_here) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if unsafe_here(c) { picture(c) } else { c }).collect())
}

/// The symbol for a control character: U+2400 and up for the first 32, U+2421 for delete, U+FFFD for the 32 above.
fn picture(c: char) -> char {
    match u32::from(c) {
        code @ 0..=0x1f => char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'),
        0x7f => '\u{2421}',
        _ => '\u{fffd}',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_shown_and_text_is_left_alone() {
        assert_eq!(neutral("\u{1b}[31mred\u{7}\r\n\tGrüße 你好 🎉"), "␛[31mred␇␍\n\tGrüße 你好 🎉");
        assert_eq!(neutral("\u{9b}31m\u{7f}"), "\u{fffd}31m␡");
        assert!(matches!(neutral("plain\n"), Cow::Borrowed(_)));
        assert_eq!(one_line("a\nb"), "a␊b");
    }
}
