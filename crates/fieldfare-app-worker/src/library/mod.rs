//! The library of conversations: SQLite in one file, written as an answer grows, and never the reason why one is lost.
//!
//! Ids are given here, so that a message has its own before it is on the disk. Every change is one transaction. One that
//! fails (the disk is full) is made in memory instead: the conversation is kept whole in [`Library::unsaved`], further
//! changes go there, and it is written as soon as that works. A database that is damaged, or of a newer program, is moved
//! aside and never written to.
//!
//! ```text
//! schema   tables, versions, opening and setting aside      rows    from rows to messages and back
//! search   finding a text in another, whatever its case
//! ```

mod rows;
mod schema;
mod search;
#[cfg(test)]
mod tests;

use crate::message::{Conversation, ConversationId, Message, MessageId, Summary, Trouble};
use crate::trouble::plain;
use rows::Kept;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Characters of a title made of a question.
const TITLE: usize = 60;
/// Between two tries to write what could not be written.
const RETRY: Duration = Duration::from_secs(2);

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The library.
pub(crate) struct Library {
    connection: Connection,
    path: PathBuf,
    next_conversation: i64,
    next_message: i64,
    /// Conversations with changes that are not on the disk.
    unsaved: BTreeMap<ConversationId, Kept>,
    /// When these were last tried.
    tried: Option<Instant>,
    /// A fault for tests: pages that the database may have; 0 for as many as it takes.
    pages: Arc<AtomicU32>,
    pages_set: u32,
}

/// How a change went.
type Changed = Result<(), Trouble>;

impl Library {
    /// Opens the library, whatever its state, and what should be said about that. Answers that were being written are
    /// interrupted ones now, and what was deleted last time is gone.
    pub(crate) fn open(path: &Path, pages: Arc<AtomicU32>) -> (Self, Vec<Trouble>) {
        let (connection, mut troubles) = schema::open(path);
        let mut library = Self {
            connection,
            path: path.to_path_buf(),
            next_conversation: 1,
            next_message: 1,
            unsaved: BTreeMap::new(),
            tried: None,
            pages,
            pages_set: 0,
        };
        if let Err(error) = library.begin() {
            troubles.push(library.trouble("be put in order", &error));
        }
        (library, troubles)
    }

    fn begin(&mut self) -> rusqlite::Result<()> {
        let max = |table: &str| -> rusqlite::Result<i64> {
            self.connection
                .query_row(&format!("SELECT coalesce(max(id), 0) + 1 FROM {table}"), [], |row| row.get(0))
        };
        (self.next_conversation, self.next_message) = (max("conversation")?, max("message")?);
        let change = self.connection.transaction()?;
        change.execute("DELETE FROM conversation WHERE deleted", [])?;
        change.execute(
            "UPDATE message SET progress = ?1, reason = ?2 WHERE progress = ?3",
            params![rows::INTERRUPTED, "the app ended meanwhile", rows::WRITING],
        )?;
        change.commit()
    }

