//! Sizes, platform code and `unsafe`: where each may be.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A longer source file needs a line with [`EXCUSE`] in its first thirty.
const MAX_LINES: usize = 700;
const EXCUSE: &str = "Long file:";
/// Nothing larger is committed.
const MAX_BYTES: u64 = 16_000_000;
/// The only places for `unsafe`.
const UNSAFE_HOMES: &[&str] = &[
    "crates/fieldfare-kernels/src/arch/",
    "crates/fieldfare-kernels/src/aligned.rs",
    "crates/fieldfare-kernels/src/pool.rs",
    "crates/fieldfare-kernels/src/dispatch",
    "crates/fieldfare/src/sys/",
    "crates/fieldfare/src/store/slots.rs",
];
/// The only places for `cfg` on the platform.
const PLATFORM_HOMES: &[&str] = &[
    "crates/fieldfare-kernels/src/arch/",
    "crates/fieldfare-kernels/src/dispatch",
    "crates/fieldfare/src/sys/",
];

/// Complaints about the source files.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in ["crates", "xtask", "docs", "scripts", "fixtures", "fuzz"] {
        let folder = root.join(folder);
        if !folder.exists() {
            continue;
        }
        for file in files_below(&folder, &[])? {
            let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
            let name = name.trim_start_matches("./").to_owned();
            let bytes = file.metadata().with_context(|| name.clone())?.len();
            if bytes > MAX_BYTES {
                found.push(format!("{name}: {bytes} bytes, at most {MAX_BYTES}"));
            }
            if file.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&file).with_context(|| name.clone())?;
                check_source(&name, &text, &mut found);
            }
        }
    }
    Ok(found)
}

fn check_source(name: &str, text: &str, found: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_LINES && !text.lines().take(30).any(|line| line.contains(EXCUSE)) {
        found.push(format!("{name}: {lines} lines; split it, or say why in its head with `{EXCUSE}`"));
    }
    if name.starts_with("xtask/") {
        return;
    }
    let at_home = |homes: &[&str]| homes.iter().any(|home| name.starts_with(home));
    let is_test = name.contains("/tests/") || name.ends_with("tests.rs") || name.contains("/examples/");
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        let opens = code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl");
        if opens && !at_home(UNSAFE_HOMES) {
            found.push(format!("{name}:{}: `unsafe` outside its homes", index + 1));
        }
        let platform =
            ["target_os", "target_arch", "cfg(unix", "cfg(windows", "cfg!(unix", "cfg!(windows", "(not(unix"]
                .iter()
                .any(|word| code.contains(word));
        if platform && !is_test && !at_home(PLATFORM_HOMES) {
            found.push(format!("{name}:{}: platform `cfg` outside its homes", index + 1));
        }
    }
}

/// All files below `folder` with one of the extensions (none: all), build output left out, sorted.
pub(crate) fn files_below(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["target", "corpus", "artifacts"].contains(&name.as_str()) {
                    open.push(path);
                }
            } else if extensions.is_empty()
                || path.extension().and_then(|e| e.to_str()).is_some_and(|e| extensions.contains(&e))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_and_platform_code_are_seen_outside_their_homes() {
        let mut found = Vec::new();
        check_source("crates/fieldfare/src/model/x.rs", "unsafe { }\n#[cfg(unix)]\n", &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
        found.clear();
        check_source("crates/fieldfare/src/sys/x.rs", "unsafe { }\n#[cfg(unix)]\n", &mut found);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_long_file_needs_its_reason() {
        let mut found = Vec::new();
        let long = "x\n".repeat(MAX_LINES + 1);
        check_source("crates/a.rs", &long, &mut found);
        assert_eq!(found.len(), 1);
        found.clear();
        check_source("crates/a.rs", &format!("//! {EXCUSE} one table\n{long}"), &mut found);
        assert!(found.is_empty());
    }
}
