//! The other side of the decode service: chat, counts and figures over loopback, for whoever knows the key.
//!
//! Calls block, so each has a thread of its own. A stream has an agent of its own, which [`Cut`] shuts down from any
//! thread: then the connection is gone, and with it the work.

mod chat;
mod figures;

pub(crate) use chat::{Cut, Ended, Piece, Question, stream};
pub(crate) use figures::watch;

use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use std::fmt;
use std::time::Duration;
use ureq::Agent;

/// How long the service may leave a plain question without an answer. It may be busy with a prompt, never for long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most bytes of a plain answer.
const CAP: u64 = 64 << 20;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The service said why, in one line, with a code.
    Refused { code: String, message: String },
    /// The service is not there, or went away.
    Gone(String),
}

/// Where the service is, and the key.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    base: String,
    key: String,
    agent: Agent,
}

fn agent(per_read: Duration) -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        // A proxy has no business with an address of this machine.
        .proxy(None)
        .timeout_connect(Some(Duration::from_secs(5)))
        .timeout_per_read(Some(per_read))
        .timeout_per_write(Some(per_read))
        .build()
        .into()
}

impl Client {
    /// A client of the service at this address.
    pub(crate) fn new(address: &str, key: String) -> Self {
        Self { base: format!("http://{address}"), key, agent: agent(PATIENCE) }
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.key)
    }

    /// Tokens of a text.
    ///
    /// # Errors
    /// The service is gone, or refuses.
    pub(crate) fn count(&self, text: &str) -> Result<u64, Failure> {
        #[derive(Deserialize)]
        struct Counted {
            tokens: Count,
        }
        let body = serde_json::json!({ "content": text, "parse_special": false }).to_string();
        let response = self
            .agent
            .post(format!("{}/tokenize", self.base))
            .header("authorization", self.bearer())
            .content_type("application/json")
            .send(body)
            .map_err(gone)?;
        let counted: Counted = read(response)?;
        Ok(counted.tokens.0)
    }
}

/// Reads an answer, or why there is none.
fn read<T: serde::de::DeserializeOwned>(
    mut response: ureq::http::Response<ureq::Body>,
) -> Result<T, Failure> {
    let status = response.status();
    let reader = response.body_mut().with_config().limit(CAP).reader();
    if status.is_success() {
        return serde_json::from_reader(std::io::BufReader::new(reader))
            .map_err(|error| Failure::Gone(error.to_string()));
    }
    let said: Refusal = serde_json::from_reader(reader).unwrap_or_default();
    Err(said.failure(status.as_u16()))
}

fn gone(error: impl fmt::Display) -> Failure {
    Failure::Gone(error.to_string())
}

/// The server's own form of a refusal.
#[derive(Default, Deserialize)]
pub(crate) struct Refusal {
    #[serde(default)]
    error: Said,
}

#[derive(Default, Deserialize)]
struct Said {
    #[serde(default)]
    message: String,
    #[serde(default)]
    code: String,
}

impl Refusal {
    fn failure(self, status: u16) -> Failure {
        let Said { message, code } = self.error;
        let message = if message.is_empty() {
            format!("the model's process answered with status {status}")
        } else {
            message
        };
        Failure::Refused { code, message }
    }
}

/// The length of a list, without the list.
struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counting;
        impl<'de> Visitor<'de> for Counting {
            type Value = Count;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Count(count))
            }
        }
        deserializer.deserialize_seq(Counting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_counted_and_a_refusal_is_read() {
        assert_eq!(serde_json::from_str::<Count>("[1, 22, 333]").unwrap().0, 3);
        assert!(serde_json::from_str::<Count>("{}").is_err());
        let said: Refusal =
            serde_json::from_str(r#"{"error": {"message": "m", "code": "c", "param": null}}"#).unwrap();
        assert_eq!(said.failure(400), Failure::Refused { code: "c".into(), message: "m".into() });
        let Failure::Refused { message, .. } = Refusal::default().failure(500) else { panic!() };
        assert!(message.contains("500"));
    }

    #[test]
    fn a_service_that_is_not_there_is_gone() {
        let nobody = fieldfare_testing::NobodyThere::new();
        let address = nobody.address().to_string();
        assert!(matches!(Client::new(&address, "k".into()).count("x"), Err(Failure::Gone(_))));
    }
}
