//! A local server that speaks the OpenAI API: `fieldfare serve` as a library.
//!
//! [`bind`] takes the port before the model is opened, so that a taken one is told at once; [`Bound::listen`] says "in a
//! moment" to whoever comes meanwhile, and [`Serving::run`] then answers until it is told to stop. The asynchronous runtime lives in this crate and nowhere else.
//!
//! ```text
//! wire      JSON in, checked requests out; answers in, JSON out (pure)
//! guard     names, origins, keys (pure)
//! body      reading and sending within limits
//! door      the line in front of the engine's thread, cancellation
//! binder    grammars within the memory for them, and who waits for it
//! choices   the answers of one request
//! stream    an answer as events
//! handlers  routes
//! spelling  text, ids and prompts
//! metrics   counters, log
//! page      the page for browsers
//! connection  one connection, from its first request to its close
//! link      its bytes: times, and what hyper says by itself
//! clock     a time that is up some time after it was set
//! tls       certificates
//! serve     sockets, limits of connections, the end
//! ```

mod binder;
mod body;
mod choices;
mod clock;
mod connection;
mod door;
mod guard;
mod handlers;
mod link;
mod metrics;
mod page;
mod serve;
mod spelling;
mod stream;
mod tls;
pub mod wire;

pub use door::{Model, Readings, Running};
pub use metrics::Log;
pub use serve::{Bound, Facts, Listening, Options, Serving, StartError, Stop, bind};
pub use tls::TlsFiles;
