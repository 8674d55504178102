//! Long jobs: the download with pause and resume, checking, unpacking, measuring.

use crate::support::{Home, PATIENCE, copy, demo, settings};
use fieldfare::format::hash;
use fieldfare::install::hub::Remote;
use fieldfare_app_worker::message::{Command, EngineSettings, Event, Job, Model, Service};
use fieldfare_testing::fake_hub::{Content, FakeHub, Fault, REPO, Served};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn served() -> BTreeMap<String, Served> {
    let folder = fieldfare_testing::tiny_checkpoint();
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            let name = entry.file_name().into_string().unwrap();
            let bytes = std::fs::read(entry.path()).unwrap();
            let large = name.ends_with(".safetensors");
            let sha256 = large.then(|| hash::hex(&hash::sha256(&bytes)));
            files.insert(name, Served { content: Content::Bytes(bytes), sha256 });
        }
    }
    files
}

fn models(rig: &mut crate::support::Rig) -> Vec<Model> {
    rig.wait("models", |event| match event {
        Event::Models(models) => Some(models.clone()),
        _ => None,
    })
}

#[test]
fn a_download_is_offered_paused_gone_on_with_and_found() {
    let slow = Arc::new(AtomicBool::new(true));
    let script = slow.clone();
    let hub = FakeHub::start(served(), move |_, asked| {
        // Parts of the weights come to a halt in the middle; everything else is quick.
        let stalls = script.load(Ordering::Relaxed)
            && asked.is_storage()
            && asked.range.is_some_and(|(_, to)| to > 3_000_000);
        if stalls { Fault::Stall(Duration::from_secs(30)) } else { Fault::None }
    });
    let mut home = Home::new();
    home.start.remote = Remote::Hub { endpoint: hub.endpoint(), repo: REPO.into(), revision: "main".into() };
    home.start.allow_unpinned = true;
    let mut rig = home.open();
    let folder = home.paths().models[0].clone();
    let offer = |rig: &mut crate::support::Rig| {
        rig.tell(Command::AskOffer { folder: folder.clone() });
        rig.wait("offer", |event| match event {
            Event::Offer(offer) => Some(offer.clone()),
            _ => None,
        })
    };
    slow.store(false, Ordering::Relaxed);
    let first = offer(&mut rig);
    assert_eq!((first.obstacle.as_deref(), first.kept_bytes), (None, 0), "{first:?}");
    assert!(
        first.fetch_bytes > 0 && first.need_bytes > 0 && first.free_bytes > first.need_bytes,
        "{first:?}"
    );
    assert_eq!(first.target, folder.join("name.gturbo"));
    let end = Instant::now() + PATIENCE;
    // What came may not be written yet when it is stopped; then it is gone on with, and stopped again.
    let paused = loop {
        slow.store(true, Ordering::Relaxed);
        rig.tell(Command::Install { target: first.target.clone() });
        let step = rig.wait("step", |event| match event {
            Event::JobStep(Job::Install, step) if step.done_bytes > 0 => Some(step.clone()),
            Event::JobFailed(_, trouble) => panic!("{trouble:?}"),
            _ => None,
        });
        assert!(!step.stage.is_empty() && step.done_bytes <= step.total_bytes, "{step:?}");
        rig.tell(Command::StopJob(Job::Install));
        let said = rig.wait("pause", |event| match event {
            Event::JobStopped(Job::Install, said) => Some(said.clone()),
            Event::JobDone(..) => panic!("it cannot be done"),
            _ => None,
        });
        assert!(said.contains("kept"), "{said}");
        slow.store(false, Ordering::Relaxed);
        let paused = offer(&mut rig);
        if paused.kept_bytes > 0 {
            break paused;
        }
        assert!(Instant::now() < end, "nothing is kept: {paused:?}");
    };
    assert_eq!(paused.obstacle, None);
    assert!(paused.kept_bytes < paused.fetch_bytes, "{paused:?}");
    rig.tell(Command::Install { target: first.target.clone() });
    rig.wait("end", |event| match event {
        Event::JobDone(Job::Install, _) => Some(()),
        Event::JobFailed(_, trouble) => panic!("{trouble:?}"),
        _ => None,
    });
    let found = models(&mut rig);
    assert!(found.iter().any(|model| model.path == first.target && !model.is_demo), "{found:?}");
    let again = offer(&mut rig);
    assert!(again.obstacle.unwrap().contains("already"));
    // A new one may be begun elsewhere, and thrown away.
    rig.tell(Command::DiscardInstall { target: folder.join("other.gturbo") });
    rig.wait("discard", |event| matches!(event, Event::JobStopped(Job::Install, _)).then_some(()));
    rig.close();
}

