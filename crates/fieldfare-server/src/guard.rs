//! Who may come in: names that the request calls us by, web pages, keys. Pure functions over headers.
//!
//! A page from anywhere can make a browser send requests to this machine, and a name that points to 127.0.0.1 makes them
//! look local. So on loopback only names of this machine are taken, web pages of elsewhere are turned away, and no
//! answer may be read across origins unless an origin was named at the start.

use crate::wire::error::ApiError;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Version};
use std::net::IpAddr;

/// Largest block of headers, with the target.
pub(crate) const MAX_HEADER_BYTES: usize = 32 << 10;

/// Most headers.
pub(crate) const MAX_HEADERS: usize = 100;

/// Headers that a page may send; those that end in `*` by their beginning.
const ASKABLE: [&str; 12] = [
    "authorization",
    "content-type",
    "accept",
    "user-agent",
    "x-api-key",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "openai-*",
    "x-stainless-*",
    "x-request-id",
    "x-session-*",
];

/// The rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    /// Bound to loopback: the names are checked.
    pub(crate) loopback: bool,
    /// Further names that this server goes by.
    pub(crate) hosts: Vec<String>,
    /// The key that requests must show.
    pub(crate) key: Option<String>,
    /// Origins whose pages may read answers; `localhost` is any page of this machine.
    pub(crate) origins: Vec<String>,
}

impl Guard {
    /// Checks everything but the key.
    ///
    /// # Errors
    /// `headers_too_large`, `host_not_allowed`, `origin_not_allowed`.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        // The connection's own bound is on what it has to buffer, which a block that comes at once may exceed.
        let size = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        if request.headers().iter().map(size).sum::<usize>() + target > MAX_HEADER_BYTES
            || request.headers().len() > MAX_HEADERS
        {
            return Err(headers_too_large());
        }
        if self.loopback {
            self.host(request)?;
        }
        match text(request.headers(), &header::ORIGIN) {
            Some(origin) if !self.may_ask(origin, request) => Err(ApiError::new(
                403,
                "permission_error",
                "origin_not_allowed",
                "web pages of this origin are not let in; --cors names those that are",
            )),
            _ => Ok(()),
        }
    }

    fn host<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        let error =
            |status, kind, message: &str| Err(ApiError::new(status, kind, "host_not_allowed", message));
        let mut given = request.headers().get_all(header::HOST).iter();
        let host = match (given.next(), given.next()) {
            (Some(host), None) => host.to_str().unwrap_or_default(),
            // Only HTTP/1.0 may leave it out.
            (None, _) if request.version() < Version::HTTP_11 => "localhost",
            (None, _) => return error(400, "invalid_request_error", "the Host header is missing"),
            (Some(_), Some(_)) => return error(400, "invalid_request_error", "there are two Host headers"),
        };
        let target = request.uri().authority().map(hyper::http::uri::Authority::as_str);
        if [Some(host), target].into_iter().flatten().all(|name| self.knows(name)) {
            return Ok(());
        }
        error(403, "permission_error", "this server does not go by that name; --allowed-host adds one")
    }

    fn knows(&self, authority: &str) -> bool {
        let Some(name) = name_of(authority) else { return false };
        is_local(name) || self.hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
    }

    /// Whether a request with this origin is answered at all: pages of named origins, our own, and programs that are no
    /// web pages but send a scheme of their own.
    fn may_ask<B>(&self, origin: &str, request: &Request<B>) -> bool {
        let web = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
        let Some(authority) = web else { return true };
        let own = text(request.headers(), &header::HOST) == Some(authority);
        own || self.may_read(origin)
    }

    /// Whether pages of this origin may read answers.
    pub(crate) fn may_read(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| {
            allowed == origin
                || (allowed == "localhost"
                    && ["http://", "https://"]
                        .iter()
                        .find_map(|scheme| origin.strip_prefix(scheme))
                        .and_then(name_of)
                        .is_some_and(is_local))
        })
    }

    /// Checks the key.
    ///
    /// # Errors
    /// `invalid_api_key`.
    pub(crate) fn authorize(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let Some(key) = &self.key else { return Ok(()) };
        let bearer = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).and_then(|value| {
            let (scheme, rest) = value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
        });
        let plain = headers.get("x-api-key").map(HeaderValue::as_bytes);
        // Both are always compared, so that time says nothing of which was there.
        let shown = [bearer, plain].map(|given| same(given.unwrap_or_default(), key.as_bytes()));
        if shown[0] | shown[1] {
            return Ok(());
        }
        let message = "the API key is missing or wrong; send it as Authorization: Bearer KEY";
        Err(ApiError::new(401, "authentication_error", "invalid_api_key", message))
    }

    /// The answer to a preflight: the headers, or a refusal.
    ///
    /// # Errors
    /// `origin_not_allowed`.
    pub(crate) fn preflight(&self, headers: &HeaderMap) -> Result<Vec<(HeaderName, HeaderValue)>, ApiError> {
        let origin = text(headers, &header::ORIGIN).unwrap_or_default();
        let mut answer = self.cors(headers);
        if answer.is_empty() {
            let message = format!("web pages of {origin:.80} are not let in; --cors names those that are");
            return Err(ApiError::new(403, "permission_error", "origin_not_allowed", message));
        }
        let asked = text(headers, &header::ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
        let granted: Vec<&str> = asked.split(',').map(str::trim).filter(|name| is_askable(name)).collect();
        answer.push((
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, HEAD, POST, OPTIONS"),
        ));
        if let Ok(granted) = HeaderValue::from_str(&granted.join(", "))
            && !granted.is_empty()
        {
            answer.push((header::ACCESS_CONTROL_ALLOW_HEADERS, granted));
        }
        answer.push((header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600")));
        Ok(answer)
    }

    /// What lets a page of a named origin read the answer; nothing for others.
    pub(crate) fn cors(&self, headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
        let Some(value) = headers.get(header::ORIGIN) else { return Vec::new() };
        if !value.to_str().is_ok_and(|origin| self.may_read(origin)) {
            return Vec::new();
        }
        vec![
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, value.clone()),
            (header::VARY, HeaderValue::from_static("origin")),
        ]
    }

    /// Whether this is a browser's question before a request.
    pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
        method == Method::OPTIONS
            && headers.contains_key(header::ORIGIN)
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }
}

