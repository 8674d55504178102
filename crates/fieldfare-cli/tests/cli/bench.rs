//! `fieldfare bench`: rows, their figures, what is refused, and that nothing is left running.

use crate::support::{Home, Ran, tiny_model};
use serde_json::Value;

/// `fieldfare bench` on the tiny model, hastily.
fn bench<'a>(args: impl IntoIterator<Item = &'a str>) -> Ran {
    let hasty = ["bench", "--measure-seconds", "0.01", "--threads", "1"];
    Home::new().run_model(hasty.into_iter().chain(args))
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {row}"))
}

#[test]
fn rows_have_all_figures_and_they_fit_together() {
    let args =
        ["--memory", "300MB,auto", "--prompt", "24", "--decode", "8", "--runs", "2", "--json", "--quiet"];
    let ran = bench(args);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let report = ran.json();
    for (key, is) in [
        ("version", Value::is_string as fn(&Value) -> bool),
        ("machine", Value::is_object),
        ("model", Value::is_object),
        ("limits", Value::is_object),
        ("routing", Value::is_string),
        ("text", Value::is_string),
    ] {
        assert!(is(&report[key]), "{key}: {report}");
    }
    assert!(report["commit"].is_null() || report["commit"].as_str().unwrap().len() >= 7);
    for rate in report["limits"]["memory"]
        .as_array()
        .unwrap()
        .iter()
        .chain(report["limits"]["disk"].as_array().unwrap())
    {
        assert!(number(rate, "best") >= number(rate, "median") && number(rate, "median") > 0.0, "{rate}");
    }
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["memory_bytes"], 300_000_000);
    for row in rows {
        for key in [
            "memory_bytes",
            "slots_per_layer",
            "decode_tokens_per_second",
            "decode_bound_tokens_per_second",
            "decode_bound_ratio",
            "prefill_tokens_per_second",
            "prefill_bound_tokens_per_second",
            "time_to_first_token_seconds",
            "disk_bytes_per_second",
            "bandwidth_bytes_per_second",
            "peak_rss_bytes",
            "threads",
        ] {
            assert!(number(row, key) > 0.0, "{key}: {row}");
        }
        for key in [
            "hit_rate",
            "read_bytes_per_token",
            "prefill_read_bytes",
            "decode_spread",
            "prefill_spread",
            "decode_bounds_raised",
            "prefill_bounds_raised",
        ] {
            assert!(number(row, key) >= 0.0, "{key}: {row}");
        }
        for key in [
            "read_bytes_per_second",
            "read_disk_ratio",
            "prefill_read_bytes_per_second",
            "prefill_read_disk_ratio",
            "cgroup_peak_bytes",
            "cgroup_limit_bytes",
            "huge_page_share",
        ] {
            assert!(row[key].is_null() || row[key].is_number(), "{key}: {row}");
        }
        for phase in ["decode", "prefill"] {
            // However busy the machine is while this runs: what was reached is possible.
            let ratio = number(row, &format!("{phase}_bound_ratio"));
            assert!(ratio > 0.0 && ratio <= 1.0, "{row}");
            let raised = number(row, &format!("{phase}_bounds_raised"));
            assert!(raised <= 2.0 && (raised < 2.0 || ratio == 1.0), "{row}");
        }
        assert!(row["isa"].is_string() && row["error"].is_null(), "{row}");
        assert_eq!(
            (&row["prompt_tokens"], &row["decode_tokens"], &row["runs"]),
            (&24.into(), &8.into(), &2.into())
        );
        assert_eq!(row["decode_tokens_per_second_runs"].as_array().unwrap().len(), 2);
        // Of two runs the median is the mean, of both the rates and the ratios.
        let runs = &row["decode_tokens_per_second_runs"];
        let mean = f64::midpoint(runs[0].as_f64().unwrap(), runs[1].as_f64().unwrap());
        assert!((number(row, "decode_tokens_per_second") / mean - 1.0).abs() < 1e-9, "{row}");
        // Everything is held: nothing is read.
        assert_eq!((number(row, "hit_rate"), number(row, "read_bytes_per_token")), (1.0, 0.0), "{row}");
    }
}

