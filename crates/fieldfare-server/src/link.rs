//! A connection as the HTTP layer sees it: with a time for the head of a request, a longer one between requests, and one
//! for a client that does not read what it is sent.
//!
//! hyper has one time for both, which would either close quiet connections of clients that keep them, or give someone who
//! sends a byte now and then a minute for each. So hyper gets the longer one, and the head is timed here: from the first
//! byte after the end of an answer (or from the beginning) until hyper has handed the request on.
//! What is written is timed while nothing of it goes out: whoever stops reading would keep his connection for ever.

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

/// The times that a link keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// From the first byte of a head to its end.
    pub(crate) head: Duration,
    /// In which something of what is written must go out.
    pub(crate) write: Duration,
}

/// A stream with the times for heads and for writing.
pub(crate) struct Link<S> {
    stream: S,
    waiting: Arc<AtomicBool>,
    /// Runs while a head is coming in.
    clock: Option<Pin<Box<Sleep>>>,
    /// Runs while what is written does not go out.
    stuck: Option<Pin<Box<Sleep>>>,
    times: Times,
}

impl<S> Link<S> {
    /// The first head's time begins now.
    pub(crate) fn new(stream: S, times: Times) -> (Self, Waiting) {
        let waiting = Arc::new(AtomicBool::new(true));
        let clock = Some(Box::pin(sleep(times.head)));
        (Self { stream, waiting: waiting.clone(), clock, stuck: None, times }, Waiting(waiting))
    }

    /// What came of writing; an error once nothing has gone out for as long as may be.
    fn timed<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stuck = None;
            return polled;
        }
        let time = self.times.write;
        let clock = self.stuck.get_or_insert_with(|| Box::pin(sleep(time)));
        clock.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
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
            link.clock = Some(Box::pin(sleep(link.times.head)));
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
        let link = self.get_mut();
        let polled = Pin::new(&mut link.stream).poll_write(cx, bytes);
        link.timed(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let link = self.get_mut();
        let polled = Pin::new(&mut link.stream).poll_write_vectored(cx, slices);
        link.timed(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let link = self.get_mut();
        let polled = Pin::new(&mut link.stream).poll_flush(cx);
        link.timed(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let link = self.get_mut();
        let polled = Pin::new(&mut link.stream).poll_shutdown(cx);
        link.timed(cx, polled)
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
    use std::io::{Read as _, Write as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    /// A client, and the other side's link.
    async fn pair(listener: &TcpListener, time: Duration) -> (std::net::TcpStream, Link<TcpStream>, Waiting) {
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (link, waiting) =
            Link::new(listener.accept().await.unwrap().0, Times { head: time, write: time });
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

    #[test]
    fn whoever_does_not_read_has_his_time_and_whoever_reads_slowly_goes_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let time = Duration::from_millis(150);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (mut client, mut link, _waiting) = pair(&listener, time).await;
            // A reader that now and then takes some of it, for longer than the time.
            let reader = std::thread::spawn(move || {
                let mut room = vec![0; 8 << 20];
                for _ in 0..8 {
                    std::thread::sleep(time / 3);
                    assert!(client.read(&mut room).unwrap() > 0);
                }
                client
            });
            let chunk = vec![0; 1 << 20];
            let start = Instant::now();
            let mut sent = start;
            let end = loop {
                match std::future::poll_fn(|cx| Pin::new(&mut link).poll_write(cx, &chunk)).await {
                    Ok(_) => sent = Instant::now(),
                    Err(error) => break error,
                }
            };
            assert_eq!(end.kind(), io::ErrorKind::TimedOut);
            assert!(sent.elapsed() >= time / 2 && start.elapsed() > 2 * time, "{:?}", start.elapsed());
            // The same of pieces and of what is flushed; while nothing is pending there is no clock.
            let slices = [io::IoSlice::new(&chunk)];
            let pieces =
                std::future::poll_fn(|cx| Pin::new(&mut link).poll_write_vectored(cx, &slices)).await;
            assert_eq!(pieces.unwrap_err().kind(), io::ErrorKind::TimedOut);
            std::future::poll_fn(|cx| Pin::new(&mut link).poll_flush(cx)).await.unwrap();
            assert!(link.stuck.is_none());
            drop(reader.join().unwrap());
        });
    }

    /// Takes what is written and never gets rid of it.
    struct Full;

    impl AsyncWrite for Full {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[test]
    fn what_is_never_flushed_is_timed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let time = Duration::from_millis(50);
            let (mut link, _waiting) = Link::new(Full, Times { head: time, write: time });
            let start = Instant::now();
            let flushed = std::future::poll_fn(|cx| Pin::new(&mut link).poll_flush(cx)).await;
            assert_eq!(flushed.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert!(start.elapsed() >= time);
        });
    }
}
