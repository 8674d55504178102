//! `fieldfare install` from a hub, as a process: killed at any instant and run again; its faces.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fieldfare::format::hash;
use fieldfare_testing::fake_hub::{Content, FakeHub, Fault, REPO, Served};

use crate::support::{Home, binary, install};

pub(crate) fn hub(pause: Duration) -> FakeHub {
    let dir = fieldfare_testing::tiny_checkpoint();
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if !entry.file_type().unwrap().is_file() {
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        let sha256 = name.ends_with(".safetensors").then(|| hash::hex(&hash::sha256(&bytes)));
        files.insert(name, Served { content: Content::Bytes(bytes), sha256 });
    }
    FakeHub::start(files, move |_, _| {
        std::thread::sleep(pause);
        Fault::None
    })
}

pub(crate) fn command(home: &Home, hub: &FakeHub, output: &Path) -> Command {
    let mut command = Command::new(binary());
    command
        .envs(home.environment())
        .env("HF_ENDPOINT", hub.endpoint())
        .env("HF_TOKEN", "hf_secret")
        .args(["install", "--from", REPO, "--allow-unpinned", "--output"])
        .arg(output)
        .stdin(Stdio::null());
    command
}

pub(crate) fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(dir.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                todo.push(path);
            } else if path != Path::new("verified-install.json") {
                out.insert(path.clone(), std::fs::read(dir.join(path)).unwrap());
            }
        }
    }
    out
}

/// Killed at any instant and run again: the same bytes, and no more fetched again than one request for each connection and what
/// is always asked. `FIELDFARE_INSTALL_KILLS` sets the number of kills.
#[test]
fn killed_at_any_instant_and_run_again() {
    const REQUEST: u64 = 128 << 10;
    const CONNECTIONS: u64 = 4;
    let kills = std::env::var("FIELDFARE_INSTALL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let home = Home::new();
    let local = home.path("local.gturbo");
    assert_eq!(install(&home, &local, "tiled").code, 0);
    let (wanted, hub) = (files(&local), hub(Duration::from_millis(2)));
    let output = home.path("from hub.gturbo");
    let start = || {
        command(&home, &hub, &output)
            .args(["--quiet", "--connections", &CONNECTIONS.to_string()])
            .args(["--longest-request", &REQUEST.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let ends = |child: std::process::Child| {
        let ended = child.wait_with_output().unwrap();
        let complete = output.join("manifest.json").is_file();
        assert!(complete, "{}", String::from_utf8_lossy(&ended.stderr));
        assert!(files(&output) == wanted);
        std::fs::remove_dir_all(&output).unwrap();
    };
    // Undisturbed, it fetches each byte once; what is asked beforehand is asked by every run.
    ends(start());
    let clean = hub.sent();
    let shard = std::fs::read(fieldfare_testing::tiny_checkpoint().join("model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(*shard.first_chunk().unwrap());
    let size = |name: &str| std::fs::metadata(fieldfare_testing::tiny_checkpoint().join(name)).unwrap().len();
    let asked = header + size("config.json") + size("model.safetensors.index.json");
    let (mut killed, mut done, mut dice, mut most, mut all) = (0, 0, 12_345u64, 0, 0);
    while killed < kills {
        let before = hub.sent();
        let mut in_this = 0;
        loop {
            let mut child = start();
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // After some kills it is left alone.
            if in_this < 8 {
                std::thread::sleep(Duration::from_micros((dice >> 33) % 300_000));
                let running = child.try_wait().unwrap().is_none();
                // SIGKILL: nothing of the process runs after it.
                child.kill().unwrap();
                if running {
                    child.wait().unwrap();
                    (killed, in_this) = (killed + 1, in_this + 1);
                    continue;
                }
            }
            ends(child);
            break;
        }
        done += 1;
        let again = (hub.sent() - before).saturating_sub(clean);
        all += again;
        let each = again.checked_div(in_this).unwrap_or(0);
        most = most.max(each);
        let bound = in_this * (CONNECTIONS * REQUEST + asked);
        assert!(again <= bound, "{again} bytes fetched again after {in_this} kills, not {bound}");
    }
    println!(
        "{killed} kills, {done} installs of {clean} bytes; fetched again for a kill: {} on average, {most} at most, of them {asked} asked by every run",
        all / killed
    );
}

#[test]
fn the_faces_of_an_install() {
    let home = Home::new();
    let (hub, output) = (hub(Duration::ZERO), home.path("m.gturbo"));
    let run = |args: &[&str]| {
        let out = command(&home, &hub, &output).args(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
    };
    let (code, out, err) = run(&["--dry-run"]);
    assert_eq!(code, 0, "{err}");
    for part in ["owner/name at commit 0123", "not known beforehand", "requests", "write", "free"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (code, out, _) = run(&["--dry-run", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(code == 0 && plan["event"] == "plan" && plan["pinned"] == false, "{out}");
    assert!(!output.exists());
    let (code, out, err) = run(&["--json"]);
    assert_eq!(code, 0, "{err}");
    let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["event"], &last["proof"]["model.safetensors"]),
        (&"installed".into(), &"proven".into())
    );
    let (code, _, err) = run(&[]);
    assert!(code == 1 && err.contains("exists already"), "{err}");
    let (code, out, _) = run(&["--discard"]);
    assert!(code == 0 && out.contains("no unfinished install") && output.is_dir(), "{out}");
    let (code, out, err) = run(&["--overwrite"]);
    assert!(code == 0 && out.starts_with("installed ") && err.contains("proven by its hash"), "{out}{err}");
    assert!(!err.contains("hf_secret"));
    // Events are lines of JSON, the first ones before the end; quiet is quiet.
    let (code, out, err) = run(&["--json", "--overwrite"]);
    let events: Vec<serde_json::Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(code == 0 && !events.is_empty() && events.iter().all(|e| e["event"].is_string()), "{out}{err}");
    let (code, out, err) = run(&["--quiet", "--overwrite"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    // Where an unknown checkpoint is not wanted.
    let strict = Command::new(binary())
        .envs(home.environment())
        .env("HF_ENDPOINT", hub.endpoint())
        .args(["install", "--from", REPO, "--output"])
        .arg(home.path("other"))
        .output()
        .unwrap();
    assert_eq!(strict.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&strict.stderr).contains("--allow-unpinned"));
}
