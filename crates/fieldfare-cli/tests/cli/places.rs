//! `fieldfare install` from a hub as processes: two at once, Ctrl-C, and real file systems that are small, full, read-only.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::hub::{command, files, held_hub, hub};
use crate::support::{Home, binary, install};

/// Waits until the install has something to lose.
fn until_begun(output: &Path) {
    let mut journal = output.as_os_str().to_os_string();
    journal.push(".install.journal");
    let started = Instant::now();
    while !Path::new(&journal).exists() {
        assert!(started.elapsed() < Duration::from_secs(120), "it does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_second_of_two_installers_is_told_who_the_first_is() {
    let home = Home::new();
    let (held, output) = (Arc::new(AtomicBool::new(true)), home.path("m.gturbo"));
    let holds = held.clone();
    let hub = held_hub(move || holds.load(Ordering::Relaxed));
    let first = command(&home, &hub, &output).arg("--quiet").stderr(Stdio::piped()).spawn().unwrap();
    until_begun(&output);
    for args in [&["--quiet"][..], &["--discard"]] {
        let second = command(&home, &hub, &output).args(args).output().unwrap();
        let err = String::from_utf8(second.stderr).unwrap();
        assert_eq!(second.status.code(), Some(1), "{err}");
        assert!(err.contains(&format!("in use by another installer, process {}", first.id())), "{err}");
        assert!(err.contains("wait for that process"), "{err}");
    }
    held.store(false, Ordering::Relaxed);
    let first = first.wait_with_output().unwrap();
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let local = home.path("local.gturbo");
    assert_eq!(install(&home, &local, "tiled").code, 0);
    assert!(files(&output) == files(&local));
}

#[cfg(unix)]
#[test]
fn ctrl_c_pauses_and_says_how_to_go_on() {
    let home = Home::new();
    let (held, output) = (Arc::new(AtomicBool::new(true)), home.path("m.gturbo"));
    let holds = held.clone();
    let hub = held_hub(move || holds.load(Ordering::Relaxed));
    let child = command(&home, &hub, &output).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    until_begun(&output);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{err}");
    assert!(
        err.contains("paused; the same command continues where it stopped, --discard gives it up"),
        "{err}"
    );
    assert!(!output.exists());
    held.store(false, Ordering::Relaxed);
    let again = command(&home, &hub, &output).arg("--quiet").output().unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    // Paused once more, and given up: nothing is left.
    std::fs::remove_dir_all(&output).unwrap();
    held.store(true, Ordering::Relaxed);
    let mut child = command(&home, &hub, &output).arg("--quiet").spawn().unwrap();
    until_begun(&output);
    child.kill().unwrap();
    child.wait().unwrap();
    let discard = command(&home, &hub, &output).arg("--discard").output().unwrap();
    assert!(String::from_utf8(discard.stdout).unwrap().contains("removed the unfinished install"));
    let left: Vec<_> = std::fs::read_dir(output.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("m.gturbo"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Runs a shell script in a mount namespace of its own, with a tmpfs of `size` at `$D`. `None` where nobody may mount.
#[cfg(target_os = "linux")]
fn with_disk(size: &str, place: &Path, script: &str, variables: &[(&str, &Path)]) -> Option<String> {
    let script = format!("mount -t tmpfs -o size={size} none \"$D\" || exit 77\n{script}");
    for root in [&[][..], &["--user", "--map-root-user"]] {
        let mut command = Command::new("unshare");
        command.args(root).args(["--mount", "sh", "-c", &script]).env("D", place).env("F", binary());
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        let Ok(out) = command.output() else { break };
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        if out.status.success() {
            return Some(String::from_utf8(out.stdout).unwrap());
        }
        let refused = out.status.code() == Some(77) || err.starts_with("unshare:");
        assert!(refused, "{err}\n{}", String::from_utf8_lossy(&out.stdout));
    }
    println!("skipped: no file system may be mounted here");
    None
}

/// A real file system that fills up while the install is at work, is given room again, and is read-only in the end. It is also
/// another one than that of everything else.
#[cfg(target_os = "linux")]
#[test]
fn a_small_disk_that_fills_up_and_one_that_is_read_only() {
    let home = Home::new();
    let log = home.path("log");
    let full = home.path("log.full");
    let hub = held_hub(move || !full.exists());
    let local = home.path("local.gturbo");
    assert_eq!(install(&home, &local, "tiled").code, 0);
    let disk = home.path("a disk, größer");
    std::fs::create_dir(&disk).unwrap();
    let script = r#"
        export HF_ENDPOINT=$(cat "$H")
        go() { "$F" install --from owner/name --allow-unpinned --output "$D/mein Modell.gturbo" "$@"; }
        go --quiet 2> "$L.first" & pid=$!
        while [ ! -s "$D/mein Modell.gturbo.install.journal" ] && kill -0 $pid; do sleep 0.01; done
        cat /dev/zero > "$D/ballast" 2> "$L.cat"
        : > "$L.full"
        wait $pid; echo "first $?"; cat "$L.first"
        rm "$D/ballast"
        go --quiet; echo "second $?"
        rm "$D/mein Modell.gturbo/verified-install.json"
        diff -r "$W" "$D/mein Modell.gturbo" && echo same
        "$F" verify "$D/mein Modell.gturbo" > "$L.verify" 2>&1; echo "verify $?"
        mount -o remount,ro "$D" || exit 77
        "$F" install --from owner/name --allow-unpinned --quiet --output "$D/other.gturbo" 2>&1; echo "third $?"
    "#;
    let plain = home.path("plain");
    crate::support::copy(&local, &plain);
    std::fs::remove_file(plain.join("verified-install.json")).unwrap();
    let endpoint = home.write("endpoint", hub.endpoint());
    let variables = [("H", &*endpoint), ("L", &*log), ("W", &*plain), ("XDG_DATA_HOME", &*home.path("data"))];
    let Some(out) = with_disk("20m", &disk, script, &variables) else { return };
    println!("{out}");
    assert!(out.contains("first 1"), "{out}");
    let full = out.contains("No space left on device") || out.contains("not enough space on");
    assert!(full && out.contains("free some space"), "{out}");
    assert!(out.contains("second 0") && out.contains("same") && out.contains("verify 0"), "{out}");
    assert!(out.contains("Read-only file system") && out.contains("third 1"), "{out}");
}

/// Less room than the model needs: refused before anything is asked for or written, with both numbers.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_too_small_from_the_start() {
    let home = Home::new();
    let hub = hub(Duration::ZERO);
    let disk = home.path("small");
    std::fs::create_dir(&disk).unwrap();
    let script = r#"
        export HF_ENDPOINT=$(cat "$H")
        "$F" install --from owner/name --allow-unpinned --output "$D/m.gturbo" 2>&1; echo "ended $?"; ls "$D"
    "#;
    let endpoint = home.write("endpoint", hub.endpoint());
    let Some(out) = with_disk("4m", &disk, script, &[("H", &endpoint)]) else { return };
    assert!(out.contains("not enough space on") && out.contains("bytes, have 4"), "{out}");
    assert!(out.contains("free some space or choose another --output"), "{out}");
    assert!(out.ends_with("ended 1\n"), "{out}");
}

/// A place that takes nothing, without a file system of its own: a folder without the right to write. (To the superuser that
/// is no obstacle, so then it is a folder of the kernel's.)
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_may_not_be_written() {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let hub = hub(Duration::ZERO);
    let folder = home.path("closed");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    let open = std::fs::write(folder.join("probe"), "").is_ok();
    let place = if open { Path::new("/proc/fieldfare") } else { &folder };
    let mut child = command(&home, &hub, &place.join("m.gturbo")).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{err}");
    assert!(err.contains("cannot create") && err.contains(&place.display().to_string()), "{err}");
    assert!(hub.asked().is_empty(), "nothing is asked of the source");
}

/// Two checks of one model at the same time do not disturb each other, and what a receipt says survives both.
#[test]
fn two_verifications_at_once() {
    let home = Home::new();
    let model = home.path("m.gturbo");
    assert_eq!(install(&home, &model, "tiled").code, 0);
    let start = || {
        let mut command = Command::new(binary());
        command.envs(home.environment()).arg("verify").arg(&model);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for _ in 0..3 {
        let both = [start(), start()];
        for child in both {
            let ended = child.wait_with_output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        }
    }
    let names: Vec<_> = std::fs::read_dir(&model)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(names.is_empty(), "no temporary is left: {names:?}");
    assert!(model.join("verified-install.json").is_file());
}