/// More headers, or longer ones, than may be.
pub(crate) fn headers_too_large() -> ApiError {
    let message = format!("there may be at most {MAX_HEADERS} headers, of {MAX_HEADER_BYTES} bytes together");
    ApiError::new(431, "invalid_request_error", "headers_too_large", message)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The name in `name:port` or `[v6]:port`.
fn name_of(authority: &str) -> Option<&str> {
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => match authority.split_once(':') {
            Some((name, _)) => (name, &authority[name.len()..]),
            None => (authority, ""),
        },
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    (digits.bytes().all(|byte| byte.is_ascii_digit()) && (port.is_empty() || port.starts_with(':')))
        .then_some(name)
}

/// `localhost` and loopback addresses.
fn is_local(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_askable(name: &str) -> bool {
    ASKABLE.iter().any(|askable| match askable.strip_suffix('*') {
        Some(start) => name.get(..start.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(start)),
        None => name.eq_ignore_ascii_case(askable),
    })
}

/// Whether two texts are the same, in a time that depends on their lengths only.
fn same(given: &[u8], key: &[u8]) -> bool {
    let mut difference = u8::from(given.len() != key.len());
    for (i, &byte) in key.iter().enumerate() {
        difference |= byte ^ given.get(i).copied().unwrap_or_default();
        difference = std::hint::black_box(difference);
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let mut builder = Request::builder().uri("/v1/models");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap()
    }

    fn local() -> Guard {
        Guard { loopback: true, ..Guard::default() }
    }

    #[test]
    fn only_names_of_this_machine_are_taken_on_loopback() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.9.9.9", "[::1]:8080", "[::1]"] {
            assert_eq!(local().check(&request(&[("host", host)])), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "10.0.0.1",
            "[::2]",
            "",
            "localhost:x",
            "[::1",
        ] {
            let error = local().check(&request(&[("host", host)])).unwrap_err();
            assert_eq!((error.status, error.code), (403, "host_not_allowed"), "{host}");
        }
        assert_eq!(local().check(&request(&[])).unwrap_err().status, 400);
        let named = Guard { hosts: vec!["box.lan".into()], ..local() };
        assert_eq!(named.check(&request(&[("host", "box.lan:8080")])), Ok(()));
        assert_eq!(Guard::default().check(&request(&[("host", "anything")])), Ok(()));
    }

    #[test]
    fn pages_of_elsewhere_are_turned_away() {
        let ask = |guard: &Guard, origin: &str| {
            guard.check(&request(&[("host", "localhost:8080"), ("origin", origin)])).is_ok()
        };
        assert!(!ask(&local(), "http://evil.example") && !ask(&local(), "http://localhost:3000"));
        assert!(ask(&local(), "http://localhost:8080") && ask(&local(), "app://obsidian.md"));
        let any = Guard { origins: vec!["localhost".into()], ..local() };
        assert!(ask(&any, "http://localhost:3000") && ask(&any, "https://127.0.0.1"));
        assert!(!ask(&any, "http://localhost.evil.example"));
        let one = Guard { origins: vec!["https://page.example".into()], ..local() };
        assert!(ask(&one, "https://page.example") && !ask(&one, "https://page.example:444"));
    }

    #[test]
    fn a_preflight_grants_what_is_known_only() {
        let guard = Guard { origins: vec!["https://page.example".into()], ..local() };
        let headers = |origin: &str| {
            request(&[
                ("origin", origin),
                (
                    "access-control-request-headers",
                    "Content-Type, X-Stainless-OS,x-evil , authorization, x-session-affinity",
                ),
            ])
            .headers()
            .clone()
        };
        let answer = guard.preflight(&headers("https://page.example")).unwrap();
        let find = |name: HeaderName| {
            answer
                .iter()
                .find(|(other, _)| *other == name)
                .map(|(_, value)| value.to_str().unwrap().to_owned())
        };
        assert_eq!(find(header::ACCESS_CONTROL_ALLOW_ORIGIN).as_deref(), Some("https://page.example"));
        assert_eq!(
            find(header::ACCESS_CONTROL_ALLOW_HEADERS).as_deref(),
            Some("Content-Type, X-Stainless-OS, authorization, x-session-affinity")
        );
        assert!(find(header::ACCESS_CONTROL_ALLOW_CREDENTIALS).is_none());
        assert_eq!(guard.preflight(&headers("https://other.example")).unwrap_err().status, 403);
        assert_eq!(local().preflight(&headers("http://localhost:8080")).unwrap_err().status, 403);
    }

    #[test]
    fn the_key_opens_by_either_header() {
        let guard = Guard { key: Some("s3cret".into()), ..Guard::default() };
        let may = |headers: &[(&str, &str)]| guard.authorize(request(headers).headers()).is_ok();
        assert!(may(&[("authorization", "Bearer s3cret")]) && may(&[("authorization", "bearer  s3cret")]));
        assert!(may(&[("x-api-key", "s3cret")]));
        for wrong in ["Bearer s3cre", "Bearer s3cret!", "Bearer ", "s3cret", "Basic s3cret", "Bearer S3cret"]
        {
            assert!(!may(&[("authorization", wrong)]), "{wrong}");
        }
        assert!(!may(&[]));
        assert_eq!(Guard::default().authorize(request(&[]).headers()), Ok(()));
    }
}
