//! Errors of the library in the window's words: the library's own remedies are for a command line.

use crate::message::Trouble;
use fieldfare::Error;
use std::io::ErrorKind;

/// The variable that forbids the network, as the field of an error.
pub(crate) const OFFLINE: &str = "HF_HUB_OFFLINE";

/// One line, and what to do in the window.
pub(crate) fn trouble(error: &Error) -> Trouble {
    Trouble { message: sentence(&error.to_string()), remedy: remedy(error).to_owned() }
}

/// A trouble of our own.
pub(crate) fn plain(message: impl Into<String>, remedy: impl Into<String>) -> Trouble {
    Trouble { message: sentence(&message.into()), remedy: remedy.into() }
}

/// Begins with a capital and ends with a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut chars = text.chars();
    // A path or a field is spelled as it is.
    let word = text.split([' ', ':']).next().unwrap_or_default();
    let first: String = match chars.next() {
        Some(first) if word.chars().all(char::is_alphabetic) => first.to_uppercase().collect(),
        Some(first) => first.to_string(),
        None => return String::new(),
    };
    let end = if text.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::NotInstalled { .. } => "Choose another model folder, or download the model.",
        Error::Damaged { .. } => "Verify the model; download it again if it is damaged.",
        Error::NoTokenizer(_) => "Download the model again from a source that has its tokenizer.",
        Error::Locked { .. } => "End the other program that uses the model, then try again.",
        Error::ContextFull { .. } => "Raise the context in the settings, or begin a new conversation.",
        Error::Network { .. } => "Check the connection, then go on: what has been downloaded is kept.",
        Error::Denied { .. } => {
            "Put a token that may read this model into the hub's token file (~/.cache/huggingface/token), or set HF_TOKEN and start the app again."
        }
        Error::BadRequest { field, .. } if field == OFFLINE => {
            "Unset it and start the app again, or choose a folder that has the model."
        }
        Error::Journal { .. } => "Throw the unfinished download away, then begin again.",
        Error::OutOfSpace { .. } => "Free some space, or choose another folder.",
        Error::BadRequest { field, .. } if field == "memory" => "Give it more memory.",
        Error::BadRequest { field, .. } if field == "max-context" => {
            "Give it more memory, or a shorter context."
        }
        Error::BadRequest { field, .. } if field == "expert-cache-slots" => {
            "Give it more memory, or fewer slots."
        }
        Error::Io { source, .. }
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            "Free some space, then try again."
        }
        Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            "Check the permissions of it and of the folders above it."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_a_sentence_with_a_remedy_of_the_window() {
        let full = Error::io("write", "/x/y")(std::io::Error::from(ErrorKind::StorageFull));
        let said = trouble(&full);
        assert!(said.message.starts_with("Cannot write /x/y:") && said.message.ends_with('.'), "{said:?}");
        assert!(said.remedy.contains("space"));
        let locked = Error::Locked { what: "the model".into(), owner: "process 1".into() };
        assert_eq!(trouble(&locked).message, "The model is in use by process 1.");
        // No remedy names an option of the command line.
        let offline = Error::bad(OFFLINE, "it is set");
        assert!(trouble(&offline).remedy.contains("Unset it"));
        for error in [full, locked, offline, Error::bad("memory", "too little"), Error::Cancelled] {
            assert!(!trouble(&error).remedy.contains("--"), "{error}");
        }
        assert_eq!(sentence("model_weights.bin: short"), "model_weights.bin: short.");
        assert_eq!(sentence(""), "");
    }
}
