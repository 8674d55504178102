//! `fieldfare install` from a hub, as a process: killed at any instant and run again; its faces.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fieldfare::format::hash;
pub(crate) use fieldfare_testing::contents as files;
use fieldfare_testing::fake_hub::{FakeHub, Fault, REPO, files_of};
use fieldfare_testing::{Dice, rounds};

use crate::support::{Home, binary, install};

pub(crate) fn hub(pause: Duration) -> FakeHub {
    let files = files_of(&fieldfare_testing::tiny_checkpoint(), |name, bytes| {
        name.ends_with(".safetensors").then(|| hash::hex(&hash::sha256(bytes)))
    });
    FakeHub::start(files, move |_, _| {
        std::thread::sleep(pause);
        Fault::None
    })
}

/// A hub that sends the first part of the weights and then, as long as `held` says so, nothing more: however slow or quick the
/// machine is, an install from it is in the middle.
pub(crate) fn held_hub(held: impl Fn() -> bool + Send + Sync + 'static) -> FakeHub {
    let files = files_of(&fieldfare_testing::tiny_checkpoint(), |name, bytes| {
        name.ends_with(".safetensors").then(|| hash::hex(&hash::sha256(bytes)))
    });
    let seen = AtomicUsize::new(0);
    FakeHub::start(files, move |_, asked| {
        let payload = asked.is_storage() && asked.range.is_some_and(|(first, _)| first > HEADER);
        if payload && seen.fetch_add(1, Ordering::Relaxed) > 0 {
            while held() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Fault::None
    })
}

/// Behind it lie the weights of the tiny checkpoint.
const HEADER: u64 = 200_000;

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

/// Killed at any instant and run again: the same bytes, and no more fetched again than one request for each connection and what
/// is always asked. `FIELDFARE_INSTALL_KILLS` sets the number of kills.
///
/// The bound is exact. A process that is killed loses what it asked for and did not record. The window (`install/window.rs`) lets
/// no more be asked for than a longest request for each connection, scales and biases of unfinished strips included, since
/// no step here is larger than half of that. The hub counts what it sent, which is no more than what was asked for. What lies
/// written in the page cache outlives the process, and the next run asks for nothing that its journal has. Beside that each run
/// asks its questions: header, index and `config.json`. Every kill may cost both.
#[test]
fn killed_at_any_instant_and_run_again() {
    const REQUEST: u64 = 128 << 10;
    const CONNECTIONS: u64 = 4;
    let kills = rounds("FIELDFARE_INSTALL_KILLS", 20) as u64;
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
    let (mut killed, mut done, mut dice, mut most, mut all) = (0, 0, Dice(12_345), 0, 0);
    while killed < kills {
        let before = hub.sent();
        let mut in_this = 0;
        loop {
            let mut child = start();
            // After some kills it is left alone.
            if in_this < 8 {
                std::thread::sleep(Duration::from_micros(dice.below(300_000)));
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
    // A slow look has said how far it is before.
    let plan: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
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

/// A host that nobody knows: given up after some seconds of which each face says what they are waited for, and the remedy is one
/// for what was asked. A part of its name is longer than any name may have, so no network is asked for it.
#[test]
fn a_host_that_is_not_known() {
    let home = Home::new();
    let host = format!("https://hub.{}.invalid", "a".repeat(64));
    let run = |args: &[&str]| {
        let mut command = Command::new(binary());
        command.envs(home.environment()).env("HF_ENDPOINT", &host).stdin(Stdio::null());
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(name);
        }
        command
            .args(["install", "--from", REPO, "--allow-unpinned", "--output"])
            .arg(home.path("m"))
            .args(args);
        let out = command.output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (out, err) = run(&["--dry-run"]);
    assert_eq!(out, "");
    assert_eq!(err.matches("asking: trying again in ").count(), 3, "{err}");
    for part in ["is not known", "given up after 4 tries", "run the same command again; nothing was written"]
    {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert!(!err.contains("continues where it stopped"), "{err}");
    let (out, err) = run(&["--json"]);
    let events: Vec<serde_json::Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let waits: Vec<_> = events.iter().filter(|event| event["event"] == "waiting").collect();
    assert_eq!(waits.len(), 3, "{out}");
    for wait in waits {
        assert!(wait["seconds"].as_f64().unwrap() > 0.0 && wait["stage"] == "asking", "{wait}");
        assert!(wait["reason"].as_str().unwrap().contains("the host is not known"), "{wait}");
    }
    assert!(err.contains("continues where it stopped"), "{err}");
    let (out, err) = run(&["--quiet"]);
    assert!(out.is_empty() && !err.contains("trying again"), "{err}");
    assert_eq!(fieldfare_testing::names(&home.path("")), ["cache", "data", "home", "run"], "nothing is left");
}

/// A server that has enough of it for a while, in the middle: said once for each wait.
#[test]
fn a_wait_in_the_middle_is_said() {
    const SECONDS: u32 = 6;
    let home = Home::new();
    let files = files_of(&fieldfare_testing::tiny_checkpoint(), |name, bytes| {
        name.ends_with(".safetensors").then(|| hash::hex(&hash::sha256(bytes)))
    });
    let seen = AtomicUsize::new(0);
    let hub = FakeHub::start(files, move |_, asked| {
        let payload = asked.is_storage() && asked.range.is_some_and(|(first, _)| first > HEADER);
        let nth = seen.fetch_add(usize::from(payload), Ordering::Relaxed);
        if payload && nth == 3 { Fault::Later(SECONDS) } else { Fault::None }
    });
    let output = home.path("m.gturbo");
    let out = command(&home, &hub, &output).args(["--connections", "1"]).output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{err}");
    let said: Vec<&str> =
        err.lines().filter_map(|line| line.strip_prefix("fetching: trying again in ")).collect();
    let [said] = said[..] else { panic!("once: {err}") };
    // A busy machine looks late.
    let (seconds, reason) = said.split_once(' ').unwrap();
    assert!((1..=SECONDS).contains(&seconds.parse().unwrap()) && reason == "s (HTTP status 429)", "{err}");
}
