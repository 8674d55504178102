//! A model hub on the loopback interface that misbehaves as it is told.
//!
//! Like a real one it answers `GET /OWNER/NAME/resolve/REVISION/FILE` of a large file with a redirect to a signed address of
//! a storage server (here: another path), and of a small one with the bytes. It serves parts of files only.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The commit of everything it has.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// The repository it has.
pub const REPO: &str = "owner/name";

/// Bytes of a file.
#[derive(Debug)]
pub enum Content {
    /// In memory.
    Bytes(Vec<u8>),
    /// A regular file of this length, which may be sparse.
    File(PathBuf, u64),
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, len) => *len,
        }
    }
}

/// A file of the hub.
#[derive(Debug)]
pub struct Served {
    /// Its bytes.
    pub content: Content,
    /// SHA-256 that a large file is linked by; a small file has none and is not redirected.
    pub sha256: Option<String>,
}

/// What goes wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The connection closes before any answer.
    NoAnswer,
    /// The connection closes in the middle of the body.
    Reset,
    /// The body stops in the middle for this long, then the connection closes.
    Stall(Duration),
    /// This status with `Retry-After: 0`.
    Status(u16),
    /// Status 429 with `Retry-After` as a date, this many seconds after a `Date` of a year that is long past.
    Later(u32),
    /// The whole file with status 200.
    Whole,
    /// A part next to the one asked for, and `Content-Range` says so.
    WrongRange,
    /// One byte more than asked for.
    TooLong,
    /// The part that was asked for, and more behind it than the headers say.
    Surplus,
    /// Fewer bytes than asked for, and `Content-Length` says so.
    TooShort,
    /// The storage has another `ETag`.
    OtherTag,
    /// Nothing, but the storage says something else of the version of its files.
    Of(Version),
    /// The hub answers for another commit.
    OtherCommit,
    /// `Content-Encoding: gzip`.
    Encoded,
    /// One bit of the last byte is wrong. (What lies between the ends of a part may be a gap that nobody asked for.)
    Flip,
    /// The redirect leads back to itself for ever.
    Circle,
    /// The redirect leads to plain HTTP on another machine.
    Elsewhere,
}

/// What a storage says by which two versions of a file could be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A strong `ETag`.
    Tag(u8),
    /// A weak `ETag`.
    Weak(u8),
    /// `Last-Modified`, at that hour of a day before the answer's `Date`.
    Modified(u8),
    /// `Last-Modified` in the second of the answer's `Date`.
    JustNow,
    /// Nothing.
    Unsaid,
}

impl Version {
    fn headers(self) -> String {
        let date = "Date: Mon, 07 Nov 1994 08:00:00 GMT\r\n";
        match self {
            Self::Tag(n) => format!("ETag: \"version {n}\"\r\n"),
            Self::Weak(n) => format!("ETag: W/\"version {n}\"\r\n"),
            Self::Modified(hour) => {
                format!("Last-Modified: Sun, 06 Nov 1994 {hour:02}:00:00 GMT\r\n{date}")
            }
            Self::JustNow => format!("Last-Modified: Mon, 07 Nov 1994 08:00:00 GMT\r\n{date}"),
            Self::Unsaid => String::new(),
        }
    }
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `GET` or `HEAD`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// First and last byte.
    pub range: Option<(u64, u64)>,
    /// The `Authorization` header.
    pub authorization: Option<String>,
}

impl Asked {
    /// True for a request to the storage.
    pub fn is_storage(&self) -> bool {
        self.path.starts_with("/storage/")
    }
}

/// The files of a folder; `sha256` gives the hash that a file is linked by, `None` for a small one.
///
/// # Panics
/// If they cannot be read.
pub fn files_of(dir: &Path, sha256: impl Fn(&str, &[u8]) -> Option<String>) -> BTreeMap<String, Served> {
    let entries = std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry"));
    entries
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            let name = entry.file_name().into_string().expect("a name in Unicode");
            let bytes = std::fs::read(entry.path()).expect("a file");
            let sha256 = sha256(&name, &bytes);
            (name, Served { content: Content::Bytes(bytes), sha256 })
        })
        .collect()
}

