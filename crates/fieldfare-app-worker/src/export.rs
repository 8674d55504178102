//! The shown path of a conversation as Markdown or JSON.

use crate::message::{Conversation, Document, Message, Progress, Role, Trouble};
use crate::trouble::plain;
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// The messages from the root to the conversation's leaf.
pub(crate) fn path(conversation: &Conversation) -> Vec<&Message> {
    let mut path = Vec::new();
    let mut next = conversation.leaf;
    // Parents stand before children, so one walk back finds them all.
    for message in conversation.messages.iter().rev() {
        if Some(message.id) == next {
            next = message.parent;
            path.push(message);
        }
    }
    path.reverse();
    path
}

/// Writes it, by the ending of the name: `.json`, else Markdown. The file is there whole or not at all.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(conversation: &Conversation, to: &Path) -> Result<(), Trouble> {
    let is_json = to.extension().is_some_and(|end| end.eq_ignore_ascii_case("json"));
    let text = if is_json { as_json(conversation) } else { as_markdown(conversation) };
    let written = || -> std::io::Result<()> {
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".export").tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(to).map_err(|error| error.error)?;
        Ok(())
    };
    written().map_err(|error| {
        plain(format!("cannot write {}: {error}", to.display()), "Choose another folder, or free some space.")
    })
}

/// Markdown as a person would write it down.
fn as_markdown(conversation: &Conversation) -> String {
    let mut out = format!("# {}\n", one_line(&conversation.summary.title));
    if !conversation.system.is_empty() {
        let _ = write!(out, "\n## System\n\n{}\n", conversation.system.trim_end());
    }
    for message in path(conversation) {
        let who = if message.role == Role::User { "You" } else { "Fieldfare" };
        let _ = write!(out, "\n## {who}\n\n");
        for document in &message.documents {
            let _ = write!(out, "{}\n\n", fenced(document));
        }
        if !message.thought.is_empty() {
            let quoted = message.thought.trim_end().replace('\n', "\n> ");
            let _ = write!(out, "> {quoted}\n\n");
        }
        let _ = writeln!(out, "{}", message.text.trim_end());
        if let Progress::Cut(reason) | Progress::Interrupted(reason) = &message.progress {
            let _ = write!(out, "\n*({reason})*\n");
        }
    }
    out
}

/// A document as the model is shown it: its name, and its text in a fence that nothing in it closes.
pub(crate) fn fenced(document: &Document) -> String {
    let longest =
        document.text.lines().map(|line| line.trim_start().bytes().take_while(|&b| b == b'`').count());
    let fence = "`".repeat(longest.max().unwrap_or(0).max(2) + 1);
    let name = one_line(&document.name).replace('`', "'");
    format!("Document `{name}`:\n\n{fence}\n{}\n{fence}", document.text.trim_end_matches('\n'))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn as_json(conversation: &Conversation) -> String {
    let messages: Vec<_> = path(conversation)
        .into_iter()
        .map(|message| {
            let (progress, reason) = match &message.progress {
                Progress::Writing => ("writing", ""),
                Progress::Done => ("done", ""),
                Progress::Cut(reason) => ("cut", reason.as_str()),
                Progress::Interrupted(reason) => ("interrupted", reason.as_str()),
            };
            json!({
                "role": if message.role == Role::User { "user" } else { "assistant" },
                "content": message.text,
                "thought": message.thought,
                "documents": message.documents,
                "progress": progress,
                "reason": reason,
                "written_at": message.written_at,
                "run": message.run,
            })
        })
        .collect();
    let whole = json!({
        "format": "fieldfare-conversation",
        "version": 1,
        "title": conversation.summary.title,
        "changed_at": conversation.summary.changed_at,
        "system": conversation.system,
        "messages": messages,
    });
    format!("{whole:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ConversationId, MessageId, Run, Summary};

    fn message(id: i64, parent: Option<i64>, role: Role, text: &str) -> Message {
        let new = Message::new(MessageId(id), parent.map(MessageId), role, text);
        Message { progress: Progress::Done, written_at: 5, ..new }
    }

    fn conversation() -> Conversation {
        let mut question = message(1, None, Role::User, "What is it?");
        question.documents.push(Document {
            name: "a`b.md".into(),
            text: "x\n````rust\ny\n".into(),
            tokens: Some(4),
        });
        let mut answer = message(4, Some(1), Role::Assistant, "A bird.");
        answer.thought = "Two\nlines".into();
        answer.progress = Progress::Cut("stopped".into());
        answer.run = Some(Run { tokens: 3, ..Run::default() });
        Conversation {
            summary: Summary {
                id: ConversationId(1),
                title: "A\n title".into(),
                changed_at: 9,
                found: String::new(),
            },
            system: "Be short.".into(),
            messages: vec![question, message(2, Some(1), Role::Assistant, "Another answer"), answer],
            leaf: Some(MessageId(4)),
        }
    }

    #[test]
    fn markdown_has_the_shown_path_only_and_fences_that_hold() {
        let text = as_markdown(&conversation());
        assert!(text.starts_with("# A title\n\n## System\n\nBe short.\n\n## You\n\nDocument `a'b.md`:\n\n`````\nx\n````rust\ny\n`````\n"), "{text}");
        assert!(text.ends_with("## Fieldfare\n\n> Two\n> lines\n\nA bird.\n\n*(stopped)*\n"), "{text}");
        assert!(!text.contains("Another answer"));
    }

    #[test]
    fn json_can_be_read_again_and_the_name_decides() {
        let temp = tempfile::tempdir().unwrap();
        let (json, markdown) = (temp.path().join("a.JSON"), temp.path().join("a.md"));
        write(&conversation(), &json).unwrap();
        write(&conversation(), &markdown).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(read["messages"][1]["content"], "A bird.");
        assert_eq!(
            (&read["messages"][1]["run"]["tokens"], &read["messages"][0]["documents"][0]["tokens"]),
            (&json!(3), &json!(4))
        );
        assert_eq!(read["messages"].as_array().unwrap().len(), 2);
        assert!(std::fs::read_to_string(&markdown).unwrap().starts_with("# A title"));
        assert!(
            write(&conversation(), &temp.path().join("none/a.md"))
                .unwrap_err()
                .message
                .contains("annot write")
        );
    }
}
