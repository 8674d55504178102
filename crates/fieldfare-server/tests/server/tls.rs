//! TLS by files: the certificate beside this page is its own authority and good for nothing but this test.

use crate::support::{Response, Server, request};
use fieldfare_server::{Options, StartError, TlsFiles, bind};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server").join(name)
}

fn files(cert: &str, key: &str) -> Options {
    Options { tls: Some(TlsFiles { cert: file(cert), key: file(key) }), ..Options::default() }
}

#[test]
fn a_client_that_knows_the_certificate_is_answered() {
    let server = Server::with(files("localhost.pem", "localhost.key"), 512);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("localhost.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection =
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, server.connect());
    stream.write_all(&request("GET", "/health", &[], "")).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("{\"status\":\"ok\"}"), "{answer}");
    // Without TLS nothing is said.
    let mut plain = server.connect();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain.write_all(&request("GET", "/health", &[], "")).unwrap();
    assert_eq!(Response::read_status(&mut plain), 0);
}

#[test]
fn files_that_will_not_do_are_told_before_anything_else() {
    for (cert, key, named) in [
        ("missing.pem", "localhost.key", "missing.pem"),
        ("localhost.pem", "missing.key", "missing.key"),
        ("localhost.key", "localhost.key", "has no certificate"),
        ("localhost.pem", "localhost.pem", "localhost.pem"),
    ] {
        let Err(StartError::Failed { message, .. }) = bind(Options { port: 0, ..files(cert, key) }) else {
            panic!("{cert} {key}")
        };
        assert!(message.contains(named), "{message}");
    }
}
