//! How a command ends when it does not end well: exit codes, and the lines `error: …` and `hint: …`.

use crate::Outcome;
use crate::args::Cli;
use crate::ui::{style::Style, terminal};
use clap::CommandFactory;
use fieldfare::Error;
use std::io::{self, Write};

/// Why a command stopped.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that cannot be meant: exit code 2.
    Usage {
        /// One line.
        message: String,
        /// The remedy, if there is one to name.
        hint: Option<String>,
    },
    /// Something did not work: exit code 1.
    Failed {
        /// One line.
        message: String,
        /// The remedy, if there is one to name.
        hint: Option<String>,
    },
    /// Ctrl-C or a request to end: exit code 130, no message.
    Interrupted,
    /// Nobody reads the output any more: a quiet end.
    PipeClosed,
    /// Help or version was asked for where a command was expected, and has been printed.
    Shown(u8),
}

impl Failure {
    /// A wrong use.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: None }
    }

    /// A failure.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), hint: None }
    }

    /// The same with a remedy.
    #[must_use]
    pub fn with_hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Usage { hint, .. } | Self::Failed { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// What standard output answered to a write: a closed pipe is no error of ours.
    pub fn writing(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::PipeClosed
        } else {
            Self::failed(format!("cannot write the output: {error}"))
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage { .. } => 2,
            Self::Failed { .. } => 1,
            Self::Interrupted => 130,
            Self::PipeClosed => 0,
            Self::Shown(code) => *code,
        }
    }

    /// Prints the lines for people on standard error.
    pub fn report(&self) {
        let (message, hint) = match self {
            Self::Usage { message, hint } | Self::Failed { message, hint } => (message, hint),
            Self::Interrupted | Self::PipeClosed | Self::Shown(_) => return,
        };
        let style = Style::stderr();
        let mut err = io::stderr().lock();
        // When standard error is closed too there is nobody to tell.
        let _ = writeln!(err, "{} {}", style.error("error:"), terminal::one_line(message));
        if let Some(hint) = hint {
            let _ = writeln!(err, "{} {}", style.hint("hint:"), terminal::one_line(hint));
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if matches!(error, Error::Cancelled) {
            return Self::Interrupted;
        }
        let (message, hint) = (error.to_string(), error.hint().map(str::to_owned));
        if matches!(error, Error::BadRequest { .. }) {
            Self::Usage { message, hint }
        } else {
            Self::Failed { message, hint }
        }
    }
}

/// Turns what clap found into our form; `first` is the first argument, usually the command. Help and version are
/// printed here, and are no failure.
///
/// # Errors
/// Everything but help and version.
pub fn from_clap(error: &clap::Error, first: Option<&str>) -> Outcome {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return error
                .print()
                .and_then(|()| io::stdout().flush())
                .map_err(|error| Failure::writing(&error));
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return Err(Failure::Shown(2));
        }
        _ => {}
    }
    let text = error.render().to_string();
    let (message, hint) = clap_lines(&text, first);
    Err(Failure::Usage { message, hint: Some(hint) })
}

/// Clap's paragraphs as one message and one hint.
fn clap_lines(text: &str, first: Option<&str>) -> (String, String) {
    let join = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n").map(join).filter(|part| !part.is_empty());
    let message = paragraphs.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(&message).to_owned();
    let tip = paragraphs.find_map(|paragraph| paragraph.strip_prefix("tip: ").map(str::to_owned));
    let help = || {
        let known = Cli::command().get_subcommands().any(|command| Some(command.get_name()) == first);
        let command = first.filter(|_| known).map(|name| format!(" {name}")).unwrap_or_default();
        format!("see `fieldfare{command} --help`")
    };
    (message, tip.unwrap_or_else(help))
}

/// The message of a failure that has one, for tests of those who make failures.
#[cfg(test)]
pub(crate) fn message(failure: Failure) -> String {
    match failure {
        Failure::Usage { message, .. } | Failure::Failed { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn lines(args: &[&str]) -> (String, String) {
        clap_lines(&Cli::try_parse_from(args).unwrap_err().render().to_string(), args.get(1).copied())
    }

    #[test]
    fn wrong_use_is_one_message_and_one_hint() {
        let (message, hint) = lines(&["fieldfare", "generate", "--prompt", "x", "--temperature", "NaN"]);
        assert_eq!(message, "invalid value 'NaN' for '--temperature <T>': must be from 0 to 2");
        assert_eq!(hint, "see `fieldfare generate --help`");
        let (message, hint) = lines(&["fieldfare", "generate"]);
        assert!(message.contains("--prompt <TEXT>"), "{message}");
        assert_eq!(hint, "see `fieldfare generate --help`");
        let (message, hint) = lines(&["fieldfare", "chta"]);
        assert!(message.contains("'chta'") && hint.contains("'chat'"), "{message} {hint}");
    }

    #[test]
    fn library_errors_get_their_exit_codes() {
        assert_eq!(Failure::from(Error::Cancelled).exit_code(), 130);
        assert_eq!(Failure::from(Error::bad("x", "y")).exit_code(), 2);
        assert_eq!(Failure::from(Error::damaged("x", "y")).exit_code(), 1);
    }
}
