//! From rows to messages and back.

use crate::message::{Conversation, ConversationId, Message, MessageId, Progress, Role, Run, Summary};
use rusqlite::{Connection, Result, Row, Transaction, params};

/// Numbers of [`Progress`] in the table.
pub(super) const WRITING: i64 = 0;
const DONE: i64 = 1;
const CUT: i64 = 2;
pub(super) const INTERRUPTED: i64 = 3;

/// A conversation with what only the library knows of it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) conversation: Conversation,
    /// Its title was given by the person.
    pub(super) renamed: bool,
    /// It is hidden.
    pub(super) deleted: bool,
}

/// Writes a conversation as it is, whatever of it is there already.
pub(super) fn store(change: &Transaction<'_>, kept: &Kept) -> Result<()> {
    let Conversation { summary, system, messages, leaf } = &kept.conversation;
    change
        .prepare(
            "INSERT INTO conversation (id, title, renamed, system, leaf, changed_at, deleted)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (id) DO UPDATE SET title = ?2, renamed = ?3, system = ?4, leaf = ?5, changed_at = ?6, deleted = ?7",
        )?
        .execute(params![
            summary.id.0,
            summary.title,
            kept.renamed,
            system,
            leaf.map(|leaf| leaf.0),
            summary.changed_at,
            kept.deleted
        ])?;
    messages.iter().try_for_each(|message| insert(change, summary.id, message))
}

/// Writes a message, new or not.
pub(super) fn insert(
    change: &Transaction<'_>,
    conversation: ConversationId,
    message: &Message,
) -> Result<()> {
    let (progress, reason) = numbered(&message.progress);
    let role = i64::from(message.role == Role::Assistant);
    change
        .prepare(
            "INSERT OR REPLACE INTO message
                 (id, conversation, parent, role, text, thought, documents, progress, reason, written_at, run)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            message.id.0,
            conversation.0,
            message.parent.map(|parent| parent.0),
            role,
            message.text,
            message.thought,
            json(&message.documents),
            progress,
            reason,
            message.written_at,
            message.run.as_ref().map(json),
        ])?;
    Ok(())
}

/// Writes what changes of a message: its text and how it stands.
pub(super) fn update(change: &Transaction<'_>, message: &Message) -> Result<()> {
    let (progress, reason) = numbered(&message.progress);
    change
        .prepare(
            "UPDATE message SET text = ?2, thought = ?3, progress = ?4, reason = ?5, run = ?6 WHERE id = ?1",
        )?
        .execute(params![
            message.id.0,
            message.text,
            message.thought,
            progress,
            reason,
            message.run.as_ref().map(json)
        ])?;
    Ok(())
}

/// A conversation as it is on the disk, hidden or not.
pub(super) fn load(connection: &Connection, id: ConversationId) -> Result<Option<Kept>> {
    let mut query = connection.prepare(
        "SELECT id, title, changed_at, system, leaf, renamed, deleted FROM conversation WHERE id = ?1",
    )?;
    let mut rows = query.query([id.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut kept = Kept {
        conversation: Conversation {
            summary: summarized(row)?,
            system: row.get(3)?,
            messages: Vec::new(),
            leaf: row.get::<_, Option<i64>>(4)?.map(MessageId),
        },
        renamed: row.get(5)?,
        deleted: row.get(6)?,
    };
    // Ids rise, so parents stand before children.
    let mut query = connection.prepare(
        "SELECT id, parent, role, text, thought, documents, progress, reason, written_at, run
         FROM message WHERE conversation = ?1 ORDER BY id",
    )?;
    let messages = query.query_map([id.0], message)?;
    kept.conversation.messages = messages.collect::<Result<_>>()?;
    Ok(Some(kept))
}

fn message(row: &Row<'_>) -> Result<Message> {
    let reason: String = row.get(7)?;
    let progress = match row.get(6)? {
        WRITING => Progress::Writing,
        DONE => Progress::Done,
        CUT => Progress::Cut(reason),
        _ => Progress::Interrupted(reason),
    };
    Ok(Message {
        id: MessageId(row.get(0)?),
        parent: row.get::<_, Option<i64>>(1)?.map(MessageId),
        role: if row.get::<_, i64>(2)? == 0 { Role::User } else { Role::Assistant },
        text: row.get(3)?,
        thought: row.get(4)?,
        // What a later program wrote into these fields is no reason to lose the message.
        documents: serde_json::from_str(row.get_ref(5)?.as_str()?).unwrap_or_default(),
        progress,
        written_at: row.get(8)?,
        run: row.get_ref(9)?.as_str_or_null()?.and_then(|run| serde_json::from_str::<Run>(run).ok()),
    })
}

fn summarized(row: &Row<'_>) -> Result<Summary> {
    Ok(Summary {
        id: ConversationId(row.get(0)?),
        title: row.get(1)?,
        changed_at: row.get(2)?,
        found: String::new(),
    })
}

/// The line of one.
pub(super) fn summary(connection: &Connection, id: ConversationId) -> Result<Summary> {
    connection
        .prepare("SELECT id, title, changed_at FROM conversation WHERE id = ?1 AND NOT deleted")?
        .query_row([id.0], summarized)
}

/// All that are not hidden, in no order.
pub(super) fn all(connection: &Connection) -> Result<Vec<Summary>> {
    let mut query = connection.prepare("SELECT id, title, changed_at FROM conversation WHERE NOT deleted")?;
    query.query_map([], summarized)?.collect()
}

/// Those that have a text in their title or their messages, in no order.
pub(super) fn with(connection: &Connection, text: &str) -> Result<Vec<Summary>> {
    let mut query = connection.prepare(
        "SELECT id, title, changed_at, place FROM (
             SELECT c.id, c.title, c.changed_at, has(c.title, ?1) AS titled,
                 (SELECT place(m.text, ?1) FROM message m WHERE m.conversation = c.id AND has(m.text, ?1)
                  ORDER BY m.id LIMIT 1) AS place
             FROM conversation c WHERE NOT c.deleted)
         WHERE titled OR place IS NOT NULL",
    )?;
    let listed = query.query_map([text], |row| {
        Ok(Summary { found: row.get::<_, Option<String>>(3)?.unwrap_or_default(), ..summarized(row)? })
    })?;
    listed.collect()
}

fn numbered(progress: &Progress) -> (i64, &str) {
    match progress {
        Progress::Writing => (WRITING, ""),
        Progress::Done => (DONE, ""),
        Progress::Cut(reason) => (CUT, reason),
        Progress::Interrupted(reason) => (INTERRUPTED, reason),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    crate::wire::line(value)
}
