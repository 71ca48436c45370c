//! TLS of the listeners: files that are read again when they change, or a certificate of our own CA.
//!
//! Fails closed: at start anything wrong is an error; later a broken or half-written pair is logged
//! once and the old one stays. Sessions are never resumed, so that every connection is verified
//! against the CA of today.

pub mod own_ca;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    time_provider::TimeProvider,
};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use self::own_ca::{Issued, OwnCa, OwnCaError};
use super::provider::Keeper;
use crate::ports::clock::Clock;

/// How the listeners speak TLS.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// `api.tls.cert-file` and `api.tls.key-file`; without them the program makes its own.
    pub certificate: Option<CertificateFiles>,
    /// `api.tls.client-ca-file`: whose client certificates are believed.
    pub client_ca: Option<PathBuf>,
    /// Names and addresses in a certificate of our own, beside those of loopback.
    pub names: Vec<String>,
    /// Where the certificate of our own CA is written, for clients' `--ca`.
    pub own_ca_file: Option<PathBuf>,
    /// How often the files are looked at.
    pub reload_every: Duration,
}

/// A certificate and its key, both PEM.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Why TLS cannot be spoken.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{key} ({path}) cannot be read: {source}")]
    File {
        /// The config key.
        key: &'static str,
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file holds nothing usable.
    #[error("{key} ({path}) holds no usable PEM: {reason}")]
    Pem {
        /// The config key.
        key: &'static str,
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// They do not belong together, or rustls wants none of them.
    #[error("api.tls.cert-file and api.tls.key-file cannot be used together: {reason}")]
    Pair {
        /// What is wrong.
        reason: String,
    },
    /// The client CA cannot be used.
    #[error("api.tls.client-ca-file cannot be used: {reason}")]
    ClientCa {
        /// What is wrong.
        reason: String,
    },
    /// Our own CA could not be made or kept.
    #[error(transparent)]
    OwnCa(#[from] OwnCaError),
}

/// TLS as it is now.
pub struct Tls {
    options: TlsOptions,
    clock: Arc<dyn Clock>,
    own: Option<OwnServer>,
    current: ArcSwap<ServerConfig>,
    /// The digest of what was looked at last, so that each content is tried and complained about once.
    seen: Mutex<Option<[u8; 32]>>,
}

/// Our own CA and the certificate it made for this server.
struct OwnServer {
    ca: OwnCa,
    names: Vec<String>,
    issued: Mutex<Arc<Issued>>,
}

impl OwnServer {
    fn new(ca: OwnCa, names: Vec<String>, now: Timestamp) -> Result<Self, OwnCaError> {
        let issued = Mutex::new(Arc::new(ca.issue(&names, now)?));
        Ok(Self { ca, names, issued })
    }

    /// The certificate, made anew when that is due.
    fn issued(&self, now: Timestamp) -> Result<Arc<Issued>, OwnCaError> {
        let mut issued = self.issued.lock();
        if issued.renew_at <= now {
            *issued = Arc::new(self.ca.issue(&self.names, now)?);
        }
        Ok(issued.clone())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tls")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What a configuration is made from.
struct Material {
    chain: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
    client_ca: Option<Vec<u8>>,
}

impl Material {
    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [
            Some(self.chain.as_slice()),
            Some(self.key.as_slice()),
            self.client_ca.as_deref(),
        ] {
            hash.update(part.map_or(0, <[u8]>::len).to_be_bytes());
            hash.update(part.unwrap_or_default());
        }
        hash.finalize().into()
    }
}

impl Tls {
    /// Reads or makes everything.
    ///
    /// # Errors
    /// When anything is missing or wrong.
    pub async fn load(
        options: TlsOptions,
        keeper: &dyn Keeper,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsError> {
        let own = match &options.certificate {
            Some(_) => None,
            None => {
                let ca = OwnCa::load_or_make(keeper, clock.wall()).await?;
                Some(OwnServer::new(ca, options.names.clone(), clock.wall())?)
            }
        };
        if let (Some(own), Some(path)) = (&own, &options.own_ca_file) {
            tokio::fs::write(path, own.ca.certificate_pem())
                .await
                .map_err(|source| TlsError::File {
                    key: "the file for our own CA's certificate",
                    path: path.display().to_string(),
                    source,
                })?;
        }
        let material = read(&options, own.as_ref(), clock.wall()).await?;
        let config = configure(&material, &options, &clock)?;
        Ok(Self {
            options,
            clock,
            own,
            current: ArcSwap::from_pointee(config),
            seen: Mutex::new(Some(material.digest())),
        })
    }

    /// For the next handshake.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// The certificate of our own CA, when there is one.
    #[must_use]
    pub fn own_ca_pem(&self) -> Option<&str> {
        self.own.as_ref().map(|own| own.ca.certificate_pem())
    }

    /// Looks at the files again and again; never returns.
    pub async fn keep_current(&self) {
        loop {
            tokio::time::sleep(self.options.reload_every).await;
            self.look_again().await;
        }
    }

    /// Takes changed files up; what cannot be used is logged and leaves the old ones in force.
    pub(super) async fn look_again(&self) {
        let now = self.clock.wall();
        let material = match read(&self.options, self.own.as_ref(), now).await {
            Ok(material) => material,
            Err(error) => {
                if self.seen.lock().take().is_some() {
                    tracing::warn!(%error, "TLS files cannot be read; the ones read before stay in force");
                }
                return;
            }
        };
        let digest = material.digest();
        if *self.seen.lock() == Some(digest) {
            return;
        }
        match configure(&material, &self.options, &self.clock) {
            Ok(config) => {
                self.current.store(Arc::new(config));
                tracing::info!("TLS files have changed and are in force");
            }
            Err(error) => {
                tracing::warn!(%error, "changed TLS files cannot be used; the ones read before stay in force");
            }
        }
        *self.seen.lock() = Some(digest);
    }
}

async fn read(options: &TlsOptions, own: Option<&OwnServer>, now: Timestamp) -> Result<Material, TlsError> {
    let client_ca = match &options.client_ca {
        Some(path) => Some(read_file("api.tls.client-ca-file", path).await?),
        None => None,
    };
    match (&options.certificate, own) {
        (Some(files), _) => Ok(Material {
            chain: read_file("api.tls.cert-file", &files.certificate).await?,
            key: Zeroizing::new(read_file("api.tls.key-file", &files.key).await?),
            client_ca,
        }),
        (None, Some(own)) => {
            let issued = own.issued(now)?;
            Ok(Material {
                chain: issued.chain_pem.as_bytes().to_vec(),
                key: Zeroizing::new(issued.key_pem.expose().as_bytes().to_vec()),
                client_ca,
            })
        }
        (None, None) => Err(TlsError::Pair {
            reason: "neither is configured".to_owned(),
        }),
    }
}

async fn read_file(key: &'static str, path: &PathBuf) -> Result<Vec<u8>, TlsError> {
    tokio::fs::read(path).await.map_err(|source| TlsError::File {
        key,
        path: path.display().to_string(),
        source,
    })
}

fn configure(
    material: &Material,
    options: &TlsOptions,
    clock: &Arc<dyn Clock>,
) -> Result<ServerConfig, TlsError> {
    let shown = |path: Option<&PathBuf>| path.map_or_else(String::new, |path| path.display().to_string());
    let files = options.certificate.as_ref();
    let chain = certificates(
        "api.tls.cert-file",
        shown(files.map(|files| &files.certificate)),
        &material.chain,
    )?;
    let key = PrivateKeyDer::from_pem_slice(&material.key).map_err(|error| TlsError::Pem {
        key: "api.tls.key-file",
        path: shown(files.map(|files| &files.key)),
        // The parser's words never hold the key's.
        reason: error.to_string(),
    })?;
    let pair = |error: rustls::Error| TlsError::Pair {
        reason: error.to_string(),
    };
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_details(provider, Arc::new(WallTime(clock.clone())))
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let builder = match &material.client_ca {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let path = shown(options.client_ca.as_ref());
            builder.with_client_cert_verifier(verifier(certificates("api.tls.client-ca-file", path, pem)?)?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn certificates(
    key: &'static str,
    path: String,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unusable = |reason: String| TlsError::Pem {
        key,
        path: path.clone(),
        reason,
    };
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unusable(error.to_string()))?;
    if found.is_empty() {
        return Err(unusable("there is no certificate in it".to_owned()));
    }
    Ok(found)
}

/// Certificates are welcome and not demanded: a token may stand in for one.
fn verifier(roots: Vec<CertificateDer<'static>>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unusable = |reason: String| TlsError::ClientCa { reason };
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root).map_err(|error| unusable(error.to_string()))?;
    }
    let provider = Arc::new(ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| unusable(error.to_string()))
}

/// Certificates are judged by the same clock as everything else.
#[derive(Debug)]
struct WallTime(Arc<dyn Clock>);

impl TimeProvider for WallTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.wall().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}
