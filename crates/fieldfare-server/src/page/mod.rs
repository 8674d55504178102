//! The page for browsers at `/`: one file, nothing from elsewhere, and a policy under which nothing else would run.

use crate::body::Reply;
use crate::wire::id;
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

const PAGE: &str = include_str!("page.html");

/// Whether a browser asks, which names HTML; programs take what they get.
pub(crate) fn wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').filter_map(|kind| kind.split(';').next()).any(|kind| kind.trim() == "text/html")
}

/// The page. Its script and style carry a word made anew each time, without which the browser runs none.
pub(crate) fn answer() -> Response<Reply> {
    let nonce = id::answer("");
    let mut response = Response::new(Reply::Whole(Some(Bytes::from(PAGE.replace("@NONCE@", &nonce)))));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::VARY, "accept"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_browsers_ask_for_it() {
        let asks = |accept: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            }
            wanted(&headers)
        };
        assert!(asks(Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")));
        for accept in [None, Some("*/*"), Some("application/json"), Some("application/json, text/plain, */*")]
        {
            assert!(!asks(accept), "{accept:?}");
        }
    }

    #[test]
    fn nothing_comes_from_elsewhere_and_no_text_becomes_markup() {
        for foreign in [
            "http:",
            "https:",
            "src=",
            "@import",
            "url(",
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            " style=",
            "onclick=",
        ] {
            assert!(!PAGE.contains(foreign), "{foreign}");
        }
        assert_eq!(PAGE.matches("@NONCE@").count(), 2);
        assert_eq!(PAGE.matches("<script").count() + PAGE.matches("<style").count(), 2);
    }
}
