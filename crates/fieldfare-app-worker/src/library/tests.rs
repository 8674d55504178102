//! The library by itself: what is kept, what is found, and what happens to it when disk or file fail.

use super::*;
use crate::message::{Document, Progress, Role, Run};

struct Rig {
    folder: tempfile::TempDir,
    pages: Arc<AtomicU32>,
}

impl Rig {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), pages: Arc::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("conversations.sqlite")
    }

    /// Opens it as a start of the app does; nothing may be wrong.
    fn open(&self) -> Library {
        let (library, troubles) = self.open_anyhow();
        assert_eq!(troubles, []);
        library
    }

    fn open_anyhow(&self) -> (Library, Vec<Trouble>) {
        Library::open(&self.path(), self.pages.clone())
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn message(library: &mut Library, parent: Option<MessageId>, role: Role, text: &str) -> Message {
    let new = Message::new(library.message_id(), parent, role, text);
    Message { progress: Progress::Done, written_at: now(), ..new }
}

/// A question and its answer, in a new conversation.
fn talk(library: &mut Library, question: &str, answer: &str) -> (ConversationId, [MessageId; 2]) {
    let (conversation, saved) = library.create(String::new());
    saved.unwrap();
    let id = conversation.summary.id;
    let question = message(library, None, Role::User, question);
    let answer = message(library, Some(question.id), Role::Assistant, answer);
    let ids = [question.id, answer.id];
    library.add(id, &[question, answer]).unwrap();
    (id, ids)
}

fn found(library: &Library, search: &str) -> Vec<i64> {
    let mut ids: Vec<i64> = library.list(search).unwrap().iter().map(|summary| summary.id.0).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn everything_of_a_conversation_comes_back() {
    let rig = Rig::new();
    let mut library = rig.open();
    let (conversation, saved) = library.create("Be kind.".into());
    saved.unwrap();
    let id = conversation.summary.id;
    let mut question = message(&mut library, None, Role::User, "Was singt\n im  Garten?");
    question.documents.push(Document { name: "a.txt".into(), text: "Text 🐦".into(), tokens: Some(3) });
    let mut answer = message(&mut library, Some(question.id), Role::Assistant, "");
    answer.progress = Progress::Writing;
    library.add(id, &[question.clone(), answer.clone()]).unwrap();
    answer.text = "Eine Drossel.".into();
    answer.thought = "hm".into();
    answer.progress = Progress::Cut("stopped".into());
    answer.run = Some(Run { tokens: 9, hit_rate: 0.5, ..Run::default() });
    library.update(id, &answer).unwrap();
    let other = message(&mut library, Some(question.id), Role::Assistant, "Ein Fink.");
    library.add(id, std::slice::from_ref(&other)).unwrap();
    library.set_leaf(id, answer.id).unwrap();
    library.set_system(id, "Be short.").unwrap();
    drop(library);
    let library = rig.open();
    let read = library.conversation(id).unwrap().unwrap();
    assert_eq!(read.messages, [question, answer.clone(), other]);
    assert_eq!((read.leaf, read.system.as_str()), (Some(answer.id), "Be short."));
    assert_eq!(read.summary.title, "Was singt im Garten?");
    assert_eq!(library.conversation(ConversationId(99)).unwrap(), None);
}

#[test]
fn ids_go_on_and_an_answer_that_was_being_written_is_an_interrupted_one() {
    let rig = Rig::new();
    let mut library = rig.open();
    let (id, [question, _]) = talk(&mut library, "q", "a");
    let mut growing = message(&mut library, Some(question), Role::Assistant, "half of");
    growing.progress = Progress::Writing;
    library.add(id, std::slice::from_ref(&growing)).unwrap();
    // The process is killed: nothing is closed.
    std::mem::forget(library);
    let mut library = rig.open();
    let read = library.conversation(id).unwrap().unwrap();
    let last = read.messages.last().unwrap();
    assert_eq!(last.text, "half of");
    assert!(matches!(&last.progress, Progress::Interrupted(reason) if reason.contains("ended")), "{last:?}");
    assert!(library.message_id() > growing.id);
    assert!(library.create(String::new()).0.summary.id > id);
}

#[test]
fn names_order_deletion_and_undo() {
    let rig = Rig::new();
    let mut library = rig.open();
    let (a, _) = talk(&mut library, "first question", "x");
    let (b, _) = talk(&mut library, "second question", "y");
    // Of the same second the later one is first.
    let order: Vec<_> = library.list("").unwrap().iter().map(|summary| summary.id).collect();
    assert_eq!(order, [b, a]);
    library.rename(a, "A name").unwrap();
    let more = message(&mut library, None, Role::User, "another first question");
    library.add(a, &[more]).unwrap();
    assert_eq!(library.summary(a).unwrap().title, "A name");
    library.hide(a, true).unwrap();
    assert_eq!((found(&library, ""), library.summary(a)), (vec![b.0], None));
    library.hide(a, false).unwrap();
    assert_eq!(found(&library, "").len(), 2);
    library.hide(b, true).unwrap();
    drop(library);
    let library = rig.open();
    assert_eq!(found(&library, ""), [a.0]);
    assert_eq!(library.conversation(b).unwrap(), None, "purged, with its messages");
    let left: i64 = library
        .connection
        .query_row("SELECT count(*) FROM message WHERE conversation = ?1", [b.0], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

#[test]
fn searches_look_at_titles_and_messages() {
    let rig = Rig::new();
    let mut library = rig.open();
    let (a, _) = talk(&mut library, "About Thrushes", "They eat berries; 100 % of them.");
    let (b, _) = talk(&mut library, "Über Drosseln", "Sie fressen ÄPFEL.");
    library.rename(b, "Vögel").unwrap();
    for (search, wanted) in [
        ("thrush", vec![a.0]),
        ("BERRIES", vec![a.0]),
        ("äpfel", vec![b.0]),
        ("vög", vec![b.0]),
        ("100 %", vec![a.0]),
        ("%", vec![a.0]),
        ("_", vec![]),
        ("'; DROP TABLE message; --", vec![]),
        ("  e ", vec![a.0, b.0]),
    ] {
        assert_eq!(found(&library, search), wanted, "{search}");
    }
    assert_eq!(library.list("berries").unwrap()[0].found, "They eat berries; 100 % of them.");
    assert_eq!(library.list("vögel").unwrap()[0].found, "", "in the title only");
}

#[test]
fn a_full_disk_is_said_once_and_what_was_said_meanwhile_is_saved_when_there_is_room() {
    let rig = Rig::new();
    let mut library = rig.open();
    let (id, [_, answer]) = talk(&mut library, "q", "a");
    let pages: u32 = library.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    rig.pages.store(pages, Ordering::Relaxed);
    let long = "word ".repeat(10_000);
    let mut growing = message(&mut library, Some(answer), Role::User, &long);
    let said = library.add(id, std::slice::from_ref(&growing)).unwrap_err();
    assert!(said.message.contains("the disk is full") && said.remedy.contains("kept in memory"), "{said:?}");
    // From here on in silence.
    growing.text.push_str("more");
    library.update(id, &growing).unwrap();
    library.rename(id, "renamed").unwrap();
    let (fresh, saved) = library.create("s".into());
    saved.unwrap();
    let other = message(&mut library, None, Role::User, &format!("in memory {long}"));
    library.add(fresh.summary.id, std::slice::from_ref(&other)).unwrap();
    assert!(library.has_unsaved());
    assert_eq!(library.conversation(id).unwrap().unwrap().messages.last(), Some(&growing));
    assert_eq!(library.summary(id).unwrap().title, "renamed");
    assert_eq!(found(&library, "in memory"), [fresh.summary.id.0]);
    assert_eq!(found(&library, "").len(), 2);
    library.hide(fresh.summary.id, true).unwrap();
    assert_eq!(found(&library, "").len(), 1);
    library.hide(fresh.summary.id, false).unwrap();
    library.save_unsaved(true).unwrap();
    assert!(library.has_unsaved(), "there is still no room");
    rig.pages.store(0, Ordering::Relaxed);
    library.save_unsaved(true).unwrap();
    assert!(!library.has_unsaved());
    drop(library);
    let library = rig.open();
    let read = library.conversation(id).unwrap().unwrap();
    assert_eq!((read.messages.last(), read.summary.title.as_str()), (Some(&growing), "renamed"));
    assert_eq!(library.conversation(fresh.summary.id).unwrap().unwrap().messages, [other]);
}

#[test]
fn a_damaged_file_or_a_stranger_s_is_set_aside_whole() {
    for damage in ["garbage", "torn", "stranger"] {
        let rig = Rig::new();
        let path = rig.path();
        if damage == "stranger" {
            let other = Connection::open(&path).unwrap();
            other.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);").unwrap();
        } else {
            let mut library = rig.open();
            for _ in 0..200 {
                talk(&mut library, "question", &"answer ".repeat(50));
            }
            library.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            drop(library);
            let mut bytes = std::fs::read(&path).unwrap();
            if damage == "torn" {
                // Pages in the middle are another file's.
                let len = bytes.len();
                bytes[len / 3..len / 3 + 9000].fill(0x55);
            } else {
                bytes[..100].fill(7);
            }
            std::fs::write(&path, bytes).unwrap();
        }
        let before = std::fs::read(&path).unwrap();
        let (mut library, troubles) = rig.open_anyhow();
        assert_eq!(troubles.len(), 1, "{damage}: {troubles:?}");
        assert!(troubles[0].message.contains("set aside as"), "{damage}: {troubles:?}");
        let aside =
            rig.names().into_iter().find(|name| name.contains(".damaged-") && name.ends_with(".sqlite"));
        let kept = std::fs::read(rig.folder.path().join(aside.unwrap())).unwrap();
        assert!(kept == before, "{damage}: every byte is kept");
        talk(&mut library, "a new one", "works");
        drop(library);
        assert_eq!(found(&rig.open(), ""), [1]);
    }
}

#[test]
fn a_file_of_a_newer_program_is_set_aside_and_an_older_one_is_brought_up() {
    let rig = Rig::new();
    let mut library = rig.open();
    let (id, _) = talk(&mut library, "q", "a");
    library.connection.execute_batch("DROP INDEX message_of; PRAGMA user_version = 1;").unwrap();
    drop(library);
    let library = rig.open();
    assert_eq!(library.conversation(id).unwrap().unwrap().messages.len(), 2);
    let number = |library: &Library, query: &str| -> i64 {
        library.connection.query_row(query, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(number(&library, "PRAGMA user_version"), schema::MIGRATIONS.len() as i64);
    assert_eq!(number(&library, "SELECT count(*) FROM sqlite_schema WHERE name = 'message_of'"), 1);
    library.connection.execute_batch("PRAGMA user_version = 77;").unwrap();
    drop(library);
    let (library, troubles) = rig.open_anyhow();
    assert!(troubles[0].message.contains("newer Fieldfare (version 77"), "{troubles:?}");
    assert_eq!(found(&library, ""), [0; 0]);
    assert!(rig.names().iter().any(|name| name.contains(".newer-")), "{:?}", rig.names());
}

#[test]
fn without_a_place_conversations_live_in_memory_and_that_is_said() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path()).unwrap();
    let (mut library, troubles) = rig.open_anyhow();
    assert!(
        troubles[0].message.contains("cannot be opened") && troubles[0].remedy.contains("lost"),
        "{troubles:?}"
    );
    let (id, _) = talk(&mut library, "q", "a");
    assert_eq!(found(&library, "q"), [id.0]);
}

#[test]
fn titles_are_the_first_words() {
    assert_eq!(title("  What is\nit? "), "What is it?");
    let long = title(&"word ".repeat(40));
    assert!(long.ends_with('…') && long.chars().count() <= TITLE + 1, "{long}");
    assert_eq!(title(&"x".repeat(500)).chars().count(), TITLE + 1);
    assert_eq!(
        title("Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz").chars().count(),
        TITLE + 1
    );
}

/// Two thousand conversations as people have them; times are printed, and only absurd ones fail.
#[test]
fn two_thousand_conversations_are_listed_and_searched_in_a_blink() {
    let rig = Rig::new();
    let mut library = rig.open();
    let answer = "The fieldfare is a thrush of woods and open country, larger than a blackbird. ".repeat(12);
    for number in 1..=2000i64 {
        let id = ConversationId(number);
        let mut messages = Vec::new();
        for turn in 0..5 {
            let parent = messages.last().map(|message: &Message| message.id);
            let question = message(
                &mut library,
                parent,
                Role::User,
                &format!("Question {turn} of {number}, zebra{number}"),
            );
            let reply = message(&mut library, Some(question.id), Role::Assistant, &answer);
            messages.extend([question, reply]);
        }
        let summary =
            Summary { id, title: format!("Conversation {number}"), changed_at: number, found: String::new() };
        let leaf = messages.last().map(|message| message.id);
        let conversation = Conversation { summary, system: String::new(), messages, leaf };
        library.unsaved.insert(id, Kept { conversation, renamed: false, deleted: false });
    }
    library.save_unsaved(true).unwrap();
    assert!(!library.has_unsaved());
    drop(library);
    let time = |what: &str, work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        let took = start.elapsed();
        println!("2,000 conversations of 10 messages: {what} in {:.1} ms", took.as_secs_f64() * 1e3);
        assert!(took < Duration::from_secs(10), "{what}: {took:?}");
    };
    let mut library = None;
    time("opened and checked", &mut || library = Some(rig.open()));
    let library = library.unwrap();
    let size = std::fs::metadata(rig.path()).unwrap().len();
    println!("the file has {:.1} MB", size as f64 / 1e6);
    time("listed", &mut || assert_eq!(library.list("").unwrap().len(), 2000));
    time("searched for what is in one", &mut || {
        let found = library.list("ZEBRA1234").unwrap();
        assert_eq!((found.len(), found[0].id.0), (1, 1234));
        assert!(found[0].found.contains("zebra1234"));
    });
    time("searched for what is in all", &mut || assert_eq!(library.list("blackbird").unwrap().len(), 2000));
    time("searched for what is in none", &mut || assert_eq!(library.list("quetzal").unwrap().len(), 0));
    time("searched in another script", &mut || assert_eq!(library.list("麦田").unwrap().len(), 0));
    time("opened one", &mut || {
        assert_eq!(library.conversation(ConversationId(777)).unwrap().unwrap().messages.len(), 10);
    });
}