#[test]
fn few_slots_read_and_routing_decides_what() {
    let rate = |routing: &str| {
        let args =
            ["--expert-cache-slots", "3", "--prompt", "16", "--decode", "32", "--runs", "1", "--json", "-q"];
        let ran = bench(args.into_iter().chain(["--routing", routing]));
        assert_eq!(ran.code, 0, "{ran:?}");
        let report = ran.json();
        assert_eq!(report["routing"], routing);
        let row = &report["rows"][0];
        for key in ["read_bytes_per_token", "read_bytes_per_second", "read_disk_ratio"] {
            assert!(number(row, key) > 0.0, "{key}: {row}");
        }
        assert!((0.0..1.0).contains(&number(row, "hit_rate")), "{row}");
        number(row, "hit_rate")
    };
    let (one, other) = (rate("synthetic:1"), rate("synthetic:2"));
    assert_eq!(rate("synthetic:1"), one, "the same experts each time");
    assert_ne!(one, other);
    assert_ne!(rate("model"), one);
}

#[test]
fn several_numbers_of_threads_are_rows_and_a_table_of_gains() {
    let home = Home::new();
    let saved = home.path("scaling.json");
    let mut command =
        home.model_command(["bench", "--measure-seconds", "0.01", "--prompt", "8", "--decode", "4"]);
    command.args(["--runs", "1", "--memory", "300MB", "--threads", "1,2", "-q", "--save"]).arg(&saved);
    let ran = crate::support::ran(command);
    assert_eq!(ran.code, 0, "{ran:?}");
    let report: Value = serde_json::from_slice(&std::fs::read(saved).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let threads: Vec<_> = rows.iter().map(|row| row["threads"].as_u64().unwrap()).collect();
    assert_eq!(threads, [1, 2]);
    assert!(ran.out.contains("1 to 2 threads"), "{ran:?}");
    let (_, gains) = ran.out.split_once("300 MB, prompt of 8, 4 decoded: gain over 1 thread\n").unwrap();
    let lines: Vec<Vec<&str>> = gains.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 2, "{gains}");
    for (line, row) in lines.iter().zip(rows) {
        let gain = number(row, "decode_tokens_per_second") / number(&rows[0], "decode_tokens_per_second");
        assert_eq!((line[0], line[6]), (&*row["threads"].to_string(), &*format!("{gain:.2}")), "{gains}");
    }
    // One number of threads is no scaling.
    let ran = bench(["--prompt", "8", "--decode", "4", "--runs", "1"]);
    assert!(ran.code == 0 && !ran.out.contains("gain over"), "{ran:?}");
}

#[test]
fn a_trace_is_replayed_and_a_bad_one_refused() {
    let home = Home::new();
    let run = |trace: &std::path::Path| {
        let mut command = home.model_command([
            "bench",
            "--measure-seconds",
            "0.01",
            "--prompt",
            "4",
            "--decode",
            "4",
            "--runs",
            "1",
        ]);
        command.args(["--expert-cache-slots", "4", "--json", "-q", "--routing"]).arg(trace);
        crate::support::ran(command)
    };
    let arch =
        home.run(["inspect".as_ref(), tiny_model().as_os_str(), "--json".as_ref()]).json()["architecture"]
            .clone();
    let (layers, top_k) =
        (arch["num_hidden_layers"].as_u64().unwrap(), arch["top_k_experts"].as_u64().unwrap());
    let mut rows = String::from("step,layer,expert\n");
    for layer in 0..layers {
        // The same experts for all tokens: after the first, every use is a hit.
        (0..top_k).for_each(|expert| rows += &format!("0,{layer},{expert}\n"));
    }
    let ran = run(&home.write("trace.csv", &rows));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.json()["rows"][0]["hit_rate"], 1.0);
    let ran = run(&home.write("bad.csv", "0,99,1\n"));
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("bad.csv: line 1: names layer 99"), "{ran:?}");
    run(&home.path("missing.csv")).fails(1, "missing.csv");
}

#[test]
fn the_table_is_plain_in_a_pipe_and_the_plot_a_drawing() {
    let home = Home::new();
    let plot = home.path("plot.svg");
    let mut command =
        home.model_command(["bench", "--measure-seconds", "0.01", "--prompt", "8,12", "--decode", "4"]);
    command.args(["--runs", "1", "--memory", "200MB,300MB", "--plot"]).arg(&plot);
    let ran = crate::support::ran(command);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'), "{ran:?}");
    assert_eq!(ran.out.lines().filter(|line| line.trim_start().starts_with("200 MB")).count(), 2, "{ran:?}");
    for word in ["memory", "disk", "products", "ratio", "hits", "first"] {
        assert!(ran.out.contains(word), "{word}: {}", ran.out);
    }
    assert_eq!(ran.err.matches("run 1 of 1").count(), 4, "{ran:?}");
    let svg = std::fs::read_to_string(plot).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
    // Two lines (one for each prompt) of two points, each with its bound.
    assert_eq!((svg.matches("class=\"dot\"").count(), svg.matches("class=\"ring\"").count()), (4, 4));
}

