//! Where a checkpoint comes from over a network: addresses, tokens, one request at a time, and everything that a reply
//! must be before a byte of it counts.
//!
//! The token goes to the hub's own address and nowhere else: no redirect is followed by the HTTP library, and the request
//! that follows one here never carries it, not even on the same host. Addresses that storage servers sign are
//! secrets too: messages have addresses without their query.

use std::io::Read;
use std::sync::Mutex;

use ureq::http::{HeaderMap, Response};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::remote::allowed;
pub(crate) use super::remote::shown;
pub use super::remote::{ENDPOINT, Remote};
use super::retry::{Fault, Patience, retry_after};
use super::version::Version;
use super::wait::Trouble;
use crate::format::files::shorten;
use crate::{Error, Result};

/// Most redirects of one request.
const HOPS: usize = 5;

/// What the source says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileInfo {
    pub(crate) name: String,
    pub(crate) size: u64,
    /// SHA-256 by which large files are linked, if the source names one.
    pub(crate) sha256: Option<String>,
    /// What tells this version of the file from others, where no commit does; `None` if the server says nothing that would.
    pub(crate) version: Option<Version>,
}

/// A file with what was learned of it on the way.
#[derive(Debug)]
struct Known {
    info: FileInfo,
    /// Where the bytes lie, and the validator of the first reply from there.
    storage: Mutex<Storage>,
}

#[derive(Debug, Default)]
struct Storage {
    url: Option<String>,
    etag: Option<String>,
}

/// A connection to the source. Requests may be made from several threads.
#[derive(Debug)]
pub(crate) struct Hub {
    remote: Remote,
    token: Option<String>,
    commit: Option<String>,
    agent: Agent,
    files: Vec<Known>,
}

impl Hub {
    /// Nothing is sent yet.
    pub(crate) fn new(remote: Remote, token: Option<String>, patience: &Patience) -> Result<Self> {
        remote.check()?;
        let (Remote::Hub { endpoint: address, .. } | Remote::Base { url: address }) = &remote;
        let local = address.starts_with("http://");
        let mut config = Agent::config_builder()
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .timeout_connect(Some(patience.stall))
            .timeout_recv_response(Some(patience.stall))
            .timeout_per_read(Some(patience.stall))
            .timeout_per_write(Some(patience.stall))
            // Certificates of the system, so that a company's proxy works.
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
            .max_idle_connections(64)
            .max_idle_connections_per_host(32)
            .user_agent(concat!("fieldfare/", env!("CARGO_PKG_VERSION")));
        if local {
            // A proxy has no business with an address of this machine.
            config = config.proxy(None);
        }
        Ok(Self { remote, token, commit: None, agent: config.build().into(), files: Vec::new() })
    }

    /// The source, for messages.
    pub(crate) fn source(&self) -> String {
        self.remote.url(self.commit.as_deref(), "")
    }

    /// The commit that all requests name, once the hub has said it.
    pub(crate) fn commit(&self) -> Option<&str> {
        self.commit.as_deref()
    }

    /// A file that [`Hub::find`] found.
    pub(crate) fn file(&self, number: usize) -> &FileInfo {
        &self.files[number].info
    }

    /// A file that was found, by name.
    pub(crate) fn by_name(&self, name: &str) -> Option<&FileInfo> {
        self.files.iter().map(|known| &known.info).find(|info| info.name == name)
    }