#[test]
fn a_hub_that_is_not_there_is_an_obstacle_and_a_failure_in_words() {
    let nobody = fieldfare_testing::NobodyThere::new();
    let endpoint = format!("http://{}", nobody.address());
    let mut home = Home::new();
    home.start.remote = Remote::Hub { endpoint, repo: "no owner".into(), revision: "main".into() };
    let mut rig = home.open();
    let folder = home.paths().models[0].clone();
    rig.tell(Command::AskOffer { folder: folder.clone() });
    let obstacle = rig.wait("offer", |event| match event {
        Event::Offer(offer) => Some(offer.obstacle.clone()),
        _ => None,
    });
    assert!(obstacle.is_some());
    rig.tell(Command::Install { target: folder.join("x.gturbo") });
    let failed = rig.wait("failure", |event| match event {
        Event::JobFailed(Job::Install, trouble) => Some(trouble.clone()),
        _ => None,
    });
    assert!(!failed.message.is_empty());
    rig.close();
}

/// What the hub's own tools are told holds for the app: its child has their variables.
#[test]
fn the_surroundings_of_the_hub_are_heeded() {
    let hub = FakeHub::start(served(), |_, _| Fault::None);
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("token"), "hf_in_file\n").unwrap();
    let mut home = Home::new();
    home.start.remote = Remote::Hub { endpoint: hub.endpoint(), repo: REPO.into(), revision: "main".into() };
    home.start.allow_unpinned = true;
    let (plain, file) = (home.start.child.clone(), files.path().join("token"));
    let with = |home: &mut Home, settings: &[String]| {
        let mut child: Vec<std::ffi::OsString> =
            ["env", "-u", "HF_TOKEN", "-u", "HF_HUB_OFFLINE"].map(Into::into).to_vec();
        child.extend(settings.iter().map(Into::into));
        child.extend(plain.clone());
        home.start.child = child;
    };
    // A window that knows no folder gets the usual one; the token is the file's.
    with(&mut home, &[format!("HF_TOKEN_PATH={}", file.display())]);
    let offer = |home: &Home| {
        let mut rig = home.open();
        rig.tell(Command::AskOffer { folder: "".into() });
        let offer = rig.wait("offer", |event| match event {
            Event::Offer(offer) => Some(offer.clone()),
            _ => None,
        });
        rig.close();
        offer
    };
    let usual = offer(&home);
    assert_eq!(usual.obstacle, None);
    assert_eq!(usual.target, home.paths().models[0].join("name.gturbo"));
    let asked = hub.asked();
    assert!(
        asked.iter().any(|asked| asked.authorization.as_deref() == Some("Bearer hf_in_file")),
        "{asked:?}"
    );
    // Where the network is forbidden nothing is asked, and that is said with the remedy.
    with(&mut home, &["HF_HUB_OFFLINE=1".to_owned()]);
    let obstacle = offer(&home).obstacle.unwrap();
    assert!(obstacle.contains("HF_HUB_OFFLINE") && obstacle.contains("choose a folder"), "{obstacle}");
    assert_eq!(hub.asked().len(), asked.len());
}

