//! Sockets: taking the port, taking connections within limits, and the end.

use crate::binder::Binder;
use crate::body::Room;
use crate::connection::{connection, turn_away};
use crate::door::{Door, Model};
use crate::guard::Guard;
use crate::handlers::{App, Front};
use crate::link::Times;
use crate::metrics::{Log, Metrics};
use crate::stream::KEEP_ALIVE;
use crate::tls::{self, TlsFiles};
use crate::wire::chat::Served;
use fieldfare::engine::Engine;
use fieldfare::format::{self, ModelDir};
use fieldfare::grammar::{self, Grammars};
use fieldfare::sample::Sampling;
use fieldfare::store::Board;
use fieldfare::tokenizer::Tokenizer;
use serde_json::Value;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream as StdStream};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Longest time for the headers of a request, and for TLS to be agreed on; a connection without one is closed after it.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// How long a client may take nothing of what it is sent.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most connections.
const CONNECTIONS: usize = 256;
/// Largest configuration of a model that is looked at.
const MAX_CONFIG: u64 = 4 << 20;
/// How long connections may take to close once all answers are made.
const FAREWELL: Duration = Duration::from_secs(1);

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address.
    pub host: IpAddr,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// The key that requests must show.
    pub api_key: Option<String>,
    /// Origins whose web pages may use the server; `localhost` is any page of this machine.
    pub cors: Vec<String>,
    /// Further names that the server goes by.
    pub allowed_hosts: Vec<String>,
    /// Further names of the model.
    pub aliases: Vec<String>,
    /// Requests that may run side by side.
    pub parallel: usize,
    /// Requests that may wait beside those that run.
    pub queue: usize,
    /// Largest body in bytes.
    pub max_body: usize,
    /// Longest pause within a body.
    pub body_pause: Duration,
    /// The model answers to every name.
    pub any_model: bool,
    /// Thoughts go out as `reasoning` too, beside `reasoning_content`.
    pub both_reasoning: bool,
    /// How tokens are chosen where a request does not say.
    pub sampling: Sampling,
    /// Whether the model thinks where a request does not say.
    pub thinking: bool,
    /// How long running answers may go on after the end was asked for.
    pub grace: Duration,
    /// Pause after which a stream gives a sign of life.
    pub keep_alive: Duration,
    /// Longest time for the headers of a request.
    pub head_time: Duration,
    /// Longest time that a client may take nothing of what it is sent.
    pub read_pause: Duration,
    /// Longest time for an answer from its first token on; then it ends as one that is as long as it may be.
    pub max_generation: Option<Duration>,
    /// Memory for grammars, all at once; a request for whose grammar there is none now waits.
    pub grammar_bytes: u64,
    /// Speak TLS.
    pub tls: Option<TlsFiles>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: Ipv4Addr::LOCALHOST.into(),
            port: 8080,
            api_key: None,
            cors: Vec::new(),
            allowed_hosts: Vec::new(),
            aliases: Vec::new(),
            parallel: 1,
            queue: 4,
            max_body: 16 << 20,
            body_pause: Duration::from_secs(60),
            any_model: false,
            both_reasoning: false,
            sampling: Sampling::default(),
            thinking: false,
            grace: Duration::from_secs(5),
            keep_alive: KEEP_ALIVE,
            head_time: HEADER_TIME,
            read_pause: PATIENCE,
            max_generation: None,
            grammar_bytes: grammar::BYTES,
            tls: None,
        }
    }
}

/// Why there is no server.
#[derive(Debug)]
pub enum StartError {
    /// Something was asked for that is not safe or makes no sense.
    Usage {
        /// One line.
        message: String,
        /// The remedy.
        hint: String,
    },
    /// The system refused.
    Failed {
        /// One line.
        message: String,
        /// The remedy.
        hint: String,
    },
}

