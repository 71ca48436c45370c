//! The embedded cluster as the rest of the program uses it: started with options, spoken to through an
//! ordinary `kube::Client` without sockets, served on a port when asked, stopped in order.
//!
//! It is simulated from end to end: nothing here touches a machine. Several may live in one process; each
//! has its own tasks on the runtime it was started on, and they end with it.

mod keeper;
mod transport;

pub use transport::Transport;

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use self::keeper::Kept;
use super::{
    api::{self, Api},
    faults::{BadFault, Fault, Faults},
    fleet::{Fleet, FleetError},
    journal::{Journal, JournalError},
    objects::{Objects, ObjectsOptions, Resource},
    serve::{Credentials, ServeError, Server},
    world::{Pace, World, WorldOptions, containers::SimulatedContainers},
};
use crate::ports::clock::Clock;

/// How many changes are remembered for watches, per resource and over all.
const HISTORY: usize = 8192;

/// How long controllers that failed rest.
const BEFORE_ANEW: Duration = Duration::from_secs(1);

/// What an embedded cluster is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many sample nodes; without effect when a fleet file is given.
    pub nodes: usize,
    /// A fleet file.
    pub fleet: Option<PathBuf>,
    /// How fast simulated things happen: 1 is life's own pace, 0 is at once.
    pub speed: f64,
    /// What stands for chance: the same seed gives the same trace.
    pub seed: u64,
    /// The directory that remembers the objects; none forgets them.
    pub persist: Option<PathBuf>,
    /// Faults from the beginning.
    pub faults: Vec<Fault>,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    /// Twelve sample nodes at life's own pace, forgotten at the end.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            nodes: 12,
            fleet: None,
            speed: 1.0,
            seed: 1,
            persist: None,
            faults: Vec::new(),
            clock,
        }
    }
}

/// Why an embedded cluster does not start or is not served.
#[derive(Debug, Error)]
pub enum EmbeddedError {
    /// The speed makes no sense.
    #[error("embedded.speed must be a number from 0 (at once) on, not {speed}")]
    Speed {
        /// What was given.
        speed: f64,
    },
    /// The fleet makes no sense.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// A fault makes no sense.
    #[error(transparent)]
    Fault(#[from] BadFault),
    /// The memory cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// It cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// What was found of an earlier run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// How many objects.
    pub objects: usize,
    /// Whether the last process stopped in order.
    pub clean: bool,
    /// Bytes of a torn last entry that were dropped.
    pub dropped_bytes: u64,
}

/// A simulated Kubernetes cluster.
pub struct Embedded {
    api: Api,
    transport: Transport,
    recovered: Option<Recovered>,
    credentials: Arc<Credentials>,
    /// Says when a change is written down; none when nothing is remembered.
    kept: Option<Kept>,
    world: JoinHandle<()>,
    keeper: Option<JoinHandle<()>>,
    stop_keeper: DropGuard,
    servers: TaskTracker,
    /// Stops the world and the servers.
    stop: DropGuard,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Embedded")
            .field("revision", &self.api.objects.revision())
            .finish_non_exhaustive()
    }
}

