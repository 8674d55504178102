//! Addresses of a source: which are allowed, and what of one may be shown.

use crate::format::files::shorten;
use crate::{Error, Result};

/// The hub's own address, unless `HF_ENDPOINT` names a mirror.
pub const ENDPOINT: &str = "https://huggingface.co";
/// Where the files of a checkpoint are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A repository of a model hub.
    Hub {
        /// Address of the hub: [`ENDPOINT`] or a mirror.
        endpoint: String,
        /// `owner/name`.
        repo: String,
        /// A commit, branch or tag.
        revision: String,
    },
    /// Any server: the files lie side by side below this address.
    Base {
        /// The address, without the slash at the end.
        url: String,
    },
}

impl Remote {
    /// Checks the address.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for what is no address of the kind, and for plain HTTP to another machine.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Hub { endpoint, repo, revision } => {
                allowed(endpoint)?;
                let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                let part = |s: &str| {
                    !s.is_empty() && !s.starts_with('.') && !s.contains("..") && s.chars().all(plain)
                };
                if !repo.split_once('/').is_some_and(|(owner, name)| part(owner) && part(name)) {
                    return Err(Error::bad("--from", format!("{} is no OWNER/NAME", shorten(repo))));
                }
                if !revision.split('/').all(part) {
                    return Err(Error::bad("--revision", format!("{} is no revision", shorten(revision))));
                }
                Ok(())
            }
            Self::Base { url } => allowed(url),
        }
    }

    /// What is written down about the source: nothing that depends on the mirror.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Hub { repo, .. } => repo.clone(),
            Self::Base { url } => shown(url),
        }
    }

    pub(crate) fn url(&self, commit: Option<&str>, file: &str) -> String {
        match self {
            Self::Hub { endpoint, repo, revision } => {
                let at = commit.unwrap_or(revision).replace('/', "%2F");
                format!("{}/{repo}/resolve/{at}/{file}", endpoint.trim_end_matches('/'))
            }
            Self::Base { url } => format!("{}/{file}", url.trim_end_matches('/')),
        }
    }
}

/// An address without what may be secret.
pub(crate) fn shown(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}/{}", path.chars().filter(|c| !c.is_control()).collect::<String>())
        }
        None => shorten(plain),
    }
}

/// Encrypted, or on this machine.
pub(crate) fn allowed(url: &str) -> Result<()> {
    let authority = |rest: &str| rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned();
    let refuse = |reason: &str| Err(Error::bad(shown(url), reason));
    let host = match url.split_once("://") {
        Some(("https", rest)) => authority(rest),
        Some(("http", rest)) if is_loopback(&authority(rest)) => authority(rest),
        Some(("http", _)) => return refuse("plain http is for this machine only; use https"),
        _ => return refuse("is no https address"),
    };
    if host.is_empty() || host.contains('@') {
        return refuse("has no host, or a user name in it");
    }
    Ok(())
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    matches!(host, "127.0.0.1" | "localhost" | "::1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for good in ["https://huggingface.co", "http://127.0.0.1:80/x", "http://[::1]:8/", "http://localhost"]
        {
            allowed(good).expect(good);
        }
        for wrong in [
            "http://huggingface.co",
            "http://localhost.example.org/",
            "http://127.0.0.1@example.org/",
            "https://user:word@example.org/",
            "ftp://localhost/",
            "https://",
            "huggingface.co",
        ] {
            assert!(allowed(wrong).is_err(), "{wrong}");
        }
        assert_eq!(shown("https://u:p@h/a/b?sig=1#f"), "https://h/a/b");
        let hub = |repo: &str, revision: &str| Remote::Hub {
            endpoint: ENDPOINT.into(),
            repo: repo.into(),
            revision: revision.into(),
        };
        assert_eq!(
            hub("a/b", "refs/pr/1").url(None, "c"),
            "https://huggingface.co/a/b/resolve/refs%2Fpr%2F1/c"
        );
        hub("a/b.c-d", "main").check().expect("good");
        for (repo, revision) in
            [("a", "main"), ("a/../b", "main"), ("a/b", ".."), ("a/b?x", "main"), ("a/b", "x y")]
        {
            assert!(hub(repo, revision).check().is_err(), "{repo} {revision}");
        }
    }
}
