//! A connection as the HTTP layer sees it: with a time for the head of a request, a longer one between requests, and one
//! for a client that does not read what it is sent.
//!
//! hyper has one time for both, which would either close quiet connections of clients that keep them, or give someone who
//! sends a byte now and then a minute for each. So hyper gets the longer one, and the head is timed here: from the first
//! byte after the end of an answer (or from the beginning) until hyper has handed the request on.
//! What is written is timed while nothing of it goes out: whoever stops reading would keep his connection for ever.

use crate::body::Reply;
use crate::clock::Clock;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
    head: Clock,
    /// Runs while what is written does not go out.
    stuck: Clock,
    times: Times,
}

impl<S> Link<S> {
    /// The first head's time begins now.
    pub(crate) fn new(stream: S, times: Times) -> (Self, Waiting) {
        let waiting = Arc::new(AtomicBool::new(true));
        let mut head = Clock::default();
        head.set(times.head);
        (Self { stream, waiting: waiting.clone(), head, stuck: Clock::default(), times }, Waiting(waiting))
    }

    /// What came of writing; an error once nothing has gone out for as long as may be.
    fn timed<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stuck.stop();
            return polled;
        }
        self.stuck.start(self.times.write);
        if self.stuck.is_up(cx) { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { Poll::Pending }
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
            link.head.stop();
            return Pin::new(&mut link.stream).poll_read(cx, buffer);
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut link.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            link.head.start(link.times.head);
        }
        if link.head.is_up(cx) {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::{Instant, sleep, timeout};

    const TIME: Duration = Duration::from_secs(10);

    /// Runs a test on a clock of its own, which goes on to the next moment that somebody waits for once nobody has anything
    /// to do: times are exact, and none has to pass.
    fn at_rest(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(test);
    }

    /// A client, and the other side's link; this much may be on the way between them.
    fn pair(room: usize) -> (DuplexStream, Link<DuplexStream>, Waiting) {
        let (client, server) = duplex(room);
        let (link, waiting) = Link::new(server, Times { head: TIME, write: TIME });
        (client, link, waiting)
    }

    #[test]
    fn a_head_has_its_time_and_a_pause_between_requests_another() {
        at_rest(async {
            let (mut client, mut link, waiting) = pair(64);
            client.write_all(b"a").await.unwrap();
            assert_eq!(link.read_u8().await.unwrap(), b'a');
            let answering = waiting.over();
            // While it is answered nothing is timed.
            assert!(timeout(3 * TIME, link.read_u8()).await.is_err());
            drop(answering);
            // Nor while nothing comes.
            assert!(timeout(3 * TIME, link.read_u8()).await.is_err());
            // A head that begins and does not go on is, and a byte now and then buys no time.
            let start = Instant::now();
            let dripping = async {
                for _ in 0..4 {
                    client.write_all(b"b").await.unwrap();
                    sleep(TIME / 3).await;
                }
            };
            let reading = async {
                loop {
                    if let Err(error) = link.read_u8().await {
                        return (error, start.elapsed());
                    }
                }
            };
            let ((), (error, took)) = tokio::join!(dripping, reading);
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!((TIME..TIME * 11 / 10).contains(&took), "{took:?}");
            // And so is the first one, from the beginning.
            let (_client, mut link, _waiting) = pair(64);
            let start = Instant::now();
            assert_eq!(link.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert!((TIME..TIME * 11 / 10).contains(&start.elapsed()), "{:?}", start.elapsed());
        });
    }

    #[test]
    fn whoever_does_not_read_has_his_time_and_whoever_reads_slowly_goes_on() {
        at_rest(async {
            let (mut client, mut link, _waiting) = pair(16);
            // A reader that now and then takes some of it, for longer than the time, and then no more.
            let reading = async {
                let mut room = [0; 16];
                for _ in 0..8 {
                    sleep(TIME / 3).await;
                    assert!(client.read(&mut room).await.unwrap() > 0);
                }
                Instant::now()
            };
            let writing = async {
                loop {
                    if let Err(error) = link.write(&[0; 64]).await {
                        return (error, Instant::now());
                    }
                }
            };
            let (last_read, (error, end)) = tokio::join!(reading, writing);
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            let after = end - last_read;
            assert!(
                (TIME..TIME * 11 / 10).contains(&after),
                "{after:?} after something was taken for the last time"
            );
            // The same of pieces.
            let slices = [io::IoSlice::new(&[0; 64])];
            let error = link.write_vectored(&slices).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            // While nothing is pending there is no clock.
            assert!(link.stuck.runs());
            assert!(client.read(&mut [0; 16]).await.unwrap() > 0);
            assert!(link.write(&[0]).await.is_ok());
            assert!(!link.stuck.runs());
            drop(client);
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
        at_rest(async {
            let (mut link, _waiting) = Link::new(Full, Times { head: TIME, write: TIME });
            for shutting in [false, true] {
                let start = Instant::now();
                let ended = if shutting { link.shutdown().await } else { link.flush().await };
                assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
                assert!(start.elapsed() >= TIME && start.elapsed() < TIME * 11 / 10, "{:?}", start.elapsed());
                link.stuck.stop();
            }
        });
    }
}
