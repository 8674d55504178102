//! A connection as the HTTP layer reads it: with a time for the head of a request, and a longer one between requests.
//!
//! hyper has one time for both, which would either close quiet connections of clients that keep them, or give someone who
//! sends a byte now and then a minute for each. So hyper gets the longer one, and the head is timed here: from the first
//! byte after the end of an answer (or from the beginning) until hyper has handed the request on.

use crate::body::Reply;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Whether a head may be coming in: true until a request was handed on, and again after its answer.
#[derive(Clone, Debug)]
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// A request is here.
    pub(crate) fn over(&self) -> Answering {
        self.0.store(false, Ordering::Relaxed);
        Answering(self.0.clone())
    }
}

/// Until it is dropped a request is being answered.
#[derive(Debug)]
pub(crate) struct Answering(Arc<AtomicBool>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A stream with the time for heads.
pub(crate) struct Link<S> {
    stream: S,
    waiting: Arc<AtomicBool>,
    /// Runs while a head is coming in.
    clock: Option<Pin<Box<Sleep>>>,
    time: Duration,
}

impl<S> Link<S> {
    /// The first head's time begins now.
    pub(crate) fn new(stream: S, time: Duration) -> (Self, Waiting) {
        let waiting = Arc::new(AtomicBool::new(true));
        let clock = Some(Box::pin(sleep(time)));
        (Self { stream, waiting: waiting.clone(), clock, time }, Waiting(waiting))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Link<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let link = self.get_mut();
        if !link.waiting.load(Ordering::Relaxed) {
            link.clock = None;
            return Pin::new(&mut link.stream).poll_read(cx, buffer);
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut link.stream).poll_read(cx, buffer);
        if link.clock.is_none() && buffer.filled().len() > before {
            link.clock = Some(Box::pin(sleep(link.time)));
        }
        if let Some(clock) = &mut link.clock
            && clock.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Link<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// An answer; the connection waits for the next head once it is sent.
pub(crate) struct Tracked {
    /// What is sent.
    pub(crate) reply: Reply,
    /// Ends with it.
    pub(crate) _answering: Answering,
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.get_mut().reply).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    /// A client, and the other side's link.
    async fn pair(listener: &TcpListener, time: Duration) -> (std::net::TcpStream, Link<TcpStream>, Waiting) {
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (link, waiting) = Link::new(listener.accept().await.unwrap().0, time);
        (client, link, waiting)
    }

    async fn byte(link: &mut Link<TcpStream>) -> io::Result<u8> {
        let mut byte = [0; 1];
        std::future::poll_fn(|cx| Pin::new(&mut *link).poll_read(cx, &mut ReadBuf::new(&mut byte))).await?;
        Ok(byte[0])
    }

    #[test]
    fn a_head_has_its_time_and_a_pause_between_requests_another() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let time = Duration::from_millis(120);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (mut client, mut link, waiting) = pair(&listener, time).await;
            client.write_all(b"a").unwrap();
            assert_eq!(byte(&mut link).await.unwrap(), b'a');
            let answering = waiting.over();
            // While it is answered nothing is timed.
            assert!(timeout(3 * time, byte(&mut link)).await.is_err());
            drop(answering);
            // Nor while nothing comes.
            assert!(timeout(3 * time, byte(&mut link)).await.is_err());
            // A head that begins and does not go on is.
            client.write_all(b"b").unwrap();
            assert_eq!(byte(&mut link).await.unwrap(), b'b');
            let start = Instant::now();
            assert_eq!(byte(&mut link).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert!(start.elapsed() >= time / 2);
            // And so is the first one, from the beginning.
            let (_client, mut link, _) = pair(&listener, time).await;
            assert_eq!(byte(&mut link).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }
}