/// Ends a server, from any thread. Clones share the request.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Asks.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// What a server tells of its model.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The model's name.
    pub id: String,
    /// Text to ids and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Number of token ids.
    pub vocabulary: usize,
    /// Tokens of prompt and answer together.
    pub context: usize,
    /// Tokens of context that the model was made for, where it says so.
    pub trained_context: Option<u64>,
    /// Bytes of its files.
    pub size: u64,
    /// Its numbers, quantized or not.
    pub parameters: u64,
    /// Names weights and program, for `system_fingerprint`.
    pub fingerprint: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Which of its experts are in memory.
    pub board: Option<Arc<Board>>,
}

impl Facts {
    /// The facts of an open model, named as its directory without `.gturbo`.
    ///
    /// # Errors
    /// It has no tokenizer.
    pub fn of(engine: &Engine) -> fieldfare::Result<Self> {
        let path = engine.model_dir().path();
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let modified = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            id: name.strip_suffix(".gturbo").unwrap_or(&name).to_owned(),
            tokenizer: engine.tokenizer()?.clone(),
            vocabulary: engine.vocab_size(),
            context: engine.max_context(),
            trained_context: trained_context(engine.model_dir()),
            size: engine.model_dir().manifest().files.values().map(|file| file.size).sum(),
            parameters: format::parameters(engine.model_dir())?,
            fingerprint: fingerprint(&engine.model_dir().manifest_sha256()),
            created: since.map_or(0, |since| since.as_secs()),
            board: Some(engine.board()),
        })
    }
}

/// `max_position_embeddings` of the model's configuration.
fn trained_context(dir: &ModelDir) -> Option<u64> {
    let config: Value = serde_json::from_slice(&dir.read_sidecar("config.json", MAX_CONFIG).ok()??).ok()?;
    let text = config.get("text_config").unwrap_or(&config);
    text.get("max_position_embeddings")?.as_u64()
}

/// The same for the same weights and the same version of this program.
fn fingerprint(weights: &[u8; 32]) -> String {
    let weights: String = weights[..5].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("fp_{}_{weights}", env!("CARGO_PKG_VERSION").replace('.', "_"))
}

/// A port that is taken, before the model is open.
#[derive(Debug)]
pub struct Bound {
    listener: std::net::TcpListener,
    address: SocketAddr,
    options: Options,
    tls: Option<Arc<ServerConfig>>,
}

/// Takes the port.
///
/// # Errors
/// An address that others reach, without a key; a port that is taken; whatever the system says.
pub fn bind(options: Options) -> Result<Bound, StartError> {
    let wanted = SocketAddr::new(options.host, options.port);
    if options.api_key.as_ref().is_some_and(|key| key.trim().is_empty()) {
        return Err(StartError::Usage {
            message: "the API key is empty".to_owned(),
            hint: "give one of at least a dozen random characters".to_owned(),
        });
    }
    if !options.host.is_loopback() && options.api_key.is_none() {
        return Err(StartError::Usage {
            message: format!("{} is reached from other machines, and there is no API key", options.host),
            hint: "set FIELDFARE_API_KEY, or stay on 127.0.0.1".to_owned(),
        });
    }
    let tls = options.tls.as_ref().map(tls::config).transpose().map_err(|message| StartError::Failed {
        message,
        hint: "--tls-cert takes a chain of certificates, --tls-key its private key, both as PEM".to_owned(),
    })?;
    let failed = |error: std::io::Error| refused(wanted, &error);
    let listener = std::net::TcpListener::bind(wanted).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(Bound { listener, address, options, tls })
}

fn refused(address: SocketAddr, error: &std::io::Error) -> StartError {
    if error.kind() != std::io::ErrorKind::AddrInUse {
        let message = format!("cannot listen on {address}: {error}");
        return StartError::Failed { message, hint: "choose another --host or --port".to_owned() };
    }
    let by = if is_ours(address) { "another fieldfare server" } else { "another program" };
    StartError::Failed {
        message: format!("port {} is taken by {by}", address.port()),
        hint: format!("use that one, or choose another: --port {}", address.port().wrapping_add(1).max(1024)),
    }
}

