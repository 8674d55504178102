//! A connection as the HTTP layer sees it: with a time for the head of a request, a longer one between requests, and one
//! for a client that does not read what it is sent.
//!
//! hyper has one time for both, which would either close quiet connections of clients that keep them, or give someone who
//! sends a byte now and then a minute for each. So hyper gets the longer one, and the head is timed here: from the first
//! byte after the end of an answer (or from the beginning) until hyper has handed the request on.
//! What is written is timed while nothing of it goes out: whoever stops reading would keep his connection for ever.
//!
//! A head that hyper cannot read it answers by itself, with a status and nothing else. What is written while no request is
//! in hand and all of the last answer has gone out can only be that. It is held back, so that the server can say it in its
//! own words once hyper has given up ([`Link::say`]).

use crate::body::Reply;
use crate::clock::Clock;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// Longest time for what a client still sends after the last word; it is thrown away.
const LINGER: Duration = Duration::from_secs(30);
/// Longest pause in that.
const LINGER_PAUSE: Duration = Duration::from_secs(5);

/// No request is in hand, and nothing is to be written: a head may be coming in.
const RESTING: u8 = 0;
/// A request is being answered.
const ANSWERING: u8 = 1;
/// The answer is made and may not have gone out yet; the next head may be coming in.
const ANSWERED: u8 = 2;

/// Whether a head may be coming in: until a request was handed on, and again after its answer.
#[derive(Clone, Debug)]
pub(crate) struct Waiting(Arc<AtomicU8>);

impl Waiting {
    /// A request is here.
    pub(crate) fn over(&self) -> Answering {
        self.0.store(ANSWERING, Ordering::Relaxed);
        Answering(self.0.clone())
    }
}

/// Until it is dropped a request is being answered.
#[derive(Debug)]
pub(crate) struct Answering(Arc<AtomicU8>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.store(ANSWERED, Ordering::Relaxed);
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
    /// One of `RESTING`, `ANSWERING` and `ANSWERED`.
    phase: Arc<AtomicU8>,
    /// hyper said something by itself, and it was not passed on.
    held_back: bool,
    /// The client has sent all that it will.
    ended: bool,
    /// Runs while a head is coming in.
    head: Clock,
    /// Runs while what is written does not go out.
    stuck: Clock,
    times: Times,
}

impl<S> Link<S> {
    /// The first head's time begins now.
    pub(crate) fn new(stream: S, times: Times) -> (Self, Waiting) {
        let phase = Arc::new(AtomicU8::new(RESTING));
        let mut head = Clock::default();
        head.set(times.head);
        let waiting = Waiting(phase.clone());
        let stuck = Clock::default();
        (Self { stream, phase, held_back: false, ended: false, head, stuck, times }, waiting)
    }

    fn is(&self, phase: u8) -> bool {
        self.phase.load(Ordering::Relaxed) == phase
    }

    /// Whether what is written now are hyper's own words; they are held back.
    fn holds_back(&mut self) -> bool {
        self.held_back |= self.is(RESTING);
        self.held_back
    }

