//! `fieldfare doctor`: what it finds, that it leaves nothing behind, and that bad news is no failure.

use crate::support::Home;

#[test]
fn it_looks_at_everything_and_leaves_nothing() {
    let home = Home::new();
    let ran = home.run(["doctor", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let found = ran.json();
    assert!(found["machine"]["cores"].as_u64().unwrap() >= 1, "{found}");
    assert!(found["isas"].as_array().unwrap().contains(&found["isa"]), "{found}");
    assert!(found["bandwidth_bytes_per_second"].as_f64().unwrap() > 0.0, "{found}");
    let folder = &found["folder"];
    assert!(folder["path"].as_str().unwrap().ends_with("fieldfare/models"), "{folder}");
    assert!(folder["free_bytes"].is_null() || folder["free_bytes"].is_u64(), "{folder}");
    // A full or foreign disk is said, not measured.
    assert!(
        folder["disk"]["bytes_per_second"].as_f64().is_some_and(|rate| rate > 0.0)
            || folder["disk_error"].is_string()
    );
    let budgets = found["budgets"].as_array().unwrap();
    let names: Vec<_> = budgets.iter().map(|budget| budget["memory"].as_str().unwrap()).collect();
    assert_eq!(names, ["2 GiB", "3 GiB", "4 GiB", "6 GiB", "8 GiB", "auto"]);
    for budget in budgets {
        let works = budget["error"].is_null();
        assert_eq!(budget["slots_per_layer"].is_number(), works, "{budget}");
        assert_eq!(budget["hit_rate"].is_number(), works, "{budget}");
    }
    for warning in found["warnings"].as_array().unwrap() {
        assert!(warning["problem"].is_string() && warning["remedy"].is_string(), "{warning}");
    }
    assert_eq!(std::fs::read_dir(home.path("data")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn the_quick_look_measures_nothing_and_is_plain_in_a_pipe() {
    let home = Home::new();
    let ran = home.run(["doctor", "--quick"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    for word in ["Machine", "kernels", "Memory", "huge pages", "Disk", "models go to", "2 GiB", "auto"] {
        assert!(ran.out.contains(word), "{word}: {}", ran.out);
    }
    assert!(!ran.out.contains("read rate") && !ran.out.contains('\u{1b}'), "{}", ran.out);
    let file = home.write("file", "");
    let ran = home.run(["doctor".as_ref(), "--quick".as_ref(), "--folder".as_ref(), file.as_os_str()]);
    ran.fails(1, "is not a folder");
    let mut command = home.command(["doctor", "--quick", "--json"]);
    command.env("FIELDFARE_ISA", "quantum");
    crate::support::ran(command).fails(2, "quantum");
}

/// A folder that somebody names must be there: what is said would be said of another one.
#[test]
fn a_folder_or_model_that_was_named_must_be_there() {
    let home = Home::new();
    for args in [["--folder", "/nonexistent/folder"], ["--model", "/nonexistent/model"]] {
        for face in [&["--quick"][..], &["--quick", "--json"]] {
            let ran = home.run(["doctor"].iter().chain(&args).chain(face));
            assert!(ran.fails(1, args[1]).contains("hint: "), "{ran:?}");
        }
    }
    let model = home.path("models/m.gturbo");
    std::fs::create_dir(home.path("models")).unwrap();
    crate::support::copy(crate::support::tiny_model(), &model);
    let ran = home.run(["doctor", "--quick", "--json", "--model", model.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let folder = home.path("models").canonicalize().unwrap();
    assert_eq!(ran.json()["folder"]["path"], folder.to_str().unwrap());
    home.run(["doctor", "--folder", "/", "--model", "demo"]).fails(2, "cannot be used with");
}
