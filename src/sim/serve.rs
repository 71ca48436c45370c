//! The embedded cluster on a port: HTTPS with a certificate of its own CA, HTTP/1.1 (with the upgrades
//! that exec needs) and HTTP/2, and a kubeconfig for whoever may come.

mod credentials;

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::credentials::Credentials;

/// Most connections at a time; more wait until one is closed.
const CONNECTIONS: usize = 512;

/// How long a client may take to agree on TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Why the embedded cluster is not served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Somebody else listens there.
    #[error("{listen} is in use: set embedded.listen to another address, or to \"\" to serve nothing")]
    InUse {
        /// Where.
        listen: SocketAddr,
    },
    /// It cannot be listened on.
    #[error("cannot listen on {listen}")]
    Listen {
        /// Where.
        listen: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The kept CA cannot be used.
    #[error(
        "the CA in {path} cannot be used ({message}): remove both its files to have a new one made, kubeconfigs change with it"
    )]
    Ca {
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {message}")]
    Certificate {
        /// Why.
        message: String,
    },
}

/// A listener that is not serving yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: Acceptor,
}

#[derive(Clone)]
struct Acceptor(TlsAcceptor);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Acceptor")
    }
}

impl Server {
    /// Takes the address.
    pub async fn bind(listen: SocketAddr, credentials: &Credentials) -> Result<Self, ServeError> {
        let acceptor = Acceptor(TlsAcceptor::from(Arc::new(
            credentials.server_config(listen.ip())?,
        )));
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => ServeError::InUse { listen },
                _ => ServeError::Listen { listen, source },
            })?;
        let address = listener
            .local_addr()
            .map_err(|source| ServeError::Listen { listen, source })?;
        Ok(Self {
            listener,
            address,
            acceptor,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is stopped. Watches in flight end then: their clients come back by themselves.
    pub async fn run(self, router: Router, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = accept(&self.listener, &places) => accepted,
            };
            let Some((stream, place)) = accepted else { continue };
            let (router, acceptor, stop) = (router.clone(), self.acceptor.clone(), stop.clone());
            connections.spawn(async move {
                let _place = place;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = converse(stream, acceptor, router) => {}
                }
            });
        }
        connections.close();
        connections.wait().await;
    }
}

/// The next connection, once there is a place for it. A failure to accept is waited out, not given in to.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(%error, "the embedded cluster could not accept a connection");
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

async fn converse(stream: TcpStream, acceptor: Acceptor, router: Router) {
    // Small answers must not wait for more.
    let _ = stream.set_nodelay(true);
    let agreed = tokio::time::timeout(HANDSHAKE, acceptor.0.accept(stream)).await;
    let Ok(Ok(stream)) = agreed else {
        tracing::debug!("a client of the embedded cluster did not agree on TLS");
        return;
    };
    let builder = auto::Builder::new(TokioExecutor::new());
    let served =
        builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the embedded cluster ended");
    }
}
