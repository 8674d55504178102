//! What lies between `fieldfare install` and a hub: certificates, proxies, tokens.

// Elsewhere certificates are not named by a variable.
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use fieldfare_testing::fake_hub::{FakeHub, REPO};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::hub::{command, files, hub};
use crate::support::{Home, binary, install};

/// Longest wait for anything; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(120);

fn tls(name: &str) -> PathBuf {
    fieldfare_testing::fixtures().join("tls").join(name)
}

/// A port where the hub is spoken to over TLS, and what hears of each client that leaves without having asked for anything.
fn encrypted(hub: &FakeHub) -> (u16, Receiver<()>) {
    let chain = vec![CertificateDer::from_pem_file(tls("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(tls("server.key")).unwrap();
    let config = Arc::new(
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let plain = hub.endpoint();
    let (left, leavers) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let (plain, left) = (plain.clone(), left.clone());
            std::thread::spawn(move || {
                let mut asked = 0;
                // A client that leaves, or does not trust the certificate, is no error here.
                let _ = forward(StreamOwned::new(connection, stream), &plain, port, &mut asked);
                if asked == 0 {
                    let _ = left.send(()); // a test that has ended hears nothing
                }
            });
        }
    });
    (port, leavers)
}

/// One request after the other, which are counted; redirects name this port instead of the hub's.
fn forward(
    client: StreamOwned<ServerConnection, TcpStream>,
    plain: &str,
    port: u16,
    asked: &mut usize,
) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    let mut to = TcpStream::connect(plain.trim_start_matches("http://"))?;
    let mut from = BufReader::new(to.try_clone()?);
    loop {
        let request = head(&mut client)?;
        if request.is_empty() {
            return Ok(());
        }
        *asked += 1;
        to.write_all(request.as_bytes())?;
        let reply = head(&mut from)?;
        let length = |line: &str| line.strip_prefix("Content-Length: ").and_then(|n| n.parse().ok());
        let mut left: usize = reply.lines().find_map(length).unwrap_or(0);
        let reply = reply.replace(plain, &format!("https://localhost:{port}"));
        client.get_mut().write_all(reply.as_bytes())?;
        if request.starts_with("HEAD") {
            left = 0;
        }
        let mut buffer = vec![0; 64 << 10];
        while left > 0 {
            let most = left.min(buffer.len());
            let n = from.read(&mut buffer[..most])?;
            if n == 0 {
                return Ok(());
            }
            client.get_mut().write_all(&buffer[..n])?;
            left -= n;
        }
        client.get_mut().flush()?;
    }
}

/// Lines up to the empty one.
fn head(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        if reader.read_line(&mut text)? == 0 {
            return Ok(String::new());
        }
    }
    Ok(text)
}

/// A company's certificate, handed over as the system does it: trusted then, not trusted otherwise.
#[cfg(target_os = "linux")]
#[test]
fn certificates_are_those_of_the_system() {
    let home = Home::new();
    let hub = hub(Duration::ZERO);
    let (port, _leavers) = encrypted(&hub);
    let endpoint = format!("https://localhost:{port}");
    let output = home.path("m.gturbo");
    let ran = command(&home, &hub, &output)
        .env("HF_ENDPOINT", &endpoint)
        .env("SSL_CERT_FILE", tls("ca.pem"))
        .arg("--quiet")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let local = home.path("local.gturbo");
    assert_eq!(install(&home, &local, "tiled").code, 0);
    assert!(files(&output) == files(&local));
    // The token went over TLS to the hub, and to no storage.
    for asked in hub.asked() {
        assert_eq!(asked.authorization.is_some(), !asked.is_storage(), "{asked:?}");
    }
    // With other authorities it is not spoken to: not one request arrives.
    let before = hub.asked().len();
    let (port, leavers) = encrypted(&hub);
    let mut child = command(&home, &hub, &home.path("other.gturbo"))
        .env("HF_ENDPOINT", format!("https://localhost:{port}"))
        .env("SSL_CERT_FILE", "/dev/null")
        .env_remove("SSL_CERT_DIR")
        .arg("--quiet")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It has seen the certificate, and tried once more.
    for _ in 0..2 {
        leavers.recv_timeout(PATIENCE).expect("it leaves when it has seen the certificate");
    }
    let _ = child.kill(); // it may have ended by itself
    child.wait().unwrap();
    assert_eq!(hub.asked().len(), before);
    assert!(!home.path("other.gturbo").exists());
}

