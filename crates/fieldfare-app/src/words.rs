//! Numbers as people read them.

/// Bytes with a unit, in thousands as disks are sold and as the rest of the program prints them.
pub fn bytes(bytes: u64) -> String {
    let (value, unit) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (bytes as f64 / 1e3, "kB"),
        1_000_000..1_000_000_000 => (bytes as f64 / 1e6, "MB"),
        1_000_000_000..1_000_000_000_000 => (bytes as f64 / 1e9, "GB"),
        _ => (bytes as f64 / 1e12, "TB"),
    };
    if value < 9.95 {
        format!("{value:.2} {unit}")
    } else if value < 99.5 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// A count with spaces between thousands.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// So many tokens.
pub fn tokens(tokens: u64) -> String {
    format!("{} token{}", count(tokens), if tokens == 1 { "" } else { "s" })
}

/// Tokens a second.
pub fn rate(per_second: f64) -> String {
    if per_second >= 100.0 { format!("{per_second:.0} tok/s") } else { format!("{per_second:.1} tok/s") }
}

/// How long, roughly.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// How long ago, in a word.
pub fn ago(then: i64, now: i64) -> String {
    let seconds = now.saturating_sub(then).max(0);
    match seconds {
        0..60 => "now".to_owned(),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        86_400..604_800 => format!("{} d", seconds / 86_400),
        604_800..31_536_000 => format!("{} wk", seconds / 604_800),
        _ => format!("{} y", seconds / 31_536_000),
    }
}

/// A share in per cent.
pub fn share(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The first line of a text, cut to a length.
pub fn first_line(text: &str, most: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    if line.chars().count() <= most {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// `bytes` from what a person writes: `2GiB`, `2.5 GB`, `900M`; a bare number is gigabytes.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    let unit = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" | "g" | "gb" => 1e9,
        "gib" => f64::from(1 << 30),
        "m" | "mb" => 1e6,
        "mib" => f64::from(1 << 20),
        _ => return None,
    };
    let bytes = value * unit;
    (1.0..1e15).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(12_600_000), "12.6 MB");
        assert_eq!(bytes(14_248_000_000), "14.2 GB");
        assert_eq!(bytes(2_147_483_648), "2.15 GB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(rate(2.34), "2.3 tok/s");
        assert_eq!(duration(61), "2 min");
        assert_eq!(duration(7_300), "2 h 1 min");
        assert_eq!(ago(100, 100 + 90_000), "1 d");
        assert_eq!(ago(200, 100), "now");
        assert_eq!(first_line("one two\nthree", 5), "one …");
    }

    #[test]
    fn sizes_as_people_write_them() {
        assert_eq!(parse_bytes("2GiB"), Some(2 << 30));
        assert_eq!(parse_bytes(" 2.5 "), Some(2_500_000_000));
        assert_eq!(parse_bytes("900 MB"), Some(900_000_000));
        assert_eq!(parse_bytes("a lot"), None);
        assert_eq!(parse_bytes("0"), None);
        assert_eq!(parse_bytes("2 cups"), None);
    }
}
