//! Bodies: reading one within limits, and the two kinds that are sent.

use crate::stream::Events;
use crate::wire::error::ApiError;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Longest time for a whole body.
const WHOLE: Duration = Duration::from_secs(600);

/// What is sent.
pub(crate) enum Reply {
    /// All at once.
    Whole(Option<Bytes>),
    /// A stream of events.
    Events(Box<Events>),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events) => events.poll(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// How much of bodies may lie in memory at once, all clients together.
#[derive(Clone)]
pub(crate) struct Room {
    held: Arc<AtomicUsize>,
    each: usize,
    all: usize,
    /// Longest pause within a body.
    pause: Duration,
}

impl Room {
    /// For bodies of at most `each` bytes that come without pauses longer than `pause`, four of the largest at a time.
    pub(crate) fn new(each: usize, pause: Duration) -> Self {
        Self { held: Arc::default(), each, all: each.saturating_mul(4), pause }
    }

    /// Reads a JSON body.
    ///
    /// # Errors
    /// `unsupported_media_type`, `request_too_large`, `request_timeout`, `overloaded`, and `invalid_json` for one that
    /// breaks off.
    pub(crate) async fn read(&self, parts: &Parts, mut body: Incoming) -> Result<Held, ApiError> {
        check_kind(parts)?;
        if body.size_hint().lower() > self.each as u64 {
            return Err(self.too_large());
        }
        let mut held = Held { bytes: Vec::new(), counted: 0, all: self.held.clone() };
        let end = Instant::now() + WHOLE;
        loop {
            let pause = (Instant::now() + self.pause).min(end);
            let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
            let slow = |_| {
                ApiError::new(408, "invalid_request_error", "request_timeout", "the body came too slowly")
            };
            let frame = match timeout_at(pause, next).await.map_err(slow)? {
                None => return Ok(held),
                Some(Ok(frame)) => frame,
                Some(Err(_)) => return Err(ApiError::json("the body breaks off")),
            };
            let Ok(data) = frame.into_data() else { continue };
            if held.bytes.len() + data.len() > self.each {
                return Err(self.too_large());
            }
            held.counted += data.len();
            if self.held.fetch_add(data.len(), Ordering::Relaxed) + data.len() > self.all {
                let message = "too many large requests at once; try again in a moment";
                let error = ApiError::new(503, "unavailable_error", "overloaded", message);
                return Err(ApiError { retry_after: Some(1), ..error });
            }
            held.bytes.extend_from_slice(&data);
        }
    }

    fn too_large(&self) -> ApiError {
        let message = format!("the body may have at most {} bytes", self.each);
        ApiError::new(413, "invalid_request_error", "request_too_large", message)
    }
}

/// A body in memory, counted for as long as it is there.
pub(crate) struct Held {
    /// What came.
    pub(crate) bytes: Vec<u8>,
    counted: usize,
    all: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// JSON, and not packed. A page of elsewhere cannot send this type without asking first.
fn check_kind(parts: &Parts) -> Result<(), ApiError> {
    let refuse =
        |message| Err(ApiError::new(415, "invalid_request_error", "unsupported_media_type", message));
    let kind = parts.headers.get(header::CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let json = b"application/json";
    if !kind.get(..json.len()).is_some_and(|start| start.eq_ignore_ascii_case(json)) {
        return refuse("the content type must be application/json");
    }
    let packed =
        |packing: &HeaderValue| !packing.is_empty() && !packing.as_bytes().eq_ignore_ascii_case(b"identity");
    if parts.headers.get_all(header::CONTENT_ENCODING).iter().any(packed) {
        return refuse("the body must not be compressed");
    }
    Ok(())
}
