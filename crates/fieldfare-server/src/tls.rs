//! TLS by files of a certificate chain and its key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Where they are, as PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate first, then those that lead to one that clients trust.
    pub cert: PathBuf,
    /// The private key of the first.
    pub key: PathBuf,
}

/// Reads both; what is wrong in words.
pub(crate) fn config(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let at = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|error| at(&files.cert, &error))?;
    if chain.is_empty() {
        return Err(at(&files.cert, &"has no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| at(&files.key, &error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| at(&files.key, &error))?;
    Ok(Arc::new(config))
}
