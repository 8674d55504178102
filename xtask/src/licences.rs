//! The licences of every crate in the lock file against the list that `deny.toml` allows, without any download.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Complaints about crates whose licence expression cannot be met from the allowed list.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let allowed = allowed(&std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?);
    ensure!(!allowed.is_empty(), "deny.toml allows no licence");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let mut found = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or("?");
        match package["license"].as_str() {
            Some(expression) if is_allowed(expression, &allowed) => {}
            Some(expression) => found.push(format!("{name}: licence `{expression}`")),
            None => found.push(format!("{name}: no licence stated")),
        }
    }
    Ok(found)
}

/// The quoted names of the `allow = [...]` list.
fn allowed(deny: &str) -> Vec<String> {
    let Some(start) = deny.find("allow = [") else { return Vec::new() };
    let list = &deny[start..];
    let list = &list[..list.find(']').unwrap_or(list.len())];
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// True if the SPDX expression can be met. `AND` binds tighter than `OR`; `/` is the old spelling of `OR`;
/// brackets are taken as one level, which is all that occurs.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let met = |text: &str| {
        text.replace('/', " OR ").split(" OR ").any(|choice| {
            choice.split(" AND ").all(|one| {
                let one = one.trim().trim_matches(['(', ')']).trim();
                allowed.iter().any(|a| a == one)
            })
        })
    };
    match expression.split_once(')') {
        Some((bracket, rest)) if bracket.starts_with('(') && rest.trim_start().starts_with("AND") => {
            met(&bracket[1..]) && met(rest.trim_start().trim_start_matches("AND"))
        }
        _ => met(expression),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let list: Vec<String> = ["MIT", "Apache-2.0", "Unicode-3.0"].map(String::from).to_vec();
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "Apache-2.0/MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "MIT AND Apache-2.0",
        ] {
            assert!(is_allowed(good, &list), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND GPL-3.0", ""] {
            assert!(!is_allowed(bad, &list), "{bad}");
        }
    }

    #[test]
    fn the_list_is_read() {
        assert_eq!(allowed("[licenses]\nallow = [\n \"MIT\",\n \"ISC\",\n]\n"), ["MIT", "ISC"]);
    }
}