impl Embedded {
    /// Starts a cluster on the present runtime.
    pub async fn start(options: Options) -> Result<Self, EmbeddedError> {
        if !options.speed.is_finite() || options.speed < 0.0 {
            return Err(EmbeddedError::Speed { speed: options.speed });
        }
        let fleet = match &options.fleet {
            Some(file) => Fleet::from_file(file)?,
            None => Fleet::samples(options.nodes)?,
        };
        let faults = Faults::new(options.seed);
        for fault in options.faults {
            faults.add(fault)?;
        }
        let clock = options.clock;
        let settings = ObjectsOptions {
            clock: Arc::clone(&clock),
            history: HISTORY,
            uid_seed: options.seed,
        };
        let mut recovered = None;
        let (objects, journal) = match &options.persist {
            None => (Objects::new(settings), None),
            Some(directory) => {
                let (journal, loaded) = Journal::open(directory)?;
                let objects = match loaded {
                    None => Objects::new(settings),
                    Some(loaded) => {
                        recovered = Some(Recovered {
                            objects: loaded.snapshot.objects.len(),
                            clean: loaded.clean,
                            dropped_bytes: loaded.dropped_bytes,
                        });
                        let objects = Objects::restore(settings, loaded.snapshot);
                        refuse_a_torso(&objects, directory)?;
                        objects
                    }
                };
                (objects, Some(journal))
            }
        };
        let credentials = Arc::new(Credentials::prepare(options.persist.as_deref())?);
        let before = objects.revision();
        fleet.install(&objects, clock.as_ref())?;
        let stop_keeper = CancellationToken::new();
        let (kept, keeper) = match journal {
            None => (None, None),
            Some(journal) => {
                let (kept, task) = keeper::begin(journal, objects.clone(), before, stop_keeper.clone())?;
                (Some(kept), Some(tokio::spawn(task)))
            }
        };
        let pace = Pace::new(options.speed);
        let containers = SimulatedContainers {
            objects: objects.clone(),
            clock: Arc::clone(&clock),
            pace,
        };
        let api = Api {
            objects: objects.clone(),
            faults,
            containers: Arc::new(containers),
            clock: Arc::clone(&clock),
            admit_anonymous: true,
            admin_token: None,
            token_key: credentials.token_key(),
        };
        let root_ca = credentials.ca_for_namespaces();
        let stop = CancellationToken::new();
        let world = live(
            WorldOptions {
                objects,
                clock,
                pace,
                seed: options.seed,
                root_ca,
            },
            stop.clone(),
        );
        let world = tokio::spawn(world);
        let router = keeper::after_writing(api::router(api.clone()), kept.clone());
        let transport = Transport::new(router);
        Ok(Self {
            api,
            transport,
            recovered,
            credentials,
            kept,
            world,
            keeper,
            stop_keeper: stop_keeper.drop_guard(),
            servers: TaskTracker::new(),
            stop: stop.drop_guard(),
        })
    }

    /// A client of the cluster, as its administrator, without sockets.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.transport(), "default")
    }

    /// What a client is made of, for those who put something in front of it.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport.clone()
    }

    /// The faults, to be changed while it runs.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.api.faults.clone()
    }

    /// The objects themselves, past the API.
    #[must_use]
    pub fn objects(&self) -> Objects {
        self.api.objects.clone()
    }

    /// What was found of an earlier run; none when there was none.
    #[must_use]
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// Serves the cluster over HTTPS and writes a kubeconfig for its administrator; returns the address it
    /// listens on. It is served until the cluster stops.
    pub async fn serve(&self, listen: SocketAddr, kubeconfig: &Path) -> Result<SocketAddr, EmbeddedError> {
        let api = Api {
            admit_anonymous: false,
            admin_token: Some(self.credentials.admin_token()),
            ..self.api.clone()
        };
        let router = keeper::after_writing(api::router(api), self.kept.clone());
        let server = Server::bind(listen, &self.credentials).await?;
        let address = server.address();
        self.credentials.write_kubeconfig(address, kubeconfig)?;
        self.servers.spawn(server.run(router, self.stop.token().clone()));
        Ok(address)
    }

    /// Stops everything in order; what happened until then is remembered.
    pub async fn stop(self) {
        drop(self.stop);
        self.servers.close();
        self.servers.wait().await;
        let world = self.world.await;
        drop(self.stop_keeper);
        let keeper = match self.keeper {
            Some(keeper) => keeper.await,
            None => Ok(()),
        };
        for failure in [world, keeper].into_iter().filter_map(Result::err) {
            tracing::error!(%failure, "a task of the embedded cluster did not end in order");
        }
    }
}

/// Runs the controllers, and starts them anew should one of them ever panic: they look at everything again.
async fn live(options: WorldOptions, stop: CancellationToken) {
    while let Err(failure) = tokio::spawn(World::new(options.clone()).run(stop.clone())).await {
        tracing::error!(%failure, "the embedded cluster's controllers failed and start anew");
        if stop.is_cancelled() {
            return;
        }
        tokio::time::sleep(BEFORE_ANEW).await;
    }
}

/// Every cluster has a `kube-system`: without it the beginning is gone, such as a snapshot that was removed.
fn refuse_a_torso(objects: &Objects, directory: &Path) -> Result<(), JournalError> {
    if objects
        .get(&Resource::new("", "namespaces"), "", "kube-system")
        .is_some()
    {
        return Ok(());
    }
    Err(JournalError::Damaged {
        path: directory.to_owned(),
        offset: 0,
        what: "the namespace kube-system is missing, so its beginning is gone".to_owned(),
    })
}

/// Forgets the objects a directory remembers, so that the next start makes a new cluster. The CA and the
/// administrator's token stay, and with them the kubeconfigs. Returns whether there was anything.
pub fn reset(directory: &Path) -> Result<bool, EmbeddedError> {
    Ok(super::journal::reset(directory)?)
}

#[cfg(test)]
mod tests;
