//! The few corners of Python that the chat template leans on: `str.strip`, `repr` of floats and lists, key
//! order.
//!
//! The model was trained on text that the template produced, so these must agree to the character.

use super::json::Json;

/// Whether Python's `str.strip` removes `c`. Rust's `char::is_whitespace` lacks U+001C to U+001F.
pub(crate) fn is_space(c: char) -> bool {
    matches!(
        c,
        '\u{9}'..='\u{d}'
            | '\u{1c}'..='\u{20}'
            | '\u{85}'
            | '\u{a0}'
            | '\u{1680}'
            | '\u{2000}'..='\u{200a}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{202f}'
            | '\u{205f}'
            | '\u{3000}'
    )
}

/// Python's `str.strip`.
pub(crate) fn strip(s: &str) -> &str {
    s.trim_matches(is_space)
}

/// Whether nothing would be left of `s` after [`strip`].
pub(crate) fn is_blank(s: &str) -> bool {
    s.chars().all(is_space)
}

/// A JSON number as Python prints what `json.loads` made of it: integers with all digits, floats as
/// [`float`].
pub(crate) fn number(spelled: &str) -> String {
    if spelled.contains(['.', 'e', 'E']) {
        // The grammar was checked when the value was made, and Rust parses every JSON number.
        return spelled.parse().map_or_else(|_| spelled.to_owned(), float);
    }
    if spelled == "-0" { "0".to_owned() } else { spelled.to_owned() }
}

/// `repr` of a Python float: shortest digits that read back, exponent form below 1e-4 and from 1e16 on, its
/// sign always and at least two digits.
pub(crate) fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let shortest = format!("{x:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{x}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// `str(value)` as a Jinja filter sees it, for schema fields that hold something else than text (a list of
/// types, say).
pub(crate) fn text(value: &Json) -> String {
    match value {
        Json::String(s) => s.clone(),
        other => repr(other),
    }
}

fn repr(value: &Json) -> String {
    match value {
        Json::Null => "None".to_owned(),
        Json::Bool(b) => if *b { "True" } else { "False" }.to_owned(),
        Json::Number(n) => number(n),
        Json::String(s) => {
            let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
            let mut out = String::from(quote);
            for c in s.chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    '\n' => out.push_str("\\n"),
                    '\r' => out.push_str("\\r"),
                    '\t' => out.push_str("\\t"),
                    c if c == quote => out.extend(['\\', c]),
                    c => out.push(c),
                }
            }
            out.push(quote);
            out
        }
        Json::Array(items) => format!("[{}]", items.iter().map(repr).collect::<Vec<_>>().join(", ")),
        Json::Object(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|(k, v)| format!("{}: {}", repr(&Json::String(k.clone())), repr(v)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Entries in the order of Jinja's `dictsort`: by lower-cased key, code point order, stable for equal keys.
pub(crate) fn sorted(entries: &[(String, Json)]) -> Vec<(&str, &Json)> {
    let mut out: Vec<_> = entries.iter().map(|(k, v)| (k.as_str(), v)).collect();
    out.sort_by_cached_key(|(k, _)| k.to_lowercase());
    out
}

/// Whether Python calls the value true (`{% if value %}`).
pub(crate) fn truthy(value: &Json) -> bool {
    match value {
        Json::Null => false,
        Json::Bool(b) => *b,
        Json::Number(n) => n.parse::<f64>().ok().is_none_or(|x| x != 0.0),
        Json::String(s) => !s.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(entries) => !entries.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn floats_read_like_python() {
        for (x, text) in [
            (1.0, "1.0"),
            (1e20, "1e+20"),
            (1e-7, "1e-07"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (2.5e-5, "2.5e-05"),
            (123_456.789, "123456.789"),
            (1e-4, "0.0001"),
            (1e100, "1e+100"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(float(x), text);
        }
    }

    #[test]
    fn integers_keep_all_digits() {
        assert_eq!(number("18446744073709551616"), "18446744073709551616");
        assert_eq!(number("-0"), "0");
        assert_eq!(number("-7"), "-7");
        assert_eq!(number("1E+2"), "100.0");
        assert_eq!(number("1.50"), "1.5");
        assert_eq!(number("1e999"), "inf");
    }

    #[test]
    fn strip_is_pythons() {
        assert_eq!(strip("\u{1c}\u{85}\u{2003}\u{3000} x\u{1f}\n"), "x");
        assert_eq!(strip("\u{feff}z\u{200b}"), "\u{feff}z\u{200b}");
    }

    proptest! {
        #[test]
        fn floats_read_back(x in any::<f64>()) {
            prop_assume!(x.is_finite());
            prop_assert_eq!(float(x).parse::<f64>().unwrap().to_bits(), x.to_bits());
        }
    }
}