#[test]
fn a_check_says_what_is_well_and_what_is_not() {
    let home = Home::new();
    let path = home.paths().models[0].join("mine.gturbo");
    copy(&demo(), &path);
    let mut rig = home.open();
    rig.tell(Command::Verify { model: path.clone() });
    let said = rig.wait("end", |event| match event {
        Event::JobDone(Job::Verify, said) => Some(said.clone()),
        Event::JobFailed(_, trouble) => panic!("{trouble:?}"),
        _ => None,
    });
    assert!(said.contains("as they must be"), "{said}");
    models(&mut rig);
    // After a check the machine is measured beside the model, and plans know a speed.
    let machine = home.paths().data.join("machine.json");
    crate::support::until("a measurement", PATIENCE, || machine.exists());
    rig.tell(Command::AskPlan { model: path.clone(), settings: settings() });
    let plan = rig.wait("plan", |event| match event {
        Event::Planned(_, plan) => Some(plan.clone().unwrap()),
        _ => None,
    });
    assert!(plan.tokens_per_second.unwrap() > 0.0);
    let layer = path.join("packed_experts/layer_01.bin");
    let mut bytes = std::fs::read(&layer).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&layer, bytes).unwrap();
    rig.tell(Command::Verify { model: path });
    let trouble = rig.wait("failure", |event| match event {
        Event::JobFailed(Job::Verify, trouble) => Some(trouble.clone()),
        Event::JobDone(_, said) => panic!("{said}"),
        _ => None,
    });
    assert!(trouble.message.contains("layer_01") && !trouble.remedy.is_empty(), "{trouble:?}");
    rig.close();
}

#[test]
fn the_demonstration_model_is_unpacked_found_and_answers() {
    let home = Home::new();
    let mut rig = home.open();
    rig.tell(Command::FindModels { folders: Vec::new() });
    assert_eq!(models(&mut rig), []);
    rig.tell(Command::InstallDemo);
    rig.wait("end", |event| match event {
        Event::JobDone(Job::Demo, _) => Some(()),
        Event::JobFailed(_, trouble) => panic!("{trouble:?}"),
        _ => None,
    });
    let found = models(&mut rig);
    assert!(found.len() == 1 && found[0].is_demo && found[0].bytes > 1 << 20, "{found:?}");
    rig.load(&found[0].path);
    rig.close();
}

#[test]
fn a_benchmark_has_a_row_for_each_budget_and_gives_the_model_back() {
    let home = Home::new();
    let mut rig = home.loaded();
    rig.tell(Command::Bench {
        model: demo(),
        memory_bytes: vec![400 << 20, 1 << 20, 600 << 20],
        prompt: 16,
        decode: 8,
    });
    // Nothing else may disturb it.
    rig.tell(Command::Load {
        model: crate::support::model(&demo()),
        settings: EngineSettings { ..settings() },
    });
    rig.wait("off", |event| matches!(event, Event::Service(Service::Off)).then_some(()));
    let refused = rig.wait("refusal", |event| match event {
        Event::Trouble(trouble) => Some(trouble.clone()),
        _ => None,
    });
    assert!(refused.message.contains("measurement"), "{refused:?}");
    let mut rows = Vec::new();
    let result = rig.wait("end", |event| match event {
        Event::BenchRow(row) => {
            rows.push(row.clone());
            None
        }
        Event::BenchDone(result) => Some(result.clone()),
        _ => None,
    });
    assert!(result.unwrap_err().message.contains("MB"), "the budget that is too small is told at the end");
    assert_eq!(rows.iter().map(|row| row.memory_bytes).collect::<Vec<_>>(), [400 << 20, 600 << 20]);
    for row in &rows {
        assert!(row.decode > 0.0 && row.decode_bound >= row.decode && row.prefill > 0.0, "{row:?}");
        assert!(row.first_token_seconds > 0.0 && row.peak_bytes > 1 << 20 && row.hit_rate > 0.0, "{row:?}");
    }
    rig.ready();
    // Stopped, it ends at once and is no failure.
    rig.tell(Command::Bench { model: demo(), memory_bytes: vec![400 << 20; 50], prompt: 64, decode: 64 });
    rig.wait("off", |event| matches!(event, Event::Service(Service::Off)).then_some(()));
    rig.tell(Command::StopBench);
    let result = rig.wait("end", |event| match event {
        Event::BenchDone(result) => Some(result.clone()),
        _ => None,
    });
    assert_eq!(result, Ok(()));
    rig.ready();
    rig.close();
}
