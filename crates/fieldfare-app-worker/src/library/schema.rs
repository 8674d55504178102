//! Tables and their versions; opening a file, and setting one aside that cannot be used.

use super::now;
use super::search::Needle;
use crate::message::Trouble;
use crate::trouble::plain;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Says that a database is ours ("Ffch").
const APPLICATION: i64 = 0x4666_6368;
/// Up to this size a file is checked as a whole at the start; that takes some milliseconds for each megabyte.
const CHECKED: u64 = 256 << 20;

/// What makes a database of one version into one of the next. Never changed, only added to.
pub(super) const MIGRATIONS: [&str; 2] = [
    "CREATE TABLE conversation (
         id INTEGER PRIMARY KEY,
         title TEXT NOT NULL,
         renamed INTEGER NOT NULL,
         system TEXT NOT NULL,
         leaf INTEGER,
         changed_at INTEGER NOT NULL,
         deleted INTEGER NOT NULL
     );
     CREATE TABLE message (
         id INTEGER PRIMARY KEY,
         conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
         parent INTEGER,
         role INTEGER NOT NULL,
         text TEXT NOT NULL,
         thought TEXT NOT NULL,
         documents TEXT NOT NULL,
         progress INTEGER NOT NULL,
         reason TEXT NOT NULL,
         written_at INTEGER NOT NULL,
         run TEXT
     );",
    "CREATE INDEX message_of ON message (conversation, id);",
];

/// Why a file is not the library.
enum Unusable {
    /// It is none, or damaged.
    Damaged(String),
    /// A newer program wrote it.
    Newer(i64),
    /// It cannot be opened or written now.
    Refused(Error),
}

/// Opens the file, or what takes its place.
pub(super) fn open(path: &Path) -> (Connection, Vec<Trouble>) {
    let mut troubles = Vec::new();
    let mut tried = open_file(path);
    let why = match &tried {
        Err(Unusable::Damaged(reason)) => Some(("damaged", format!("are damaged ({reason})"))),
        Err(Unusable::Newer(version)) => {
            Some(("newer", format!("were written by a newer Fieldfare (version {version} of the file)")))
        }
        _ => None,
    };
    if let Some((word, why)) = why {
        match set_aside(path, word) {
            Ok(to) => {
                troubles.push(plain(
                    format!("the conversations in {} {why}; the file was set aside as {}", path.display(), to.display()),
                    "A new library was begun. Nothing was deleted: the old file can be opened with its own program or with SQLite.",
                ));
                tried = open_file(path);
            }
            Err(error) => troubles.push(plain(
                format!(
                    "the conversations in {} {why}, and the file cannot be set aside: {error}",
                    path.display()
                ),
                "Move the file away, then start the app again.",
            )),
        }
    }
    match tried {
        Ok(connection) => return (connection, troubles),
        Err(Unusable::Refused(error)) => troubles.push(plain(
            format!("the conversations in {} cannot be opened: {error}", path.display()),
            "Conversations are kept until the app ends, and lost then. Check the folder and the free space, then start the app again.",
        )),
        Err(_) => {}
    }
    match in_memory() {
        Ok(connection) => (connection, troubles),
        // SQLite in memory fails where there is no memory at all.
        Err(error) => panic!("SQLite cannot be used: {error}"),
    }
}

fn in_memory() -> Result<Connection, Error> {
    let mut connection = Connection::open_in_memory()?;
    prepare(&connection)?;
    migrate(&mut connection, 0)?;
    Ok(connection)
}

fn open_file(path: &Path) -> Result<Connection, Unusable> {
    let sort = |error: Error| {
        if is_damage(&error) { Unusable::Damaged(error.to_string()) } else { Unusable::Refused(error) }
    };
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(sort)?;
    let number = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let version = number("user_version").map_err(sort)?;
    let application = number("application_id").map_err(sort)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(sort)?;
    if application != APPLICATION && tables > 0 {
        return Err(Unusable::Damaged("it is another program's database".to_owned()));
    }
    if version > MIGRATIONS.len() as i64 {
        return Err(Unusable::Newer(version));
    }
    if version < 0 || (version > 0) != (tables > 0) {
        return Err(Unusable::Damaged("its tables are gone".to_owned()));
    }
    if std::fs::metadata(path).is_ok_and(|meta| meta.len() <= CHECKED) {
        let said: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(sort)?;
        if said != "ok" {
            return Err(Unusable::Damaged(said));
        }
    }
    prepare(&connection).map_err(sort)?;
    migrate(&mut connection, version).map_err(sort)?;
    Ok(connection)
}

/// Settings of a connection, and the functions that queries use.
fn prepare(connection: &Connection) -> Result<(), Error> {
    connection.busy_timeout(Duration::from_secs(2))?;
    // A power cut may take the last second, never the order of things; a killed program loses nothing.
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;
         PRAGMA cache_size = -4000; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 8000000;",
    )?;
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    let needle = |context: &rusqlite::functions::Context<'_>| {
        let text = context.get_raw(1).as_str()?;
        context.get_or_create_aux(1, |_| Ok::<_, Error>(Needle::new(text)))
    };
    connection.create_scalar_function("has", 2, flags, move |context| {
        Ok(needle(context)?.is_in(context.get_raw(0).as_str()?))
    })?;
    connection.create_scalar_function("place", 2, flags, move |context| {
        Ok(needle(context)?.place(context.get_raw(0).as_str()?))
    })
}

/// Brings a database from `version` to the newest one, in one step.
pub(super) fn migrate(connection: &mut Connection, version: i64) -> Result<(), Error> {
    let done = usize::try_from(version).unwrap_or(0);
    if done >= MIGRATIONS.len() {
        return Ok(());
    }
    let change = connection.transaction()?;
    for step in &MIGRATIONS[done..] {
        change.execute_batch(step)?;
    }
    change.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {};",
        MIGRATIONS.len()
    ))?;
    change.commit()
}

/// Whether an error says that the file is not what it must be.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Renames the file and what SQLite keeps beside it; the new name.
fn set_aside(path: &Path, word: &str) -> std::io::Result<PathBuf> {
    let with = |path: &Path, suffix: &str| {
        let mut name = OsString::from(path);
        name.push(suffix);
        PathBuf::from(name)
    };
    let free = (0..1000).map(|number| {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        path.with_extension(format!("{word}-{}{number}.sqlite", now()))
    });
    let to = free.into_iter().find(|to| !to.exists()).ok_or(std::io::ErrorKind::AlreadyExists)?;
    std::fs::rename(path, &to)?;
    for beside in ["-wal", "-shm"] {
        match std::fs::rename(with(path, beside), with(&to, beside)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(to)
}