/// The proxy is asked for the hub and sees no token; an address of this machine is asked without it.
#[test]
fn proxies() {
    let home = Home::new();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let hub = hub(Duration::ZERO);
    let local = command(&home, &hub, &home.path("m.gturbo"))
        .env("HTTPS_PROXY", &address)
        .env("HTTP_PROXY", &address)
        .env("ALL_PROXY", &address)
        .arg("--quiet")
        .output()
        .unwrap();
    assert!(local.status.success(), "{}", String::from_utf8_lossy(&local.stderr));
    let mut child = command(&home, &hub, &home.path("other.gturbo"))
        .env("HF_ENDPOINT", "https://hub.example.org")
        .env("HTTPS_PROXY", &address)
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .arg("--quiet")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (stream, _) = proxy.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let asked = head(&mut BufReader::new(stream)).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(asked.starts_with("CONNECT hub.example.org:443 "), "{asked}");
    assert!(!asked.contains("hf_secret"), "{asked}");
}

/// `HF_TOKEN`, the file at `HF_TOKEN_PATH`, the file in `HF_HOME`, the usual place: in this order. A mirror gets it as the hub
/// would, storage never does.
#[test]
fn tokens_and_their_places() {
    let home = Home::new();
    let hub = hub(Duration::ZERO);
    std::fs::create_dir_all(home.path("hf")).unwrap();
    std::fs::create_dir_all(home.path("cache/huggingface")).unwrap();
    home.write("hf/token", "hf_in_home\n");
    home.write("token file", "hf_in_file\n");
    home.write("cache/huggingface/token", "hf_in_cache");
    let (file, hf_home) = (home.path("token file"), home.path("hf"));
    type Variables<'a> = Vec<(&'a str, &'a std::ffi::OsStr)>;
    let cases: [(Variables<'_>, Option<&str>); 5] = [
        (
            vec![
                ("HF_TOKEN", "hf_said".as_ref()),
                ("HF_TOKEN_PATH", file.as_os_str()),
                ("HF_HOME", hf_home.as_os_str()),
            ],
            Some("hf_said"),
        ),
        (vec![("HF_TOKEN_PATH", file.as_os_str()), ("HF_HOME", hf_home.as_os_str())], Some("hf_in_file")),
        (vec![("HF_HOME", hf_home.as_os_str())], Some("hf_in_home")),
        (vec![], Some("hf_in_cache")),
        (vec![("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1".as_ref())], None),
    ];
    for (variables, token) in cases {
        let before = hub.asked().len();
        let mut command = Command::new(binary());
        for name in ["HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "HF_HUB_DISABLE_IMPLICIT_TOKEN"] {
            command.env_remove(name);
        }
        let out = command
            .envs(home.environment())
            .env("HF_ENDPOINT", hub.endpoint())
            .envs(variables)
            .args(["install", "--dry-run", "--from", REPO, "--allow-unpinned"])
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let want = token.map(|token| format!("Bearer {token}"));
        for asked in &hub.asked()[before..] {
            assert_eq!(asked.authorization, want.clone().filter(|_| !asked.is_storage()), "{asked:?}");
        }
        let said = [out.stdout, out.stderr].concat();
        assert!(!String::from_utf8_lossy(&said).contains("hf_"));
    }
    // Plain http to another machine is refused before anything is sent.
    let out =
        command(&home, &hub, &home.path("x")).env("HF_ENDPOINT", "http://hub.example.org").output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.code() == Some(2) && err.contains("plain http is for this machine only"), "{err}");
}