    /// Looks for a file: its number for later requests, `None` if there is no such file.
    pub(crate) fn find(&mut self, name: &str) -> Result<Option<usize>, Fault> {
        if let Some(number) = self.files.iter().position(|known| known.info.name == name) {
            return Ok(Some(number));
        }
        let mut url = self.remote.url(self.commit.as_deref(), name);
        let (mut token, mut commit, mut linked) = (true, None, (None, None));
        for _ in 0..=HOPS {
            let reply = self.send("HEAD", &url, None, token)?;
            let (status, headers) = (reply.status().as_u16(), reply.headers());
            let said = |name| text(headers, name).map(str::to_owned);
            commit = commit.or_else(|| said("x-repo-commit"));
            linked = (
                linked.0.or_else(|| number(headers, "x-linked-size")),
                linked.1.or_else(|| said("x-linked-etag")),
            );
            let size = match status {
                // A mirror's list of what is not there.
                404 => return Ok(None),
                200..=299 => linked.0.or_else(|| number(headers, "content-length")),
                // Where large files lie is asked later, with the range; all that is to be known is known.
                300..=399 if linked.0.is_some() => linked.0,
                300..=399 => {
                    url = next_hop(&url, headers)?;
                    token = false;
                    continue;
                }
                _ => return Err(refused(&url, status, headers, token)),
            };
            let size = size.ok_or_else(|| bad(&url, "does not say how long it is"))?;
            let sha256 =
                linked.1.as_deref().map(unquoted).filter(|tag| is_sha256(tag)).map(str::to_lowercase);
            let plain = matches!(self.remote, Remote::Base { .. });
            let version = if plain { Version::of(headers) } else { None };
            let info = FileInfo { name: name.to_owned(), size, sha256, version };
            self.resolved(&url, commit)?;
            self.files.push(Known { info, storage: Mutex::default() });
            return Ok(Some(self.files.len() - 1));
        }
        Err(bad(&url, "redirected too often").into())
    }

    /// The commit must be the one asked for, and stay the same.
    fn resolved(&mut self, url: &str, commit: Option<String>) -> Result<()> {
        let Remote::Hub { revision, .. } = &self.remote else { return Ok(()) };
        let commit = commit.filter(|c| is_commit(c)).map(|c| c.to_lowercase());
        match (commit, &self.commit) {
            (None, _) => Err(bad(url, "the hub does not say of which commit it is")),
            (Some(commit), Some(before)) if commit != *before => {
                Err(bad(url, &format!("is of commit {commit}, not {before}: the revision moved")))
            }
            (Some(commit), _) if is_commit(revision) && !commit.eq_ignore_ascii_case(revision) => {
                Err(bad(url, &format!("is of commit {commit}, not of the one asked for")))
            }
            (Some(commit), _) => {
                self.commit = Some(commit);
                Ok(())
            }
        }
    }

    /// Opens `len` bytes of a file from `offset`. The reply has been checked; the reader gives exactly those bytes or
    /// fails.
    pub(crate) fn open(&self, number: usize, offset: u64, len: u64) -> Result<Box<dyn Read + Send>, Fault> {
        let Known { info, storage } = &self.files[number];
        let range = Range { offset, len, size: info.size };
        let cached = lock(storage).url.clone();
        let mut stored = cached.is_some();
        let mut url = cached.unwrap_or_else(|| self.remote.url(self.commit.as_deref(), &info.name));
        for _ in 0..=HOPS {
            let reply = self.send("GET", &url, Some(&range), !stored)?;
            let status = reply.status().as_u16();
            if !stored {
                self.same_source(&url, info, reply.headers(), status)?;
            }
            match status {
                206 => {
                    range.check(&url, reply.headers())?;
                    self.same_bytes(&url, info, storage, reply.headers())?;
                    return Ok(Box::new(reply.into_body().into_reader()));
                }
                300..=399 => {
                    url = next_hop(&url, reply.headers())?;
                    lock(storage).url = Some(url.clone());
                    stored = true;
                }
                401 | 403 | 404 | 410 if stored => {
                    // Only the address: what it leads to must be what it was.
                    lock(storage).url = None;
                    let reason = format!("{}: HTTP status {status}, the signed address expired", shown(&url));
                    return Err(Fault::Expired { reason });
                }
                200..=299 => {
                    let what =
                        format!("HTTP status {status} to a request for a part: the server cannot send parts");
                    return Err(bad(&url, &what).into());
                }
                416 => {
                    return Err(
                        bad(&url, "HTTP status 416: the file is shorter than it was said to be").into()
                    );
                }
                _ => return Err(refused(&url, status, reply.headers(), !stored)),
            }
        }
        lock(storage).url = None;
        Err(bad(&url, "redirected too often").into())
    }

