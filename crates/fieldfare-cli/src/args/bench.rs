//! Options of the commands that measure: `bench` and `doctor`.

use super::values::{integer, memory, number, seed};
use super::{ModelArgs, TuningArgs};
use clap::{Args, ValueEnum};
use fieldfare::engine::MemoryBudget;
use std::path::PathBuf;

/// `fieldfare bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Memory budgets: sizes such as 2GiB, or auto for what is free; one or several, with commas between
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "auto", allow_hyphen_values = true,
        value_parser = memory)]
    pub memory: Vec<MemoryBudget>,
    /// Tokens of the prompt; one number or several
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "128", allow_negative_numbers = true,
        value_parser = integer::<1, 1_048_576>)]
    pub prompt: Vec<usize>,
    /// Tokens after the prompt; one number or several
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "64", allow_negative_numbers = true,
        value_parser = integer::<1, 1_048_576>)]
    pub decode: Vec<usize>,
    /// Measured runs of each row, after one that warms up; the median counts
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "5", allow_negative_numbers = true,
        value_parser = integer::<1, 1000>)]
    pub runs: Vec<usize>,
    /// Text to run over, repeated if it is short (- for standard input) [default: a built-in one, or made-up tokens where
    /// the model has no tokenizer]
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Which experts are used: model for the model's own choice, synthetic[:SEED] for ones as real text asks for them, or
    /// a file of rows token,layer,expert [default: synthetic for models of random weights, else model]
    #[arg(long, value_name = "ROUTING", value_parser = routing)]
    pub routing: Option<RoutingArg>,
    /// Share of generated experts that look-ahead is given as guessed right (the model's own guess says nothing of them).
    /// 0.65 is what is published of Gemma 4's router, asked a layer too early
    #[arg(long, value_name = "SHARE", default_value_t = 0.65, allow_negative_numbers = true,
        value_parser = |text: &str| number(text, 0.0, 1.0))]
    pub guess_recall: f32,
    /// Whether each process runs in a control group with its budget as hard limit
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = GroupArg::Auto)]
    pub cgroup: GroupArg,
    /// Drop the model's files from the page cache before each row, so that the first token is that of a cold start
    #[arg(long)]
    pub cold: bool,
    /// Seconds for which each rate of the machine is measured at the start; less is less exact
    #[arg(long, value_name = "S", default_value_t = 1.0, allow_negative_numbers = true,
        value_parser = |text: &str| number(text, 0.01, 60.0))]
    pub measure_seconds: f32,
    /// Threads that compute; one number or several [default: as the processor suggests]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', allow_negative_numbers = true,
        value_parser = integer::<1, 1024>)]
    pub threads: Vec<usize>,
    /// Draw tokens per second against memory into this file
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// One JSON object on one line at the end, instead of the table
    #[arg(long)]
    pub json: bool,
    /// Write the JSON object into this file, beside the table
    #[arg(long, value_name = "FILE.json", conflicts_with = "json")]
    pub save: Option<PathBuf>,
    /// Nothing on standard error but errors and warnings
    #[arg(short, long)]
    pub quiet: bool,
    /// Be the process of one row.
    #[arg(long, hide = true)]
    pub row: bool,
    /// Which model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Tokens that the KV cache may hold [default: 4096, or what the longest row needs]
    #[arg(long, value_name = "N", help_heading = "Engine", allow_negative_numbers = true,
        value_parser = integer::<1, 1_048_576>)]
    pub max_context: Option<usize>,
    /// How the engine is set up.
    #[command(flatten)]
    pub tuning: TuningArgs,
}

/// `fieldfare doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Folder whose disk is tried, where the model would go [default: the data folder]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Try the disk that this model is on, instead (a directory, or demo)
    #[arg(short, long, value_name = "DIR", conflicts_with = "folder")]
    pub model: Option<PathBuf>,
    /// Leave out the measurements of disk and memory
    #[arg(long)]
    pub quick: bool,
    /// One JSON object on one line
    #[arg(long)]
    pub json: bool,
}

