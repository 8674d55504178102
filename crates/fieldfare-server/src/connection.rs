//! One connection: the requests on it, what is said of a head that cannot be read, and how it is closed.

use crate::guard::{MAX_HEADER_BYTES, MAX_HEADERS, headers_too_large};
use crate::handlers::{Front, handle};
use crate::link::{Link, Times, Tracked};
use crate::wire::error::ApiError;
use hyper::StatusCode;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Longest time between an answer and the next request.
const IDLE_TIME: Duration = Duration::from_secs(75);
/// Most headers that are read; the guard refuses far fewer, and knows whose request it was.
const HEADERS: usize = 4 * MAX_HEADERS;

/// Answers what comes on a connection until one of both sides has had enough.
pub(crate) async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    front: Arc<Front>,
    mut stop: watch::Receiver<bool>,
    times: Times,
) {
    let (mut link, waiting) = Link::new(stream, times);
    let shared = front.clone();
    let service = service_fn(move |request| {
        let front = shared.clone();
        let answering = waiting.over();
        async move {
            let response = handle(front, request).await;
            Ok::<_, Infallible>(response.map(|reply| Tracked { reply, _answering: answering }))
        }
    });
    let ended = {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIME)
            .max_headers(HEADERS)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(&mut link), service);
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = asked(&mut stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    match ended {
        Ok(()) => {}
        // Of HTTP/2 hyper says nothing by itself.
        Err(error) if link.has_held_back() || error.is_parse_version_h2() => {
            let refusal = unreadable(&error);
            front.metrics.request("other", refusal.status);
            if link.say(plain_answer(&refusal).as_bytes()).await.is_err() {
                return;
            }
        }
        // How a connection breaks is the client's affair.
        Err(_) => return,
    }
    tokio::select! {
        () = link.linger() => {}
        () = asked(&mut stop) => {}
    }
}

async fn asked(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|asked| *asked).await;
}

/// What is said of a head that hyper could not read.
fn unreadable(error: &hyper::Error) -> ApiError {
    if error.is_parse_too_large() {
        return headers_too_large();
    }
    ApiError::new(400, "invalid_request_error", "invalid_http", "this is no HTTP/1.1 request")
}

/// A refusal as it goes through the wire, where there is no request that it answers.
fn plain_answer(error: &ApiError) -> String {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = error.body().to_string();
    let retry = error.retry_after.map_or_else(String::new, |seconds| format!("retry-after: {seconds}\r\n"));
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\ncache-control: no-store\r\nserver: fieldfare\r\n{retry}connection: close\r\n\r\n{body}",
        body.len()
    )
}

/// One connection too many: a word, as far as it fits into the socket, and the end.
pub(crate) fn turn_away(stream: &TcpStream) {
    let message = "as many connections are open as may be";
    let error = ApiError::new(503, "unavailable_error", "overloaded", message);
    let _ = stream.try_write(plain_answer(&ApiError { retry_after: Some(1), ..error }).as_bytes());
}
