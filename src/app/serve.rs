//! `freehold serve`: makes the ports, starts the program and its API, says where it is, and stops in order.

mod banner;
mod ports;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
};

use super::{Program, keeper::SealedKeeper};
use crate::{
    actors::{
        host::capture_panics,
        runtimes::{Runtimes, ThreadLost},
    },
    api::{
        provider::Provider as _,
        server::{Options as ApiOptions, Parts as ApiParts, Running, Server, StartError},
        tls::{CertificateFiles, TlsOptions},
    },
    config::{Config, ConfigError},
    ports::clock::{Clock, SystemClock},
    sim::embedded::{self, Embedded, EmbeddedError},
};

use ports::Ports;
pub use ports::PortsError;

/// How long calls in flight may take at a stop.
const CALLS_DEADLINE: Duration = Duration::from_secs(9);
/// How long the actors may take after that.
const ACTORS_DEADLINE: Duration = Duration::from_secs(9);
/// How long the store and the embedded cluster may take to close.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);
/// How long the banner waits for the program to be ready before it says that it is not.
const READY_PATIENCE: Duration = Duration::from_secs(5);
/// How often files of certificates are looked at.
const TLS_RELOAD: Duration = Duration::from_secs(5);

/// Where the embedded cluster listens when it runs alone and nothing else is set.
const DEFAULT_EMBEDDED_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7443);

/// Why the program did not start, or did not go on.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The configuration does not do.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store or the cluster cannot be used.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// The API cannot listen.
    #[error(transparent)]
    Api(#[from] StartError),
    /// There are no threads to be had.
    #[error("cannot start a runtime: {0}")]
    Runtime(std::io::Error),
    /// An actor that everything hangs on cannot be kept alive.
    #[error("{path} failed again and again: giving up, so that whatever runs this program starts it anew")]
    Lost {
        /// Which one.
        path: String,
    },
}

/// Runs the program until SIGTERM or Ctrl-C. Lines for people go to `announce`.
pub fn run(config: &Config, announce: impl FnMut(&str)) -> Result<(), ServeError> {
    config.refuse_simulation_in_pod()?;
    super::logging::start(&config.log);
    capture_panics();
    // An error means that it was installed before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let io = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("io")
        .build()
        .map_err(ServeError::Runtime)?;
    let handle = io.handle().clone();
    let result = actix_rt::System::new().block_on(serve(config, handle, announce));
    // What still runs there (a thread that hangs, a resolver) must not hold up the exit.
    io.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Runs the embedded cluster alone until SIGTERM or Ctrl-C, so that the program can come and go while its
/// cluster lives on.
pub fn run_embedded(config: &Config, mut announce: impl FnMut(&str)) -> Result<(), ServeError> {
    super::logging::start(&config.log);
    // An error means that it was installed before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Runtime)?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let embedded = Embedded::start(ports::embedded_options(config, &clock)).await.map_err(PortsError::from)?;
        let listen = config.embedded.listen.unwrap_or(DEFAULT_EMBEDDED_LISTEN);
        let kubeconfig = &config.embedded.kubeconfig;
        let bound = embedded.serve(listen, kubeconfig).await.map_err(PortsError::from)?;
        let kubeconfig = kubeconfig.display();
        announce(&format!(
            "the SIMULATED cluster alone is on https://{bound}\n\n  kubectl --kubeconfig {kubeconfig} get nodes\n  \
             freehold --set cluster.kind=kubernetes --set cluster.kubeconfig={kubeconfig}\n"
        ));
        signals.next().await;
        embedded.stop().await;
        Ok(())
    })
}

/// Makes the embedded cluster forget everything; says whether there was anything.
pub fn reset_embedded(config: &Config) -> Result<bool, EmbeddedError> {
    embedded::reset(&ports::embedded_directory(config))
}

