//! The command line: definitions, bounds, what goes together.

use super::*;
use clap::CommandFactory;

#[test]
fn the_definitions_are_sound() {
    Cli::command().debug_assert();
}

#[test]
fn numbers_out_of_bounds_name_the_bounds() {
    for (option, value, says) in [
        ("--temperature", "NaN", "must be from 0 to 2"),
        ("--temperature", "inf", "must be from 0 to 2"),
        ("--temperature", "-1", "must be from 0 to 2"),
        ("--temperature", "warm", "not a number"),
        ("--top-p", "0", "must be more than 0 and at most 1"),
        ("--top-p", "1.5", "must be more than 0 and at most 1"),
        ("--min-p", "-0.5", "must be from 0 to 1"),
        ("--repetition-penalty", "0", "must be from 0.01 to 100"),
        ("--max-new", "0", "must be from 1 to 1048576"),
        ("--max-new", "-3", "must be from 1 to 1048576"),
        ("--max-context", "99999999999999999999999999999999999999999", "must be from 1 to 1048576"),
        ("--max-context", "four", "not a whole number"),
        ("--top-k", "-1", "must be from 0 to 1048576"),
        ("--expert-cache-slots", "-2", "must be from 1 to 65536"),
        ("--prefill-chunk-tokens", "0", "must be from 1 to 8192"),
        ("--threads", "0", "must be from 1 to 1024"),
        ("--memory", "2G", "write GiB (of 1024) or GB (of 1000)"),
        ("--memory", "-1GiB", "not a size: write it as 2GiB"),
        ("--memory", "lots", "not a size"),
        ("--reads", "fast", "auto, direct, buffered"),
        ("--seed", "-1", "not a whole number from 0 to 18446744073709551615"),
        ("--stop", "", "a value is required"),
    ] {
        let error = Cli::try_parse_from(["fieldfare", "generate", "--prompt", "x", option, value])
            .expect_err(&format!("{option} {value}"))
            .to_string();
        assert!(error.contains(says), "{option} {value}: {error}");
    }
}

#[test]
fn requests_side_by_side_are_a_number_or_auto() {
    let ask = |value: &str| Cli::try_parse_from(["fieldfare", "serve", "--parallel", value]);
    for (value, says) in [
        ("0", "must be from 1 to 8"),
        ("9", "must be from 1 to 8"),
        ("-1", "must be from 1 to 8"),
        ("many", "not a whole number"),
    ] {
        let error = ask(value).expect_err(value).to_string();
        assert!(error.contains(says), "{value}: {error}");
    }
    assert!(ask("auto").is_ok() && ask("8").is_ok());
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    for args in [
        vec!["fieldfare", "generate"],
        vec!["fieldfare", "generate", "--prompt", "a", "--tokens-file", "b"],
        vec!["fieldfare", "generate", "--prompt", "a", "--prompt-file", "b"],
        vec!["fieldfare", "chat", "hello", "--messages-file", "b"],
        vec!["fieldfare", "score"],
        vec!["fieldfare", "score", "--text-file", "a", "--top", "2"],
    ] {
        assert!(Cli::try_parse_from(&args).is_err(), "{args:?}");
    }
}
