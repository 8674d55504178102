//! `fieldfare-lab load`: many clients at a running server, half of which vanish at some moment: whether places in the line
//! come back, memory stays where it is and `/health` answers soon. The server is started apart, so that it is measured alone.

use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes by which memory may grow after the first part of the time.
const GROWTH: f64 = 5e6;
/// Time in which 99 of 100 answers of `/health` must come.
const HEALTH: Duration = Duration::from_millis(50);

/// The load.
#[derive(Args)]
pub(crate) struct Options {
    /// Where the server listens
    #[arg(long, default_value = "127.0.0.1:8080")]
    address: SocketAddr,
    /// Clients at a time
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Seed of who does what when
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Default)]
struct Seen {
    /// Requests by how they ended: the status, `left`, `broken`.
    ends: BTreeMap<String, u64>,
    /// Streams that did not end as they should.
    torn: u64,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }
}

/// Runs the load; false if something is not as it has to be.
pub(crate) fn run(options: &Options) -> Result<bool> {
    get(options.address, "/health").context("no server answers")?;
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let (seen, over) = (Mutex::new(Seen::default()), AtomicBool::new(false));
    let (mut waits, mut memory) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        for client in 0..options.clients {
            let (seen, over) = (&seen, &over);
            let mut random =
                Random(options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + client as u64 * 7919 + 1);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let (what, torn) = one(options.address, &mut random);
                    let mut seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    *seen.ends.entry(what).or_default() += 1;
                    seen.torn += u64::from(torn);
                }
            });
        }
        while Instant::now() < end {
            let asked = Instant::now();
            let answered =
                get(options.address, "/health").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
            waits.push(if answered { asked.elapsed() } else { Duration::MAX });
            if let Ok(Some(bytes)) = metric(options.address, "fieldfare_resident_memory_bytes") {
                memory.push(bytes);
            }
            thread::sleep(Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
    });
    let seen = seen.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    judge(options.address, &seen, waits, &memory)
}

fn judge(address: SocketAddr, seen: &Seen, mut waits: Vec<Duration>, memory: &[f64]) -> Result<bool> {
    // Whatever still runs was left by its client, and ends within a token or a layer.
    let idle = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(100));
        let of = |name| metric(address, name).ok().flatten();
        of("fieldfare_requests_running") == Some(0.0) && of("fieldfare_requests_waiting") == Some(0.0)
    });
    let (last, _) = whole(address, &body(3), None)?;
    waits.sort_unstable();
    let p99 = waits.get(waits.len().saturating_sub(1) * 99 / 100).copied().unwrap_or(Duration::MAX);
    let (early, late) = memory.split_at(memory.len() / 5);
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let growth = most(late) - most(early);
    for (end, count) in &seen.ends {
        println!("{count:>8} {end}");
    }
    println!("{:>8} streams without their end", seen.torn);
    println!(
        "health: {} asked, p99 {:.1} ms, longest {:.1} ms",
        waits.len(),
        1e3 * p99.as_secs_f64(),
        1e3 * waits.last().map_or(0.0, Duration::as_secs_f64)
    );
    println!("memory: {:.1} MB in the first fifth, {:+.1} MB after it", most(early) / 1e6, growth / 1e6);
    println!("afterwards: {}, an answer {last}", if idle { "idle" } else { "still busy" });
    Ok(p99 <= HEALTH && growth <= GROWTH && idle && last == "200" && seen.torn == 0)
}

fn body(tokens: u64) -> String {
    format!(
        r#"{{"model":"default","stream":true,"max_tokens":{tokens},"messages":[{{"role":"user","content":"Tell me of {tokens} things."}}]}}"#
    )
}

/// One client: asks, and in half of all cases goes away at some moment.
fn one(address: SocketAddr, random: &mut Random) -> (String, bool) {
    let body = body(1 + random.below(40));
    let leaves = (random.below(2) == 0).then(|| Duration::from_millis(random.below(1500)));
    match whole(address, &body, leaves) {
        Ok(end) => end,
        Err(_) => {
            thread::sleep(Duration::from_millis(50));
            ("broken".to_owned(), false)
        }
    }
}

/// Status, and whether a stream lacked its end.
fn whole(address: SocketAddr, body: &str, leaves: Option<Duration>) -> Result<(String, bool)> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        if leaves.is_some_and(|leaves| start.elapsed() >= leaves) {
            let _ = stream.shutdown(Shutdown::Both);
            return Ok(("left".to_owned(), false));
        }
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
            {
                if start.elapsed() > Duration::from_secs(300) {
                    bail!("no end after five minutes");
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).unwrap_or("nothing").to_owned();
    if status == "429" {
        // As a well-behaved client does, but sooner.
        thread::sleep(Duration::from_millis(200));
    }
    let torn = status == "200" && !text.contains("data: [DONE]");
    Ok((status, torn))
}

fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn metric(address: SocketAddr, name: &str) -> Result<Option<f64>> {
    let page = get(address, "/metrics")?;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Ok(value)
}