    /// The hub's own answer must be of the same commit and, for linked files, of the same content.
    fn same_source(&self, url: &str, info: &FileInfo, headers: &HeaderMap, status: u16) -> Result<(), Fault> {
        if status >= 400 {
            return Ok(());
        }
        if let (Some(want), Some(found)) = (&self.commit, text(headers, "x-repo-commit"))
            && !found.eq_ignore_ascii_case(want)
        {
            let what = format!("is of commit {}, not {want}: the revision moved", shorten(found));
            return Err(bad(url, &what).into());
        }
        if let (Some(want), Some(found)) = (&info.sha256, text(headers, "x-linked-etag"))
            && !unquoted(found).eq_ignore_ascii_case(want)
        {
            return Err(bad(url, "its content changed while it was being fetched (another ETag)").into());
        }
        if number(headers, "x-linked-size").is_some_and(|size| size != info.size) {
            return Err(bad(url, "its length changed while it was being fetched").into());
        }
        Ok(())
    }

    /// Every part must come from the same bytes: the validator of the storage stays what it was.
    fn same_bytes(
        &self,
        url: &str,
        info: &FileInfo,
        storage: &Mutex<Storage>,
        headers: &HeaderMap,
    ) -> Result<(), Fault> {
        if let Some(version) = &info.version {
            return match version.is_of(headers) {
                true => Ok(()),
                false => Err(bad(
                    url,
                    &format!("its content changed while it was being fetched (another {version})"),
                )
                .into()),
            };
        }
        let Some(found) = text(headers, "etag").filter(|tag| !tag.starts_with("W/")) else { return Ok(()) };
        let mut storage = lock(storage);
        match &storage.etag {
            Some(before) if before != found => {
                Err(bad(url, "its content changed while it was being fetched (another ETag)").into())
            }
            Some(_) => Ok(()),
            None => {
                storage.etag = Some(found.to_owned());
                Ok(())
            }
        }
    }

    fn send(
        &self,
        method: &str,
        url: &str,
        range: Option<&Range>,
        token: bool,
    ) -> Result<Response<Body>, Fault> {
        allowed(url)?;
        let mut request = if method == "HEAD" { self.agent.head(url) } else { self.agent.get(url) };
        request = request.header("Accept-Encoding", "identity");
        if let Some(range) = range {
            request =
                request.header("Range", format!("bytes={}-{}", range.offset, range.offset + range.len - 1));
        }
        // Only the hub's own address knows what to do with the token.
        if let (true, Some(token), Remote::Hub { .. }) = (token, &self.token, &self.remote) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| failed(url, &error))
    }
}

/// The part of a file that was asked for.
struct Range {
    offset: u64,
    len: u64,
    size: u64,
}

impl Range {
    fn check(&self, url: &str, headers: &HeaderMap) -> Result<(), Fault> {
        let last = self.offset + self.len - 1;
        let want = format!("bytes {}-{last}/{}", self.offset, self.size);
        let found = text(headers, "content-range").unwrap_or("nothing");
        if found != want {
            let found = shorten(found);
            return Err(bad(url, &format!("Content-Range is {found}, asked for {want}")).into());
        }
        if number(headers, "content-length") != Some(self.len) {
            return Err(bad(url, "Content-Length is not that of the part asked for").into());
        }
        match text(headers, "content-encoding") {
            None | Some("identity") => Ok(()),
            Some(other) => Err(bad(url, &format!("Content-Encoding is {}", shorten(other))).into()),
        }
    }
}

