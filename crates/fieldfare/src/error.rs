//! The one error type of the library. Variants are chosen by what the person can do next.

use std::path::{Path, PathBuf};

/// What every fallible call of the library returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. The display text is one line with the thing and the reason; [`Error::hint`] is the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no model at the place named.
    #[error("no model at {}: {reason}", path.display())]
    NotInstalled {
        /// The directory looked at.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A file of the model directory is not what its manifest or format says.
    #[error("{file}: {reason}")]
    Damaged {
        /// Path relative to the model directory (or the full path of a source file), with the field if one is known:
        /// `packed_experts/layout.json: layers[3].file`.
        file: String,
        /// Expected and found.
        reason: String,
    },
    /// Well-formed, but something this program does not do.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The text commands need tokenizer files that this model directory lacks.
    #[error("this model directory has no tokenizer ({0})")]
    NoTokenizer(String),
    /// Another process owns the model or the target.
    #[error("{what} is in use by {owner}")]
    Locked {
        /// What is locked.
        what: String,
        /// Process id and command where known.
        owner: String,
    },
    /// The target exists and may not be replaced.
    #[error("{} {reason}", path.display())]
    Refused {
        /// The target.
        path: PathBuf,
        /// Why it is left alone.
        reason: String,
    },
    /// Not enough room on the file system.
    #[error("not enough space on {}: need {need} bytes, have {have}", path.display())]
    OutOfSpace {
        /// Where.
        path: PathBuf,
        /// Bytes needed.
        need: u64,
        /// Bytes free.
        have: u64,
    },
    /// The prompt does not fit the context.
    #[error("the prompt has {prompt} tokens, the context holds {context}")]
    ContextFull {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens of the context.
        context: usize,
    },
    /// A parameter or an input document is wrong.
    #[error("{field}: {reason}")]
    BadRequest {
        /// The option, field or file.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A server could not be reached or did not answer as it must, after all retries.
    #[error("{url}: {reason}")]
    Network {
        /// The address without query, user and fragment, which may hold secrets.
        url: String,
        /// What happened.
        reason: String,
    },
    /// A server wants a token, or another one.
    #[error("{url}: access denied (HTTP status {status})")]
    Denied {
        /// The address, as above.
        url: String,
        /// 401 or 403.
        status: u16,
    },
    /// The record of an interrupted install cannot be continued.
    #[error("{}: {reason}", path.display())]
    Journal {
        /// The record.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The operating system refused something.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Verb: `open`, `read`, `write`, `sync`, `rename` …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl Error {
    /// An I/O error with its action and path, for `map_err`.
    pub fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// A damaged file.
    pub fn damaged(file: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Damaged { file: file.into(), reason: reason.into() }
    }

    /// A wrong parameter.
    pub fn bad(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::BadRequest { field: field.into(), reason: reason.into() }
    }

    /// The next step, in one sentence, where there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotInstalled { .. } => Some("check the path, or make a model with `fieldfare install`"),
            Self::Damaged { .. } => {
                Some("check the model with `fieldfare verify`; install it again if it is damaged")
            }
            Self::NoTokenizer(_) => Some(
                "`score --tokens-file` and `generate --tokens-file` work without one; reinstall from a source that has tokenizer.json",
            ),
            Self::Locked { .. } => Some("wait for that process or stop it, then try again"),
            Self::ContextFull { .. } => Some("raise --max-context or shorten the prompt"),
            Self::Network { .. } => {
                Some("check the network, then run the same command again: it continues where it stopped")
            }
            Self::Denied { .. } => Some(
                "set HF_TOKEN to a token that may read this repository, and accept its terms on its page",
            ),
            Self::Journal { .. } => Some(
                "continue with the options it was begun with, or `fieldfare install --discard` and begin again",
            ),
            Self::OutOfSpace { .. } => Some("free some space or choose another --output"),
            Self::Io { source, .. }
                if matches!(
                    source.kind(),
                    std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
                ) =>
            {
                Some("free some space and run the same command again: a download continues where it stopped")
            }
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Some("check the permissions of it and of the folders above it")
            }
            _ => None,
        }
    }
}