/// What ends a run.
enum End {
    Signal(&'static str),
    Lost(String),
}

async fn serve(config: &Config, io: Handle, mut announce: impl FnMut(&str)) -> Result<(), ServeError> {
    let mut signals = Signals::listen()?;
    let runtimes = Runtimes::two(io.clone());
    // Clients and servers live on the I/O runtime, whichever thread made them.
    let ports_config = config.clone();
    let mut opening = io.spawn(async move { Ports::open(&ports_config).await });
    let opened = tokio::select! {
        opened = &mut opening => opened,
        signal = signals.next() => {
            tracing::info!(signal, "stopping before it was ready");
            // What is half open is opened and closed in order, so that the next start finds it clean.
            if let Ok(Ok(Ok(ports))) = tokio::time::timeout(CALLS_DEADLINE, opening).await {
                let _ = io.spawn(ports.close()).await;
            }
            runtimes.stop();
            return Ok(());
        }
    };
    let ports = opened.map_err(|error| ServeError::Runtime(std::io::Error::other(error)))??;
    let mut program = Program::start(ports.ingredients(config, runtimes.clone()));
    let options = api_options(config);
    let parts = ApiParts {
        provider: program.face.clone(),
        store: ports.store(),
        keeper: Arc::new(SealedKeeper {
            store: ports.store(),
            sealer: ports.sealer(),
        }),
        clock: ports.clock(),
        metrics: ports.metrics(),
        reviewer: None,
    };
    let started = io.spawn(Server::start(options, parts)).await;
    let api = match started.map_err(|error| ServeError::Runtime(std::io::Error::other(error)))? {
        Ok(api) => api,
        Err(error) => {
            stop(None, program, ports, &runtimes, &io).await;
            return Err(error.into());
        }
    };
    let (lost_thread, mut threads_lost) = tokio::sync::mpsc::unbounded_channel();
    io.spawn(runtimes.clone().watch_threads(move |lost| {
        // Nobody hears it only when the program stops.
        let _ = lost_thread.send(lost);
    }));
    let early = tokio::select! {
        () = wait_until_ready(&program) => None,
        signal = signals.next() => Some(End::Signal(signal)),
    };
    announce(&banner::render(config, &api, &program.face.status()));

    let end = loop {
        if let Some(end) = early {
            break end;
        }
        tokio::select! {
            signal = signals.next() => break End::Signal(signal),
            path = program.lost() => break End::Lost(path),
            Some(lost) = threads_lost.recv() => match lost {
                ThreadLost::Replaced(place) => tracing::error!(?place, "an actor thread hangs: its actors move"),
                ThreadLost::Again(place) => break End::Lost(format!("the actor thread {place:?}")),
            },
        }
    };
    if let End::Signal(signal) = &end {
        tracing::info!(signal, "stopping");
        announce("stopping");
    }
    stop(Some(api), program, ports, &runtimes, &io).await;
    match end {
        End::Signal(_) => Ok(()),
        End::Lost(path) => Err(ServeError::Lost { path }),
    }
}

/// Not ready, no new calls, calls in flight finish; actors in reverse order; last flush.
async fn stop(api: Option<Running>, program: Program, ports: Ports, runtimes: &Runtimes, io: &Handle) {
    if let Some(api) = api {
        let stopping = io.spawn(api.stop(CALLS_DEADLINE)).await;
        if let Ok(stopped) = stopping
            && stopped.cut_off > 0
        {
            tracing::warn!(
                connections = stopped.cut_off,
                "still busy at the deadline, and cut off"
            );
        }
    }
    if tokio::time::timeout(ACTORS_DEADLINE, program.stop())
        .await
        .is_err()
    {
        tracing::warn!("actors did not stop in time; they are left behind");
    }
    let closing = io.spawn(ports.close());
    if tokio::time::timeout(CLOSE_DEADLINE, closing).await.is_err() {
        tracing::warn!("the store did not close in time; the next start checks it");
    }
    runtimes.stop();
}

async fn wait_until_ready(program: &Program) {
    let ready = async {
        while !program.face.status().ready {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // Not ready is no reason not to serve: it says why, and goes on trying.
    let _ = tokio::time::timeout(READY_PATIENCE, ready).await;
}

fn api_options(config: &Config) -> ApiOptions {
    let (api, limits) = (&config.api, &config.api.limits);
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let tls = api.tls.is_on().then(|| TlsOptions {
        certificate: match (&api.tls.cert_file, &api.tls.key_file) {
            (Some(certificate), Some(key)) => Some(CertificateFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            }),
            _ => None,
        },
        client_ca: api.tls.client_ca_file.clone(),
        names: api.tls.names.clone(),
        own_ca_file: Some(own_ca_file(config)),
        reload_every: TLS_RELOAD,
    });
    let mut options = ApiOptions {
        grpc: api.grpc.listen,
        http: api.http.listen,
        health: api.health.listen,
        bootstrap_token_file: Some(bootstrap_token_file(config)),
        tls,
        require_identity: api.access.require_identity,
        debug: config.debug.enabled,
        ..ApiOptions::loopback()
    };
    options.limits.message_bytes = size(limits.max_message.bytes());
    options.limits.open_streams = size(u64::from(limits.max_open_streams));
    options.limits.connections = size(u64::from(limits.max_connections));
    options.limits.streams_per_connection = limits.max_streams;
    options.limits.calls = size(u64::from(limits.max_concurrent));
    options.limits.calls_per_second = limits.rate;
    options.limits.burst = limits.burst;
    options
}

/// Where the certificate of the program's own CA is written.
fn own_ca_file(config: &Config) -> PathBuf {
    beside_store(config, ".ca.pem")
}

/// Where the first operator's token is written.
fn bootstrap_token_file(config: &Config) -> PathBuf {
    let configured = config.api.access.bootstrap_token_file.clone();
    configured.unwrap_or_else(|| beside_store(config, ".operator-token"))
}

fn beside_store(config: &Config, ending: &str) -> PathBuf {
    let mut name = config.store.path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    config.store.path.with_file_name(name)
}

/// The signals that end the program.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> Result<Self, ServeError> {
        let listen = |kind| signal(kind).map_err(ServeError::Runtime);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
