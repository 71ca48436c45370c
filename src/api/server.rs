//! The listeners: made ready, started, stopped. What is insecure or cannot work is refused here, before
//! the first connection, with an error that says what to set.

pub mod bootstrap;

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic_health::server::HealthReporter;

use super::{
    access::{
        Identifier,
        rate::RateLimiter,
        table::{AccessTable, TableError},
        tokens::{LoadError, TokenBook},
    },
    ask::Ask,
    connection::Reception,
    gate::{Door, Gate, Surface},
    grpc, http,
    limits::Limits,
    provider::{Keeper, Provider, TokenReviewer},
    tls::{Tls, TlsError, TlsOptions},
};
use crate::{
    domain::access::Role,
    ports::{clock::Clock, store::Store, telemetry::Metrics},
};

/// How the API is exposed.
#[derive(Clone, Debug)]
pub struct Options {
    /// `api.grpc.listen`
    pub grpc: SocketAddr,
    /// `api.http.listen`
    pub http: SocketAddr,
    /// `api.health.listen`
    pub health: Option<SocketAddr>,
    /// TLS for gRPC and HTTP.
    pub tls: Option<TlsOptions>,
    /// Wants credentials on loopback without TLS too.
    pub require_identity: bool,
    /// Where the first operator's token is written, when there is no other way in yet.
    pub bootstrap_token_file: Option<PathBuf>,
    /// Every bound.
    pub limits: Limits,
    /// `debug.enabled`
    pub debug: bool,
}

impl Options {
    /// Plain on loopback, on ports of the system's choice.
    #[must_use]
    pub fn loopback() -> Self {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            grpc: any_port,
            http: any_port,
            health: None,
            tls: None,
            require_identity: false,
            bootstrap_token_file: None,
            limits: Limits::default(),
            debug: false,
        }
    }
}

/// What the API stands on.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The program.
    pub provider: Arc<dyn Provider>,
    /// Where tokens are kept.
    pub store: Arc<dyn Store>,
    /// Where our own CA is kept, sealed.
    pub keeper: Arc<dyn Keeper>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Metrics,
    /// Kubernetes TokenReview, where wanted.
    pub reviewer: Option<Arc<dyn TokenReviewer>>,
}

/// Why the API does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Off loopback without TLS.
    #[error(
        "{key} is {address}, which is not loopback, and there is no TLS: set api.tls.enabled: true, or listen on 127.0.0.1 (api.health.listen may be plain anywhere)"
    )]
    Insecure {
        /// The config key.
        key: &'static str,
        /// As configured.
        address: SocketAddr,
    },
    /// Credentials are wanted and nobody has any.
    #[error(
        "nobody could call the API: set api.tls.client-ca-file, or a file for the first operator's token (api.access.bootstrap-token-file)"
    )]
    NoIdentities,
    /// Somebody else listens there.
    #[error("{key}: {address} is in use: stop the other process, or set {key} to another address")]
    PortInUse {
        /// The config key.
        key: &'static str,
        /// As configured.
        address: SocketAddr,
    },
    /// It is impossible to listen there.
    #[error("{key}: it is not possible to listen on {address}: {source}")]
    Bind {
        /// The config key.
        key: &'static str,
        /// As configured.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// TLS cannot be spoken.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] LoadError),
    /// The first operator's token could not be written.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::BootstrapError),
    /// A method without a line, or a line without a method.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The descriptors cannot be served.
    #[error("the compiled descriptors cannot be served: {0}")]
    Reflection(String),
}

impl StartError {
    /// Whether the configuration is at fault (exit status 2) rather than the machine (1).
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Insecure { .. } | Self::NoIdentities => true,
            Self::Tls(error) => !matches!(error, TlsError::OwnCa(_)),
            Self::PortInUse { .. }
            | Self::Bind { .. }
            | Self::Tokens(_)
            | Self::Bootstrap(_)
            | Self::Table(_)
            | Self::Reflection(_) => false,
        }
    }
}

/// Makes servers.
#[derive(Clone, Copy, Debug)]
pub struct Server;

impl Server {
    /// Checks everything and listens.
    ///
    /// # Errors
    /// When it is not safe or not possible.
    pub async fn start(options: Options, parts: Parts) -> Result<Running, StartError> {
        Self::prepare(options, parts).await?.listen().await
    }

