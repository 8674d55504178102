//! Sizes as people write them: `2GiB`, `1.5 GB`, `2048MiB`, plain bytes.

/// Names of the units and their bytes, binary ones first.
const UNITS: [(&str, u64); 9] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

const FORMS: &str = "write it as 2GiB, 1.5GB, 2048MiB or in bytes";

/// Reads a size in bytes. Units are those of 1024 (`KiB`, `MiB`, `GiB`, `TiB`) and of 1000 (`kB`, `MB`, `GB`, `TB`), in
/// any case, with or without a space before them; a fraction is rounded down to whole bytes. `2G` is refused, since it
/// does not say which it means.
///
/// # Errors
/// What is wrong with the text, as one phrase without the text itself.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start().to_ascii_lowercase());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || (number.contains('.') && !digits(fraction)) {
        return Err(format!("not a size: {FORMS}"));
    }
    let factor = match unit.as_str() {
        "" if fraction.is_empty() => 1,
        "" => return Err(format!("no unit behind the fraction: {FORMS}")),
        "k" | "m" | "g" | "t" => {
            let letter = unit.to_ascii_uppercase();
            return Err(format!("write {letter}iB (of 1024) or {letter}B (of 1000)"));
        }
        known => match UNITS.iter().find(|(name, _)| *name == known) {
            Some((_, bytes)) => *bytes,
            None => return Err(format!("no such unit: {FORMS}")),
        },
    };
    let too_large = || "larger than any memory".to_owned();
    let whole =
        whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(factor)).ok_or_else(too_large)?;
    // Digits beyond the eighteenth are less than a byte of any unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = match fraction.parse::<u128>() {
        Ok(value) => value * u128::from(factor) / 10u128.pow(fraction.len() as u32),
        Err(_) => 0, // no fraction
    };
    let bytes = u64::try_from(part).ok().and_then(|part| whole.checked_add(part)).ok_or_else(too_large)?;
    if bytes == 0 { Err("must be more than 0".to_owned()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_exactly() {
        for (text, bytes) in [
            ("2GiB", 2 << 30),
            ("2GB", 2_000_000_000),
            ("2048MiB", 2 << 30),
            ("1.5GiB", 3 << 29),
            (" 1.5 gb ", 1_500_000_000),
            ("1 KiB", 1024),
            ("7kB", 7000),
            ("1TiB", 1 << 40),
            ("3221225472", 3 << 30),
            ("12B", 12),
            ("0.1GiB", 107_374_182),
            ("1.000000000000000000000009GB", 1_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_says_why() {
        for (text, says) in [
            ("", "not a size"),
            ("GiB", "not a size"),
            ("-1GiB", "not a size"),
            ("1..5GiB", "not a size"),
            (".5GiB", "not a size"),
            ("5.GiB", "not a size"),
            ("1.5", "no unit"),
            ("2G", "write GiB (of 1024) or GB (of 1000)"),
            ("2 m", "write MiB"),
            ("2XB", "no such unit"),
            ("2GiBs", "no such unit"),
            ("2e9", "no such unit"),
            ("0GiB", "more than 0"),
            ("0.0000000000001kB", "more than 0"),
            ("99999999999999999999", "larger than any memory"),
            ("17000000TiB", "larger than any memory"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_size_or_an_error(text in ".{0,20}") {
            let _ = parse(&text);
        }

        #[test]
        fn whole_numbers_of_any_unit(number in 1u64..1_000_000, unit in 0usize..UNITS.len()) {
            let (name, bytes) = UNITS[unit];
            prop_assert_eq!(parse(&format!("{number}{name}")), Ok(number * bytes));
            prop_assert_eq!(parse(&format!("{number}.0 {}", name.to_uppercase())), Ok(number * bytes));
        }
    }
}