/// Whether a server of this kind answers there. It may be busy; what says nothing for so long is taken for another program.
fn is_ours(address: SocketAddr) -> bool {
    const PATIENCE: Duration = Duration::from_secs(2);
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut stream = StdStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut seen = vec![0; 4096];
        let mut len = 0;
        while len < seen.len() {
            match stream.read(&mut seen[len..]) {
                Ok(0) | Err(_) => break,
                Ok(more) => len += more,
            }
        }
        seen.truncate(len);
        Ok(seen)
    };
    ask().is_ok_and(|seen| seen.windows(17).any(|window| window.eq_ignore_ascii_case(b"server: fieldfare")))
}

impl Bound {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Opens the port: whoever comes is told that the model is being loaded, until [`Listening::open`] has it.
    ///
    /// # Errors
    /// The system gives no threads or no socket.
    pub fn listen(self, stop: &Stop, log: Log) -> std::io::Result<Listening> {
        let mut listening = self.prepare(stop, log)?;
        listening.start();
        Ok(listening)
    }

    /// Serves a model that is open until `stop` is asked for, and until what ran then has ended.
    ///
    /// # Errors
    /// The system gives no threads or no socket.
    pub fn serve(self, model: impl Model, facts: Facts, stop: &Stop, log: Log) -> std::io::Result<()> {
        self.prepare(stop, log)?.open(model, facts)?.run()
    }

    fn prepare(self, stop: &Stop, log: Log) -> std::io::Result<Listening> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (address, scheme, options) = (self.address, self.scheme(), self.options);
        let guard = Guard {
            loopback: address.ip().is_loopback(),
            hosts: options.allowed_hosts.clone(),
            key: options.api_key.clone(),
            origins: options.cors.clone(),
        };
        let front = Arc::new(Front { guard, metrics: Arc::new(Metrics::new(log)), app: OnceLock::new() });
        let tls = self.tls.map(TlsAcceptor::from);
        let times = Times { head: options.head_time, write: options.read_pause };
        let accept = run(self.listener, tls, front.clone(), stop.0.subscribe(), options.grace, times);
        Ok(Listening { runtime, front, accept: Accept::Ready(Box::pin(accept)), address, scheme, options })
    }
}

/// Taking connections: not begun, or going on.
enum Accept {
    Ready(Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>),
    Going(JoinHandle<std::io::Result<()>>),
}

/// A server without its model. Dropped, it closes the port.
pub struct Listening {
    runtime: Runtime,
    front: Arc<Front>,
    accept: Accept,
    address: SocketAddr,
    scheme: &'static str,
    options: Options,
}

impl Listening {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    fn start(&mut self) {
        let going = |accept| match accept {
            Accept::Ready(future) => Accept::Going(self.runtime.spawn(future)),
            going @ Accept::Going(_) => going,
        };
        let nothing = Accept::Ready(Box::pin(async { Ok(()) }));
        self.accept = going(std::mem::replace(&mut self.accept, nothing));
    }

    /// With so many requests side by side, now that the model's memory is known.
    #[must_use]
    pub fn side_by_side(mut self, parallel: usize) -> Self {
        self.options.parallel = parallel;
        self
    }