    fn trouble(&self, what: &str, error: &rusqlite::Error) -> Trouble {
        let full = matches!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull));
        let damaged = schema::is_damage(error);
        let reason = if full { "the disk is full".to_owned() } else { error.to_string() };
        let remedy = if full {
            "Free some space: everything is kept in memory and saved as soon as there is room."
        } else if damaged {
            "Start the app again: the damaged file is then set aside."
        } else {
            "Everything is kept in memory and saved as soon as that works."
        };
        plain(format!("the conversations in {} cannot {what}: {reason}", self.path.display()), remedy)
    }

    /// Makes a change on the disk, or if that fails in memory. The first failure is said; while conversations are unsaved
    /// others are not.
    fn change(
        &mut self,
        id: ConversationId,
        on_disk: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
        in_memory: impl FnOnce(&mut Kept),
    ) -> Changed {
        if let Some(kept) = self.unsaved.get_mut(&id) {
            in_memory(kept);
            return self.save_unsaved(false);
        }
        let error = match self.write(on_disk) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let told = !self.unsaved.is_empty();
        let said = self.trouble("be saved", &error);
        match rows::load(&self.connection, id) {
            Ok(Some(mut kept)) => {
                in_memory(&mut kept);
                self.unsaved.insert(id, kept);
            }
            // There is nothing that the change could be made to.
            Ok(None) => return Ok(()),
            Err(error) => return Err(self.trouble("be read", &error)),
        }
        if told { Ok(()) } else { Err(said) }
    }

    fn write(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        self.limit_pages()?;
        let transaction = self.connection.transaction()?;
        change(&transaction)?;
        transaction.commit()
    }

    /// Applies the fault for tests.
    fn limit_pages(&mut self) -> rusqlite::Result<()> {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages != self.pages_set {
            let most = if pages == 0 { u32::MAX - 1 } else { pages };
            self.connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))?;
            self.pages_set = pages;
        }
        Ok(())
    }

    /// Tries to write what could not be written, now or if it is time again.
    ///
    /// # Errors
    /// Never said twice: a failure here was said when it began.
    pub(crate) fn save_unsaved(&mut self, now: bool) -> Changed {
        let due = now || self.tried.is_none_or(|tried| tried.elapsed() >= RETRY);
        if self.unsaved.is_empty() || !due {
            return Ok(());
        }
        self.tried = Some(Instant::now());
        let unsaved = std::mem::take(&mut self.unsaved);
        let result = self.write(|change| unsaved.values().try_for_each(|kept| rows::store(change, kept)));
        if result.is_err() {
            self.unsaved = unsaved;
        }
        Ok(())
    }

    /// Whether something is not on the disk yet.
    pub(crate) fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Conversations, newest first; with a text to look for only those that have it in title or messages.
    ///
    /// # Errors
    /// The library cannot be read.
    pub(crate) fn list(&self, search: &str) -> Result<Vec<Summary>, Trouble> {
        let wanted = search::Needle::new(search);
        let stored = if wanted.is_empty() {
            rows::all(&self.connection)
        } else {
            rows::with(&self.connection, search)
        };
        let mut listed = stored.map_err(|error| self.trouble("be read", &error))?;
        listed.retain(|summary| !self.unsaved.contains_key(&summary.id));
        for kept in self.unsaved.values().filter(|kept| !kept.deleted) {
            let Conversation { summary, messages, .. } = &kept.conversation;
            let found = messages.iter().find_map(|message| wanted.place(&message.text));
            if wanted.is_empty() || found.is_some() || wanted.is_in(&summary.title) {
                listed.push(Summary { found: found.unwrap_or_default(), ..summary.clone() });
            }
        }
        listed.sort_by_key(|summary| std::cmp::Reverse((summary.changed_at, summary.id)));
        Ok(listed)
    }

    /// A conversation as a whole; none if there is none.
    ///
    /// # Errors
    /// The library cannot be read.
    pub(crate) fn conversation(&self, id: ConversationId) -> Result<Option<Conversation>, Trouble> {
        if let Some(kept) = self.unsaved.get(&id) {
            return Ok(Some(kept.conversation.clone()));
        }
        let kept = rows::load(&self.connection, id).map_err(|error| self.trouble("be read", &error))?;
        Ok(kept.map(|kept| kept.conversation))
    }

    /// Its line in the list.
    pub(crate) fn summary(&self, id: ConversationId) -> Option<Summary> {
        if let Some(kept) = self.unsaved.get(&id) {
            return Some(kept.conversation.summary.clone());
        }
        rows::summary(&self.connection, id).optional().ok().flatten()
    }

    /// A new conversation; it is there even if it could not be saved.
    pub(crate) fn create(&mut self, system: String) -> (Conversation, Changed) {
        let id = ConversationId(self.next_conversation);
        self.next_conversation += 1;
        let summary = Summary { id, title: String::new(), changed_at: now(), found: String::new() };
        let conversation = Conversation { summary, system, messages: Vec::new(), leaf: None };
        let kept = Kept { conversation: conversation.clone(), renamed: false, deleted: false };
        let told = self.has_unsaved();
        let result = self.write(|change| rows::store(change, &kept));
        let changed = match result {
            Ok(()) => Ok(()),
            Err(error) => {
                self.unsaved.insert(id, kept);
                if told { Ok(()) } else { Err(self.trouble("be saved", &error)) }
            }
        };
        (conversation, changed)
    }

    /// An id for a message.
    pub(crate) fn message_id(&mut self) -> MessageId {
        let id = MessageId(self.next_message);
        self.next_message += 1;
        id
    }

    /// Adds messages below one another, and shows the path that ends at the last of them. A first question gives the
    /// conversation its title.
    ///
    /// # Errors
    /// It was not saved, but is kept.
    pub(crate) fn add(&mut self, id: ConversationId, messages: &[Message]) -> Changed {
        let at = now();
        let title =
            messages.iter().find(|message| message.parent.is_none()).map(|message| title(&message.text));
        let leaf = messages.last().map(|message| message.id);
        self.change(
            id,
            |change| {
                messages.iter().try_for_each(|message| rows::insert(change, id, message))?;
                if let Some(title) = &title {
                    change.execute(
                        "UPDATE conversation SET title = ?2 WHERE id = ?1 AND NOT renamed AND title = ''",
                        params![id.0, title],
                    )?;
                }
                change.execute(
                    "UPDATE conversation SET leaf = ?2, changed_at = ?3 WHERE id = ?1",
                    params![id.0, leaf.map(|leaf| leaf.0), at],
                )?;
                Ok(())
            },
            |kept| {
                let Kept { conversation, renamed, .. } = kept;
                conversation.messages.extend_from_slice(messages);
                conversation.leaf = leaf;
                conversation.summary.changed_at = at;
                if let Some(title) = &title
                    && !*renamed
                    && conversation.summary.title.is_empty()
                {
                    conversation.summary.title.clone_from(title);
                }
            },
        )
    }

    /// Writes down what a message is now.
    ///
    /// # Errors
    /// It was not saved, but is kept.
    pub(crate) fn update(&mut self, id: ConversationId, message: &Message) -> Changed {
        self.change(
            id,
            |change| rows::update(change, message),
            |kept| {
                let messages = &mut kept.conversation.messages;
                match messages.iter_mut().find(|known| known.id == message.id) {
                    Some(known) => *known = message.clone(),
                    None => messages.push(message.clone()),
                }
            },
        )
    }

    /// Another name.
    ///
    /// # Errors
    /// It was not saved, but is kept.
    pub(crate) fn rename(&mut self, id: ConversationId, title: &str) -> Changed {
        self.change(
            id,
            |change| {
                change.execute(
                    "UPDATE conversation SET title = ?2, renamed = 1 WHERE id = ?1",
                    params![id.0, title],
                )?;
                Ok(())
            },
            |kept| {
                kept.renamed = true;
                title.clone_into(&mut kept.conversation.summary.title);
            },
        )
    }

    /// Another system prompt.
    ///
    /// # Errors
    /// It was not saved, but is kept.
    pub(crate) fn set_system(&mut self, id: ConversationId, system: &str) -> Changed {
        self.change(
            id,
            |change| {
                change.execute("UPDATE conversation SET system = ?2 WHERE id = ?1", params![id.0, system])?;
                Ok(())
            },
            |kept| system.clone_into(&mut kept.conversation.system),
        )
    }

    /// Shows the path that ends at another message.
    ///
    /// # Errors
    /// It was not saved, but is kept.
    pub(crate) fn set_leaf(&mut self, id: ConversationId, leaf: MessageId) -> Changed {
        self.change(
            id,
            |change| {
                change.execute("UPDATE conversation SET leaf = ?2 WHERE id = ?1", params![id.0, leaf.0])?;
                Ok(())
            },
            |kept| kept.conversation.leaf = Some(leaf),
        )
    }

    /// Hides a conversation, or shows it again. Hidden ones are deleted at the next start.
    ///
    /// # Errors
    /// It was not saved, but is kept.
    pub(crate) fn hide(&mut self, id: ConversationId, hidden: bool) -> Changed {
        self.change(
            id,
            |change| {
                change
                    .execute("UPDATE conversation SET deleted = ?2 WHERE id = ?1", params![id.0, hidden])?;
                Ok(())
            },
            |kept| kept.deleted = hidden,
        )
    }
}

/// The first words of a question.
fn title(question: &str) -> String {
    let mut title = String::new();
    for word in question.split_whitespace() {
        let len = title.chars().count();
        if len + word.chars().count() > TITLE {
            if len == 0 {
                title.extend(word.chars().take(TITLE));
            }
            title.push('…');
            break;
        }
        if len > 0 {
            title.push(' ');
        }
        title.push_str(word);
    }
    title
}