/// When a control group is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GroupArg {
    /// Where this user may make one
    Auto,
    /// Always; it is an error where that cannot be
    On,
    /// Never
    Off,
}

/// Who chooses the experts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoutingArg {
    /// The model.
    Model,
    /// The generator, from this seed.
    Synthetic(u64),
    /// A recorded trace.
    Trace(PathBuf),
}

impl std::fmt::Display for RoutingArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Model => f.write_str("model"),
            Self::Synthetic(seed) => write!(f, "synthetic:{seed}"),
            Self::Trace(path) => write!(f, "{}", path.display()),
        }
    }
}

fn routing(text: &str) -> Result<RoutingArg, String> {
    match text.split_once(':') {
        None if text == "model" => Ok(RoutingArg::Model),
        None if text == "synthetic" => Ok(RoutingArg::Synthetic(1)),
        Some(("synthetic", seed)) => {
            self::seed(seed).map(RoutingArg::Synthetic).map_err(|reason| format!("the seed is {reason}"))
        }
        _ if text.is_empty() => Err("must be model, synthetic or a file".to_owned()),
        _ => Ok(RoutingArg::Trace(PathBuf::from(text))),
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use clap::Parser;
    use fieldfare::engine::MemoryBudget;

    use super::*;

    fn parse(args: &[&str]) -> Result<BenchArgs, String> {
        let all = ["fieldfare", "bench"].iter().chain(args);
        match Cli::try_parse_from(all).map_err(|error| error.to_string())?.command {
            Command::Bench(args) => Ok(args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn lists_and_single_values() {
        let args =
            parse(&["--memory", "2GiB,auto", "--prompt", "20,512", "--decode", "8", "--runs", "1"]).unwrap();
        assert_eq!(args.memory, [MemoryBudget::Bytes(2 << 30), MemoryBudget::Auto]);
        assert_eq!(
            (&args.prompt[..], &args.decode[..], &args.runs[..]),
            (&[20, 512][..], &[8][..], &[1][..])
        );
        let args = parse(&["--memory", "2GiB", "--memory", "3GB"]).unwrap();
        assert_eq!(args.memory, [MemoryBudget::Bytes(2 << 30), MemoryBudget::Bytes(3_000_000_000)]);
        let args = parse(&[]).unwrap();
        assert_eq!((args.memory.len(), args.routing, args.cgroup), (1, None, GroupArg::Auto));
    }

    #[test]
    fn wrong_lists_say_which_value() {
        for (args, says) in [
            (["--memory", "2GiB,,3GiB"], "invalid value '' for '--memory"),
            (["--memory", "2GiB,lots"], "invalid value 'lots' for '--memory"),
            (["--memory", "2G"], "write GiB"),
            (["--prompt", "128,0"], "must be from 1 to 1048576"),
            (["--decode", "8,x"], "not a whole number"),
            (["--runs", "0"], "must be from 1 to 1000"),
            (["--routing", "synthetic:x"], "the seed is not a whole number"),
            (["--routing", ""], "must be model, synthetic or a file"),
            (["--cgroup", "yes"], "auto, on, off"),
        ] {
            let error = parse(&args).unwrap_err();
            assert!(error.contains(says), "{args:?}: {error}");
        }
    }

    #[test]
    fn routings() {
        for (text, wanted) in [
            ("model", RoutingArg::Model),
            ("synthetic", RoutingArg::Synthetic(1)),
            ("synthetic:7", RoutingArg::Synthetic(7)),
            ("trace.csv", RoutingArg::Trace("trace.csv".into())),
            ("./model", RoutingArg::Trace("./model".into())),
        ] {
            assert_eq!(routing(text).unwrap(), wanted);
        }
        assert_eq!(RoutingArg::Synthetic(7).to_string(), "synthetic:7");
    }
}
