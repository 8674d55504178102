//! Options that name a model.

use clap::Args;
use std::path::{Path, PathBuf};

/// Which model.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Model directory, or demo for the built-in toy (a directory of that name is ./demo) [default: $FIELDFARE_MODEL,
    /// else the one in the data folder]
    #[arg(short, long, value_name = "DIR")]
    pub model: Option<PathBuf>,
}

/// Which model, where it is all that the command is about.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Model directory, or demo, as --model
    #[arg(value_name = "DIR", conflicts_with = "model")]
    pub directory: Option<PathBuf>,
    /// The same as an option.
    #[command(flatten)]
    pub model: ModelArgs,
}

impl PlaceArgs {
    /// The one that was named.
    pub fn path(&self) -> Option<&Path> {
        self.directory.as_deref().or(self.model.model.as_deref())
    }
}

/// Which model is read to make another one of it: it must be named.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["directory", "model"]))]
pub struct SourceArgs {
    /// Model directory to read, or demo
    #[arg(value_name = "SRC")]
    pub directory: Option<PathBuf>,
    /// The same as an option
    #[arg(short, long, value_name = "DIR")]
    pub model: Option<PathBuf>,
}

impl SourceArgs {
    /// The one that was named.
    pub fn path(&self) -> Option<&Path> {
        self.directory.as_deref().or(self.model.as_deref())
    }
}