/// The address that a redirect leads to.
fn next_hop(url: &str, headers: &HeaderMap) -> Result<String> {
    let location = text(headers, "location").ok_or_else(|| bad(url, "a redirect to nowhere"))?;
    let origin = || {
        let end = url.find("://").map_or(0, |at| at + 3);
        url[end..].find('/').map_or(url.len(), |at| at + end)
    };
    let next = match location {
        l if l.starts_with("//") => format!("{}:{l}", url.split(':').next().unwrap_or_default()),
        l if l.starts_with('/') => format!("{}{l}", &url[..origin()]),
        l if l.contains("://") => l.to_owned(),
        _ => return Err(bad(url, "a redirect to an address that cannot be followed")),
    };
    if url.starts_with("https://") && !next.starts_with("https://") {
        return Err(bad(url, "a redirect from https to something else"));
    }
    allowed(&next)?;
    Ok(next)
}

/// A status that is no answer.
fn refused(url: &str, status: u16, headers: &HeaderMap, hub: bool) -> Fault {
    let after = retry_after(text(headers, "retry-after"), text(headers, "date"));
    match status {
        401 | 403 if hub => Error::Denied { url: shown(url), status }.into(),
        408 | 425 | 429 | 500..=599 => {
            let reason = format!("{}: HTTP status {status}", shown(url));
            Fault::Again { reason, trouble: Trouble::Status(status), after }
        }
        _ => bad(url, &format!("HTTP status {status}")).into(),
    }
}

/// No answer at all.
fn failed(url: &str, error: &ureq::Error) -> Fault {
    let reason = match error {
        ureq::Error::Timeout(_) => "no answer in time".to_owned(),
        ureq::Error::HostNotFound => "its host is not known (is there a network?)".to_owned(),
        ureq::Error::Io(e) if is_unresolved(e) => format!("its host is not known (is there a network?): {e}"),
        ureq::Error::Io(e) => e.to_string(),
        ureq::Error::ConnectionFailed => "cannot connect".to_owned(),
        ureq::Error::Rustls(e) => e.to_string(),
        ureq::Error::Protocol(e) => format!("not HTTP: {e}"),
        ureq::Error::BadUri(_) => return bad(url, "is no address").into(),
        // Others may quote the address with its secrets.
        _ => "the request failed".to_owned(),
    };
    let trouble = match error {
        ureq::Error::HostNotFound => Trouble::NoHost,
        ureq::Error::Io(e) if is_unresolved(e) => Trouble::NoHost,
        ureq::Error::Timeout(_) => Trouble::NoAnswer,
        _ => Trouble::NoConnection,
    };
    Fault::again(trouble, format!("{}: {reason}", shown(url)))
}

/// The error of a name that cannot be resolved has no kind of its own: the text is the standard library's, the numbers are those of
/// Windows.
fn is_unresolved(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(11_001..=11_004))
        || error.to_string().starts_with("failed to lookup address information")
}

fn bad(url: &str, reason: &str) -> Error {
    Error::Network { url: shown(url), reason: reason.to_owned() }
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    text(headers, name)?.parse().ok()
}

fn unquoted(tag: &str) -> &str {
    tag.trim_matches('"')
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A full commit hash.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_nowhere_unencrypted() {
        let to = |from: &str, to: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("location", to.parse().expect("a header"));
            next_hop(from, &headers).map_err(|e| e.to_string())
        };
        assert_eq!(to("https://a/b/c", "/d?e").as_deref(), Ok("https://a/d?e"));
        assert_eq!(to("https://a/b", "//c/d").as_deref(), Ok("https://c/d"));
        assert_eq!(to("https://a/b", "https://c/d").as_deref(), Ok("https://c/d"));
        assert!(to("https://a/b", "http://127.0.0.1/d").is_err());
        assert!(to("http://127.0.0.1/b", "http://example.org/d").is_err());
        assert!(next_hop("https://a/b", &HeaderMap::new()).is_err());
    }
}
