//! What `--from` means.

use crate::Outcome;
use crate::args::InstallArgs;
use crate::failure::Failure;
use fieldfare::install::hub::{ENDPOINT, Remote};
use fieldfare::install::{Surroundings, default_remote};
use std::path::{Path, PathBuf};

/// Where a checkpoint comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A folder of this machine.
    Folder(PathBuf),
    /// Anything else.
    Remote(Remote),
}

impl Source {
    /// What the command line asks for.
    ///
    /// # Errors
    /// A revision of something that has none, or a network where none may be used.
    pub(super) fn of(args: &InstallArgs, hub: &Surroundings) -> Outcome<Self> {
        let source = choose(args.from.as_deref(), args.revision.as_deref(), hub.endpoint.as_deref());
        match &source {
            Self::Remote(Remote::Hub { .. }) => {}
            _ if args.revision.is_some() => {
                return Err(Failure::usage("--revision belongs to a repository of the model hub"));
            }
            _ => {}
        }
        if matches!(source, Self::Remote(_)) && hub.offline {
            return Err(Failure::failed("HF_HUB_OFFLINE forbids the network")
                .with_hint("unset it, or install from a folder with --from"));
        }
        Ok(source)
    }

    /// The last part of its name.
    pub(super) fn name(&self) -> PathBuf {
        match self {
            Self::Folder(path) => path.clone(),
            Self::Remote(Remote::Hub { repo, .. }) => {
                PathBuf::from(repo.rsplit('/').next().unwrap_or_default())
            }
            Self::Remote(Remote::Base { url }) => {
                let address = url.split(['?', '#']).next().unwrap_or_default();
                PathBuf::from(address.trim_end_matches('/').rsplit('/').next().unwrap_or_default())
            }
        }
    }
}

fn choose(from: Option<&str>, revision: Option<&str>, endpoint: Option<&str>) -> Source {
    let hub = |repo: String, known: String| Remote::Hub {
        endpoint: endpoint.unwrap_or(ENDPOINT).to_owned(),
        repo,
        revision: revision.map_or(known, str::to_owned),
    };
    let known = default_remote(endpoint);
    let Remote::Hub { repo: known_repo, revision: known_revision, .. } = known else {
        return Source::Remote(known);
    };
    let Some(from) = from else { return Source::Remote(hub(known_repo, known_revision)) };
    if from.starts_with("https://") || from.starts_with("http://") {
        return Source::Remote(Remote::Base { url: from.trim_end_matches('/').to_owned() });
    }
    if from == known_repo && !Path::new(from).exists() {
        return Source::Remote(hub(known_repo, known_revision));
    }
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    match from.split_once('/') {
        Some((owner, name)) if plain(owner) && plain(name) && !Path::new(from).exists() => {
            Source::Remote(hub(from.to_owned(), "main".to_owned()))
        }
        _ => Source::Folder(PathBuf::from(from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(repo: &str, revision: &str) -> Source {
        Source::Remote(Remote::Hub {
            endpoint: ENDPOINT.into(),
            repo: repo.into(),
            revision: revision.into(),
        })
    }

    #[test]
    fn sources_are_told_apart() {
        let Remote::Hub { repo, revision, .. } = default_remote(None) else { panic!("a hub") };
        assert_eq!(choose(None, None, None), hub(&repo, &revision));
        assert_eq!(choose(Some(&repo), None, None), hub(&repo, &revision));
        assert_eq!(choose(Some(&repo), Some("main"), None), hub(&repo, "main"));
        assert_eq!(choose(Some("owner/name"), None, None), hub("owner/name", "main"));
        for folder in ["./owner/name", "/owner/name", "a/b/c", "name", "../x", "."] {
            assert_eq!(choose(Some(folder), None, None), Source::Folder(folder.into()));
        }
        let url = "https://example.org/models/x/";
        assert_eq!(
            choose(Some(url), None, None),
            Source::Remote(Remote::Base { url: "https://example.org/models/x".into() })
        );
        assert_eq!(choose(Some(url), None, None).name(), PathBuf::from("x"));
    }
}
