//! What the surroundings say of the model hub: a mirror, a token, and whether the network may be used at all. The names
//! are those of the hub's own tools, so that whoever has set these up has set up every program here.

use std::fmt;
use std::path::PathBuf;

/// What was found. Written out for people, the token is not.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// `HF_ENDPOINT`: a mirror in place of the hub.
    pub endpoint: Option<String>,
    /// `HF_TOKEN`, else the file at `HF_TOKEN_PATH`, else `token` in the hub's folder; none if
    /// `HF_HUB_DISABLE_IMPLICIT_TOKEN` forbids files.
    pub token: Option<String>,
    /// `HF_HUB_OFFLINE` forbids the network.
    pub offline: bool,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "...");
        f.debug_struct("Surroundings")
            .field("endpoint", &self.endpoint)
            .field("token", &token)
            .field("offline", &self.offline)
            .finish()
    }
}

impl Surroundings {
    /// Those of this process. Proxies are not among them: what sends requests finds `HTTPS_PROXY` and the like by itself.
    pub fn of_process() -> Self {
        Self::of(&|name| std::env::var(name).ok(), std::env::home_dir())
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>, home: Option<PathBuf>) -> Self {
        let text = |name: &str| variable(name).filter(|value| !value.is_empty());
        let flag = |name: &str| {
            text(name)
                .is_some_and(|value| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str()))
        };
        let file = || {
            if flag("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
                return None;
            }
            let path = text("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| {
                let of_hub = text("HF_HOME").map(PathBuf::from).or_else(|| {
                    let cache = text("XDG_CACHE_HOME").map(PathBuf::from);
                    Some(cache.or_else(|| Some(home?.join(".cache")))?.join("huggingface"))
                })?;
                Some(of_hub.join("token"))
            })?;
            let small = std::fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() < 4096);
            if small { std::fs::read_to_string(path).ok().and_then(clean) } else { None }
        };
        Self {
            endpoint: text("HF_ENDPOINT"),
            token: text("HF_TOKEN").and_then(clean).or_else(file),
            offline: flag("HF_HUB_OFFLINE"),
        }
    }
}

fn clean(token: String) -> Option<String> {
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)], home: Option<PathBuf>) -> Surroundings {
        let variable =
            |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Surroundings::of(&variable, home)
    }

    #[test]
    fn nothing_said_is_the_hub_without_a_token() {
        let temp = tempfile::tempdir().unwrap();
        let empty = [("HF_ENDPOINT", ""), ("HF_TOKEN", " "), ("HF_HUB_OFFLINE", "0")];
        for pairs in [&[][..], &empty] {
            assert_eq!(of(pairs, Some(temp.path().to_owned())), Surroundings::default());
            assert_eq!(of(pairs, None), Surroundings::default());
        }
        let said = of(&[("HF_ENDPOINT", "https://mirror.example"), ("HF_HUB_OFFLINE", "yes")], None);
        assert_eq!(said.endpoint.as_deref(), Some("https://mirror.example"));
        assert!(said.offline);
    }

    #[test]
    fn a_token_comes_from_the_variable_then_from_the_file_named_then_from_the_usual_one() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path();
        let usual = home.join(".cache/huggingface");
        std::fs::create_dir_all(&usual).unwrap();
        std::fs::write(usual.join("token"), "hf_usual\n").unwrap();
        let named = home.join("named");
        std::fs::write(&named, "hf_named\n").unwrap();
        let named = named.to_str().unwrap();
        let token = |pairs: &[(&str, &str)]| of(pairs, Some(home.to_owned())).token;
        assert_eq!(token(&[]).as_deref(), Some("hf_usual"));
        assert_eq!(token(&[("HF_TOKEN_PATH", named)]).as_deref(), Some("hf_named"));
        assert_eq!(token(&[("HF_TOKEN_PATH", named), ("HF_TOKEN", "hf_said")]).as_deref(), Some("hf_said"));
        assert_eq!(token(&[("HF_HOME", home.to_str().unwrap())]), None);
        assert_eq!(token(&[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        assert_eq!(
            token(&[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"), ("HF_TOKEN", "hf_said")]).as_deref(),
            Some("hf_said")
        );
        let said = of(&[("HF_TOKEN", "hf_said")], None);
        assert!(!format!("{said:?}").contains("hf_said"));
        // No token is that long; it is not read into memory.
        std::fs::write(usual.join("token"), "x".repeat(5000)).unwrap();
        assert_eq!(token(&[]), None);
    }
}