    /// Checks and loads everything, and listens nowhere yet.
    ///
    /// # Errors
    /// When it is not safe or not possible.
    pub async fn prepare(options: Options, parts: Parts) -> Result<Prepared, StartError> {
        if options.tls.is_none() {
            refuse_insecure("api.grpc.listen", options.grpc)?;
            refuse_insecure("api.http.listen", options.http)?;
        }
        let table = AccessTable::check()?;
        let tokens = Arc::new(TokenBook::load(parts.store, parts.clock.clone()).await?);
        let tls = match &options.tls {
            None => None,
            Some(wanted) => {
                let mut wanted = wanted.clone();
                wanted.names.extend(own_names(&options));
                let tls = Tls::load(wanted, parts.keeper.as_ref(), parts.clock.clone()).await?;
                Some(Arc::new(tls))
            }
        };
        let trusting = options.tls.is_none() && !options.require_identity;
        let certified = options.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if !trusting && !certified && !tokens.any_usable(Role::Operator) {
            match &options.bootstrap_token_file {
                Some(path) => bootstrap::write_first_token(&tokens, path).await?,
                None if parts.reviewer.is_some() => {}
                None => return Err(StartError::NoIdentities),
            }
        }
        let stopping = CancellationToken::new();
        let limits = options.limits.clone();
        let gate = Gate {
            table,
            identifier: Identifier {
                tokens: tokens.clone(),
                reviewer: parts.reviewer,
                clock: parts.clock.clone(),
            },
            rates: RateLimiter::new(parts.clock.clone(), limits.calls_per_second, limits.burst),
            calls: Arc::new(Semaphore::new(limits.calls)),
            streams: Arc::new(Semaphore::new(limits.open_streams)),
            limits: limits.clone(),
            clock: parts.clock,
            stopping: stopping.clone(),
            metrics: parts.metrics,
        };
        let health = HealthReporter::new();
        let ask = Ask::new(parts.provider, tokens, options.debug);
        grpc::report(&health, ask.status().ready).await;
        let grpc_router = grpc::router(ask.clone(), health.clone(), limits.message_bytes)
            .map_err(|error| StartError::Reflection(error.to_string()))?;
        let door = |surface, router, loopback| {
            Arc::new(Door {
                surface,
                router,
                trusting: trusting && surface != Surface::Health,
                loopback,
            })
        };
        let plain = http::router(ask.clone(), limits.message_bytes, true);
        let full = http::router(ask.clone(), limits.message_bytes, false);
        Ok(Prepared {
            shared: Shared {
                gate: Arc::new(gate),
                tls,
                stopping,
                killed: CancellationToken::new(),
                tasks: TaskTracker::new(),
                grpc: door(Surface::Grpc, grpc_router, is_loopback(options.grpc)),
                http: door(Surface::Http, full, is_loopback(options.http)),
                health: door(Surface::Health, plain, false),
            },
            options,
            ask,
            reporter: health,
        })
    }
}

fn refuse_insecure(key: &'static str, address: SocketAddr) -> Result<(), StartError> {
    if is_loopback(address) {
        Ok(())
    } else {
        Err(StartError::Insecure { key, address })
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// The addresses we listen on belong into a certificate of our own.
fn own_names(options: &Options) -> Vec<String> {
    let mut names: Vec<String> = [options.grpc, options.http]
        .into_iter()
        .map(|address| address.ip().to_canonical())
        .filter(|ip| !ip.is_unspecified() && !ip.is_loopback())
        .map(|ip| ip.to_string())
        .collect();
    names.dedup();
    names
}

/// What the listeners share.
#[derive(Clone, Debug)]
struct Shared {
    gate: Arc<Gate>,
    tls: Option<Arc<Tls>>,
    stopping: CancellationToken,
    killed: CancellationToken,
    tasks: TaskTracker,
    grpc: Arc<Door>,
    http: Arc<Door>,
    health: Arc<Door>,
}

impl Shared {
    fn reception(&self, door: &Arc<Door>, tls: Option<Arc<Tls>>) -> Reception {
        Reception {
            gate: self.gate.clone(),
            door: door.clone(),
            tls,
            limits: self.gate.limits.clone(),
            stopping: self.stopping.clone(),
            killed: self.killed.clone(),
            connections: self.tasks.clone(),
        }
    }

    fn accept(&self, listener: TcpListener, door: &Arc<Door>, tls: Option<Arc<Tls>>) {
        let reception = self.reception(door, tls);
        let incoming = futures::stream::unfold(listener, |listener| async move {
            let accepted = listener.accept().await.map(|(socket, address)| {
                // Small answers must not wait for more; a socket that refuses this still works.
                let _ = socket.set_nodelay(true);
                (socket, Some(address))
            });
            Some((accepted, listener))
        });
        self.tasks.spawn(reception.serve(incoming));
    }

    fn until_stopped(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = task => {}
            }
        });
    }
}