type Script = dyn Fn(usize, &Asked) -> Fault + Send + Sync;

struct Shared {
    files: BTreeMap<String, Served>,
    script: Box<Script>,
    asked: Mutex<Vec<Asked>>,
    count: AtomicUsize,
    sent: AtomicU64,
    /// Connections.
    open: AtomicUsize,
    stop: AtomicBool,
}

/// A running hub; it ends with this value.
pub struct FakeHub {
    shared: Arc<Shared>,
    port: u16,
}

impl FakeHub {
    /// Starts it. `script` is asked about every request, which are numbered as they come.
    ///
    /// # Panics
    /// If no port of the loopback interface can be had.
    pub fn start(
        files: BTreeMap<String, Served>,
        script: impl Fn(usize, &Asked) -> Fault + Send + Sync + 'static,
    ) -> Self {
        Self::start_at(0, files, script)
    }

    /// The same on a given port.
    ///
    /// # Panics
    /// If the port cannot be had.
    pub fn start_at(
        port: u16,
        files: BTreeMap<String, Served>,
        script: impl Fn(usize, &Asked) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port of the loopback interface");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            files,
            script: Box::new(script),
            asked: Mutex::default(),
            count: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let hub = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if hub.stop.load(Ordering::Relaxed) {
                    return;
                }
                let hub = hub.clone();
                hub.open.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    // A client that leaves in the middle is no event here.
                    drop(serve(&hub, stream, port));
                    hub.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { shared, port }
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Every request so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes of bodies sent so far, those that are just being sent included.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Waits until nobody is connected any more. An install that ended early leaves threads that still receive; only
    /// after them [`FakeHub::sent`] stands still.
    ///
    /// # Panics
    /// If somebody stays for minutes.
    pub fn at_rest(&self) {
        let end = Instant::now() + Duration::from_secs(120);
        while self.shared.open.load(Ordering::SeqCst) > 0 {
            assert!(Instant::now() < end, "somebody stays connected");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes the listener.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn serve(hub: &Shared, stream: TcpStream, port: u16) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    while let Some(asked) = read_request(&mut reader)? {
        if hub.stop.load(Ordering::Relaxed) {
            break;
        }
        let number = hub.count.fetch_add(1, Ordering::Relaxed);
        let fault = (hub.script)(number, &asked);
        hub.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked.clone());
        if !answer(hub, &mut stream, &asked, fault, port)? {
            break;
        }
    }
    stream.shutdown(Shutdown::Both)
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut asked = Asked { method, path, range: None, authorization: None };
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(Some(asked));
        }
        let Some((name, value)) = line.split_once(": ") else { continue };
        if name.eq_ignore_ascii_case("range") {
            asked.range = value
                .strip_prefix("bytes=")
                .and_then(|r| r.split_once('-'))
                .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        } else if name.eq_ignore_ascii_case("authorization") {
            asked.authorization = Some(value.to_owned());
        }
    }
}