#[test]
fn a_budget_that_cannot_work_is_a_row_that_says_what_would() {
    let ran = bench([
        "--memory",
        "1MB,300MB",
        "--prompt",
        "8",
        "--decode",
        "4",
        "--runs",
        "1",
        "--json",
        "--quiet",
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("1 of 2 rows did not work"), "{ran:?}");
    let report = ran.json();
    let error = report["rows"][0]["error"].as_str().unwrap();
    assert!(error.contains("this model needs") && error.contains("1 MB are given"), "{error}");
    assert!(report["rows"][1]["error"].is_null());
}

#[test]
fn what_is_wrong_is_said_before_anything_is_measured() {
    let home = Home::new();
    home.run(["bench", "--model", "/nonexistent/model"]).fails(1, "no model at /nonexistent/model");
    home.run(["bench"]).fails(1, "no model found");
    home.run_model(["bench", "--prompt", "100", "--decode", "100", "--max-context", "150"])
        .fails(2, "--max-context 150 is less than the 200 tokens");
    home.run_model(["bench", "--text", "/nonexistent/text"]).fails(1, "cannot open /nonexistent/text");
    let plot = home.path("missing/plot.svg");
    let mut command = home.model_command(["bench", "--plot"]);
    command.arg(plot);
    crate::support::ran(command).fails(1, "missing/plot.svg: No such file");
    home.run_model(["bench", "--row"]).fails(2, "what `bench` starts for itself");
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_the_bench_and_its_process() {
    use std::io::{BufRead, BufReader};
    let home = Home::new();
    let mut bench = std::process::Command::new(crate::support::binary())
        .args(["bench", "--measure-seconds", "0.01", "--prompt", "8", "--decode", "200", "--runs", "1000"])
        .envs(home.environment())
        .env("FIELDFARE_MODEL", tiny_model())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(bench.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("run 1 of")), "it has begun");
    let children = format!("/proc/{0}/task/{0}/children", bench.id());
    let child = std::fs::read_to_string(children).unwrap().trim().to_owned();
    assert!(!child.is_empty());
    // As a service manager does: to the bench alone.
    let killed = std::process::Command::new("kill").args(["-INT", &bench.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = bench.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(!std::path::Path::new(&format!("/proc/{child}")).exists(), "its process is gone");
}

#[test]
fn look_ahead_is_counted_and_its_simulation_named() {
    let row = |more: &[&str]| {
        let args =
            ["--expert-cache-slots", "3", "--prompt", "16", "--decode", "48", "--runs", "1", "--json", "-q"];
        let ran = bench(args.iter().copied().chain(["--routing", "synthetic:2"]).chain(more.iter().copied()));
        assert_eq!(ran.code, 0, "{ran:?}");
        let report = ran.json();
        (report["simulated_guess_recall"].clone(), report["rows"][0].clone())
    };
    let (share, on) = row(&["--look-ahead", "on", "--guess-recall", "0.5"]);
    assert_eq!(share.as_f64(), Some(0.5));
    let recall = number(&on, "look_ahead_recall");
    assert!((recall - 0.5).abs() < 0.1, "{recall}");
    let (read, used) =
        (number(&on, "look_ahead_guesses_per_token"), number(&on, "look_ahead_used_per_token"));
    assert!(used > 0.0 && used <= read, "{on}");
    let wasted = number(&on, "look_ahead_wasted_bytes_per_token");
    assert!(wasted <= number(&on, "read_bytes_per_token"), "{on}");
    assert!((0.0..=1.0).contains(&number(&on, "read_time_share")), "{on}");
    let (_, off) = row(&["--look-ahead", "off"]);
    assert!(off["look_ahead_recall"].is_null(), "{off}");
    assert_eq!(
        (number(&off, "look_ahead_guesses_per_token"), number(&off, "look_ahead_used_per_token")),
        (0.0, 0.0)
    );
}