    /// Whether hyper said something by itself, which the client has not seen.
    pub(crate) fn has_held_back(&self) -> bool {
        self.held_back
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

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    /// Says this in place of what was held back, and that nothing will follow.
    ///
    /// # Errors
    /// The client is gone, or does not read.
    pub(crate) async fn say(&mut self, answer: &[u8]) -> io::Result<()> {
        self.held_back = false;
        self.phase.store(ANSWERING, Ordering::Relaxed);
        self.write_all(answer).await?;
        self.shutdown().await
    }

    /// Reads and forgets what the client still sends, for a while. To close a connection on which something is unread is
    /// to reset it, and a client that sends on would lose the answer.
    pub(crate) async fn linger(&mut self) {
        if self.ended {
            return;
        }
        let rest = async {
            let mut room = [0; 4096];
            while matches!(timeout(LINGER_PAUSE, self.stream.read(&mut room)).await, Ok(Ok(1..))) {}
        };
        // Whoever sends on and on has had his answer.
        let _ = timeout(LINGER, rest).await;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Link<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let link = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut link.stream).poll_read(cx, buffer);
        let more = buffer.filled().len() > before;
        link.ended |= polled.is_ready() && !more && buffer.remaining() > 0;
        if link.is(ANSWERING) {
            link.head.stop();
            return polled;
        }
        if more {
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
        if link.holds_back() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut link.stream).poll_write(cx, bytes);
        link.timed(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let link = self.get_mut();
        if link.holds_back() {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let polled = Pin::new(&mut link.stream).poll_write_vectored(cx, slices);
        link.timed(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let link = self.get_mut();
        // hyper flushes when it has nothing left to write.
        if link.is(ANSWERED) {
            link.phase.store(RESTING, Ordering::Relaxed);
        }
        let polled = Pin::new(&mut link.stream).poll_flush(cx);
        link.timed(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let link = self.get_mut();
        if link.held_back {
            return Poll::Ready(Ok(()));
        }
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
            let (mut client, mut link, waiting) = pair(16);
            let _answering = waiting.over();
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

    #[test]
    fn what_hyper_says_by_itself_is_held_back() {
        at_rest(async {
            // Of the first head nothing could be read.
            let (mut client, mut link, _waiting) = pair(64);
            link.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            link.flush().await.unwrap();
            link.shutdown().await.unwrap();
            assert!(link.has_held_back());
            link.say(b"no").await.unwrap();
            let mut said = Vec::new();
            client.read_to_end(&mut said).await.unwrap();
            assert_eq!(said, b"no");
            // An answer goes through, though hyper is through with it before it is written; what comes after does not.
            let (mut client, mut link, waiting) = pair(64);
            drop(waiting.over());
            link.write_all(b"an answer").await.unwrap();
            assert!(!link.has_held_back());
            link.flush().await.unwrap();
            let slices = [io::IoSlice::new(b"HTTP/1.1 "), io::IoSlice::new(b"431")];
            assert_eq!(link.write_vectored(&slices).await.unwrap(), 12);
            assert!(link.has_held_back());
            // Nothing is held back while a request is in hand.
            let (mut other, mut second, waiting) = pair(64);
            let answering = waiting.over();
            second.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
            second.flush().await.unwrap();
            second.write_all(b"an answer").await.unwrap();
            drop(answering);
            drop((link, second));
            let (mut first, mut rest) = (Vec::new(), Vec::new());
            client.read_to_end(&mut first).await.unwrap();
            other.read_to_end(&mut rest).await.unwrap();
            assert_eq!(first, b"an answer");
            assert_eq!(rest, b"HTTP/1.1 100 Continue\r\n\r\nan answer");
        });
    }

    #[test]
    fn what_is_still_sent_is_taken_for_a_while() {
        at_rest(async {
            // Whoever closes is not waited for.
            let (client, mut link, _waiting) = pair(64);
            let start = Instant::now();
            let closing = async {
                let mut client = client;
                client.write_all(&[0; 1000]).await.unwrap();
            };
            tokio::join!(closing, link.linger());
            assert_eq!(start.elapsed(), Duration::ZERO);
            // Nor is he who has sent all before, nor for long whoever says nothing,
            let (client, mut link, _waiting) = pair(64);
            drop(client);
            assert_eq!(link.read(&mut [0; 8]).await.unwrap(), 0);
            link.linger().await;
            assert_eq!(start.elapsed(), Duration::ZERO);
            let (_client, mut link, _waiting) = pair(64);
            link.linger().await;
            assert!((LINGER_PAUSE..LINGER).contains(&start.elapsed()), "{:?}", start.elapsed());
            // nor for ever whoever sends on.
            let (mut client, mut link, _waiting) = pair(64);
            let start = Instant::now();
            let sending = async {
                while client.write_all(b"x").await.is_ok() {
                    sleep(LINGER_PAUSE / 2).await;
                }
            };
            tokio::select! {
                () = sending => panic!("it is still open"),
                () = link.linger() => {}
            }
            assert!((LINGER..LINGER * 11 / 10).contains(&start.elapsed()), "{:?}", start.elapsed());
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
            let (mut link, waiting) = Link::new(Full, Times { head: TIME, write: TIME });
            let _answering = waiting.over();
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