/// Answers; false if the connection is to close.
fn answer(
    hub: &Shared,
    stream: &mut TcpStream,
    asked: &Asked,
    fault: Fault,
    port: u16,
) -> std::io::Result<bool> {
    let empty = |stream: &mut TcpStream, status: &str, headers: &str| {
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n{headers}\r\n").map(|()| true)
    };
    let path = asked.path.split('?').next().unwrap_or_default();
    let (storage, name) = match path.strip_prefix("/storage/") {
        Some(name) => (true, name),
        None => (
            false,
            path.strip_prefix(&format!("/{REPO}/resolve/"))
                .and_then(|p| p.split_once('/'))
                .map_or("", |p| p.1),
        ),
    };
    match fault {
        Fault::NoAnswer => return Ok(false),
        Fault::Status(status) => {
            return empty(stream, &format!("{status} Fault"), "Retry-After: 0\r\n");
        }
        Fault::Later(seconds) => {
            let (minute, second) = (seconds / 60 % 60, seconds % 60);
            let day = "Sun, 06 Nov 1994 08";
            let headers =
                format!("Date: {day}:00:00 GMT\r\nRetry-After: {day}:{minute:02}:{second:02} GMT\r\n");
            return empty(stream, "429 Fault", &headers);
        }
        Fault::Circle => return empty(stream, "302 Found", &format!("Location: {}\r\n", asked.path)),
        Fault::Elsewhere if !storage => {
            return empty(stream, "302 Found", "Location: http://storage.example.org/x\r\n");
        }
        _ => {}
    }
    let Some(file) = hub.files.get(name) else { return empty(stream, "404 Not Found", "") };
    let len = file.content.len();
    let commit = if fault == Fault::OtherCommit { COMMIT.replace('0', "f") } else { COMMIT.to_owned() };
    let mut headers = String::new();
    if !storage {
        headers = format!("X-Repo-Commit: {commit}\r\n");
        if let Some(sha256) = &file.sha256 {
            headers += &format!("X-Linked-Size: {len}\r\nX-Linked-ETag: \"{sha256}\"\r\n");
            let signed = format!("Location: http://127.0.0.1:{port}/storage/{name}?signature=secret\r\n");
            return empty(stream, "302 Found", &format!("{headers}{signed}"));
        }
    }
    match fault {
        Fault::Of(version) if storage => headers += &version.headers(),
        Fault::OtherTag => headers += "ETag: \"other\"\r\n",
        _ => headers += "ETag: \"tag\"\r\n",
    }
    if asked.method == "HEAD" {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n{headers}\r\n")?;
        return Ok(true);
    }
    let (first, last) = asked.range.unwrap_or((0, len.saturating_sub(1)));
    if first > last || last >= len {
        return empty(stream, "416 Range Not Satisfiable", "");
    }
    body(hub, stream, file, (first, last), fault, headers)
}

fn body(
    hub: &Shared,
    stream: &mut TcpStream,
    file: &Served,
    (mut first, mut last): (u64, u64),
    fault: Fault,
    mut headers: String,
) -> std::io::Result<bool> {
    let len = file.content.len();
    let mut status = "206 Partial Content";
    match fault {
        Fault::Whole => (status, first, last) = ("200 OK", 0, len - 1),
        Fault::WrongRange if first > 0 => (first, last) = (first - 1, last - 1),
        Fault::WrongRange | Fault::TooLong if last + 1 < len => last += 1,
        Fault::TooShort if last > first => last -= 1,
        // Where the file has no other part, the answer is no part at all.
        Fault::WrongRange | Fault::TooLong | Fault::TooShort => status = "204 No Content",
        Fault::Encoded => headers += "Content-Encoding: gzip\r\n",
        _ => {}
    }
    let size = last - first + 1;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {size}\r\nContent-Range: bytes {first}-{last}/{len}\r\n{headers}\r\n"
    )?;
    let half = size / 2;
    let mut at = 0;
    let mut buffer = vec![0; 256 << 10];
    while at < size {
        let mut n = (size - at).min(buffer.len() as u64);
        if matches!(fault, Fault::Reset | Fault::Stall(_)) {
            if at >= half {
                if let Fault::Stall(time) = fault {
                    std::thread::sleep(time);
                }
                return Ok(false);
            }
            n = n.min(half - at);
        }
        let part = &mut buffer[..usize::try_from(n).unwrap_or(0)];
        read_at(&file.content, first + at, part)?;
        if fault == Fault::Flip
            && at + n == size
            && let Some(last) = part.last_mut()
        {
            *last ^= 0x10;
        }
        // Counted first: whoever has received a byte finds it counted.
        hub.sent.fetch_add(n, Ordering::Relaxed);
        stream.write_all(part)?;
        at += n;
    }
    if fault == Fault::Surplus {
        stream.write_all(&[7; 4096])?;
    }
    Ok(true)
}

fn read_at(content: &Content, at: u64, part: &mut [u8]) -> std::io::Result<()> {
    match content {
        Content::Bytes(bytes) => {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            part.copy_from_slice(&bytes[at..at + part.len()]);
            Ok(())
        }
        Content::File(path, _) => {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(part)
        }
    }
}