    /// Answers with this model from now on.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn open(mut self, model: impl Model, facts: Facts) -> std::io::Result<Serving> {
        let (options, metrics) = (self.options.clone(), self.front.metrics.clone());
        let places = (options.parallel.max(1), options.queue);
        let (patience, runtime) = (options.read_pause, self.runtime.handle().clone());
        let (door, thread) = Door::open(patience, model, places, metrics.clone(), runtime)?;
        let served = Served {
            id: facts.id,
            aliases: options.aliases,
            any_name: options.any_model,
            vocabulary: facts.vocabulary,
            context: facts.context,
            sampling: options.sampling,
            thinking: options.thinking,
        };
        let app = App {
            door: door.clone(),
            binder: Binder::new(Grammars::new(facts.tokenizer.clone()), options.grammar_bytes),
            tokenizer: facts.tokenizer,
            parallel: options.parallel,
            served,
            room: Room::new(options.max_body, options.body_pause),
            metrics,
            created: facts.created,
            trained_context: facts.trained_context,
            size: facts.size,
            parameters: facts.parameters,
            max_generation: options.max_generation,
            fingerprint: facts.fingerprint,
            board: facts.board,
            keep_alive: options.keep_alive,
            both_reasoning: options.both_reasoning,
        };
        // There was none before.
        let _ = self.front.app.set(Arc::new(app));
        self.start();
        Ok(Serving { listening: self, door, thread })
    }
}

/// A server with its model.
pub struct Serving {
    listening: Listening,
    door: Door,
    thread: std::thread::JoinHandle<()>,
}

impl Serving {
    /// Serves until the stop is asked for, and until what ran then has ended.
    ///
    /// # Errors
    /// The system gives no socket.
    pub fn run(self) -> std::io::Result<()> {
        let Listening { runtime, accept, .. } = self.listening;
        let result = match accept {
            Accept::Ready(future) => runtime.block_on(future),
            Accept::Going(task) => {
                runtime.block_on(task).unwrap_or_else(|error| Err(std::io::Error::other(error)))
            }
        };
        self.door.close();
        self.door.abort();
        let ended = self.thread.join();
        runtime.shutdown_timeout(FAREWELL);
        // The thread catches the panics of the model; its own would be a fault of this crate.
        ended.map_err(|_| std::io::Error::other("the engine's thread panicked"))?;
        result
    }
}

async fn run(
    listener: std::net::TcpListener,
    tls: Option<TlsAcceptor>,
    front: Arc<Front>,
    mut stop: watch::Receiver<bool>,
    grace: Duration,
    times: Times,
) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|asked| *asked) => break,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, or a client that is gone already: neither is a reason to end or to spin.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        match connections.clone().try_acquire_owned() {
            Ok(permit) => {
                let (front, stop, tls) = (front.clone(), stop.clone(), tls.clone());
                tokio::spawn(async move {
                    // Events are small and wanted at once.
                    let _ = stream.set_nodelay(true);
                    match tls {
                        None => connection(stream, front, stop, times).await,
                        Some(tls) => {
                            if let Ok(Ok(stream)) = timeout(times.head, tls.accept(stream)).await {
                                connection(stream, front, stop, times).await;
                            }
                        }
                    }
                    drop(permit);
                });
            }
            Err(_) if tls.is_some() => drop(stream),
            Err(_) => turn_away(&stream),
        }
    }
    drop(listener);
    front.metrics.log(&farewell(front.load(), grace));
    let door = front.app.get().map(|app| &app.door);
    if let Some(app) = front.app.get() {
        app.door.close();
        app.binder.close();
    }
    let all = connections.acquire_many(CONNECTIONS as u32);
    let mut all = pin!(all);
    if timeout(grace, &mut all).await.is_err() {
        if let Some(door) = door {
            door.abort();
        }
        // Whoever still reads slowly, or does not read, has had his time.
        let _ = timeout(FAREWELL, &mut all).await;
    }
    Ok(())
}

/// What the end waits for, in words.
fn farewell((running, waiting): (usize, usize), grace: Duration) -> String {
    let requests = |count: usize| format!("{count} {}", if count == 1 { "request" } else { "requests" });
    let mut line = match running {
        0 => "ending".to_owned(),
        _ => format!(
            "ending: finishing {}, for {} s at most; Ctrl-C again ends at once",
            requests(running),
            grace.as_secs_f64()
        ),
    };
    if waiting > 0 {
        line.push_str(&format!("; {} in the line sent away", requests(waiting)));
    }
    line
}