/// A server that could start.
#[derive(Debug)]
pub struct Prepared {
    options: Options,
    shared: Shared,
    ask: Ask,
    reporter: HealthReporter,
}

impl Prepared {
    /// Listens on the addresses of the options.
    ///
    /// # Errors
    /// When an address cannot be listened on; then nothing has been started.
    pub async fn listen(self) -> Result<Running, StartError> {
        let grpc = bind("api.grpc.listen", self.options.grpc).await?;
        let http = bind("api.http.listen", self.options.http).await?;
        let health = match self.options.health {
            Some(address) => Some(bind("api.health.listen", address).await?),
            None => None,
        };
        let mut running = self.run();
        let shared = &running.shared;
        running.grpc_address = Some(grpc.1);
        running.http_address = Some(http.1);
        shared.accept(grpc.0, &shared.grpc, shared.tls.clone());
        shared.accept(http.0, &shared.http, shared.tls.clone());
        if let Some((listener, address)) = health {
            running.health_address = Some(address);
            shared.accept(listener, &shared.health, None);
        }
        Ok(running)
    }

    /// Starts without a socket: connections come through [`Running::serve_grpc_on`] and
    /// [`Running::serve_http_on`], so that everything can run on one paused clock.
    #[must_use]
    pub fn run(self) -> Running {
        let shared = self.shared;
        shared.until_stopped(grpc::follow_readiness(self.ask, self.reporter.clone()));
        if let Some(tls) = shared.tls.clone() {
            shared.until_stopped(async move { tls.keep_current().await });
        }
        Running {
            grpc_address: None,
            http_address: None,
            health_address: None,
            reporter: self.reporter,
            shared,
        }
    }
}

async fn bind(key: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::PortInUse { key, address },
        _ => StartError::Bind { key, address, source },
    };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

/// A server that serves. Dropping it cuts everything off; `stop` does it properly.
#[derive(Debug)]
pub struct Running {
    /// Where gRPC is, when it has a socket.
    pub grpc_address: Option<SocketAddr>,
    /// Where HTTP is.
    pub http_address: Option<SocketAddr>,
    /// Where the plain health listener is.
    pub health_address: Option<SocketAddr>,
    reporter: HealthReporter,
    shared: Shared,
}

/// How a stop went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Connections that were still busy at the deadline and were cut off.
    pub cut_off: usize,
}

impl Running {
    /// Serves gRPC on any I/O, plain, as if it came from this machine.
    pub fn serve_grpc_on<I>(&self, incoming: impl Stream<Item = io::Result<I>> + Send + 'static)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.serve_on(&self.shared.grpc, incoming);
    }

    /// Serves HTTP on any I/O, plain, as if it came from this machine.
    pub fn serve_http_on<I>(&self, incoming: impl Stream<Item = io::Result<I>> + Send + 'static)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.serve_on(&self.shared.http, incoming);
    }

    fn serve_on<I>(&self, door: &Arc<Door>, incoming: impl Stream<Item = io::Result<I>> + Send + 'static)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let incoming = incoming.map(|io| io.map(|io| (io, None)));
        let reception = self.shared.reception(door, None);
        self.shared.tasks.spawn(reception.serve(incoming));
    }

    /// The certificate of our own CA, when the program made one.
    #[must_use]
    pub fn own_ca_pem(&self) -> Option<&str> {
        self.shared.tls.as_ref().and_then(|tls| tls.own_ca_pem())
    }

    /// No new calls; those in flight finish, open streams end with UNAVAILABLE; what is still busy at
    /// the deadline is cut off.
    pub async fn stop(self, deadline: Duration) -> Stopped {
        grpc::report(&self.reporter, false).await;
        self.shared.stopping.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(deadline, self.shared.tasks.wait())
            .await
            .is_ok()
        {
            return Stopped { cut_off: 0 };
        }
        let cut_off = self.shared.tasks.len();
        self.shared.killed.cancel();
        self.shared.tasks.wait().await;
        Stopped { cut_off }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stopping.cancel();
        self.shared.killed.cancel();
    }
}
