//! What the API needs from the program. The app implements it; the handlers know nothing else.

use std::fmt;

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use thiserror::Error;

use crate::domain::{
    access::Identity,
    actor::{ActorReport, ProvokedFault},
    api_fault::ApiFault,
    event::BusEvent,
    inventory::Inventory,
    secret::Secret,
    status::Status,
    store_report::{StoreReport, StoreVerification},
};

/// The program, as its API sees it. Nothing here blocks.
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    /// What it is doing.
    fn status(&self) -> Status;

    /// The present status, then every change. Drives health too: when it ends nothing is served.
    fn watch_status(&self) -> BoxStream<'static, Status>;

    /// The hardware there is.
    fn inventory(&self) -> Inventory;

    /// The actors from `path` (from the root when absent) down to `depth` levels below it.
    fn actors(&self, path: Option<&str>, depth: Option<u32>) -> Option<ActorReport>;

    /// Has a quarantined actor tried again now; one that runs does not notice.
    ///
    /// # Errors
    /// When there is no such actor.
    fn retry(&self, path: &str) -> Result<(), ProvokeError>;

    /// Makes an actor fail. Only called with `debug.enabled`.
    ///
    /// # Errors
    /// When there is no such actor or it cannot be reached.
    fn provoke(&self, path: &str, fault: ProvokedFault) -> Result<(), ProvokeError>;

    /// Events of these topics (of all when empty), after that sequence. The stream is pulled: a reader
    /// that does not pull holds nobody up.
    ///
    /// # Errors
    /// When a topic is unknown or the sequence is not kept.
    fn events(
        &self,
        topics: Vec<String>,
        after: Option<u64>,
    ) -> Result<BoxStream<'static, BusEvent>, WatchError>;

    /// Everything for `/metrics`, see `ports::telemetry::Metrics::text`.
    fn metrics_text(&self) -> String;

    /// What can be said of the store.
    fn store_report(&self) -> BoxFuture<'static, Result<StoreReport, StoreUnavailable>>;

    /// Reads and checks every record.
    fn verify_store(&self) -> BoxFuture<'static, Result<StoreVerification, StoreUnavailable>>;

    /// A consistent copy, in chunks well below the message size.
    fn back_up_store(
        &self,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Result<Bytes, StoreUnavailable>>, StoreUnavailable>>;

    /// The faults of the embedded cluster's API that are set.
    ///
    /// # Errors
    /// When there is no embedded cluster.
    fn faults(&self) -> Result<Vec<ApiFault>, NotEmbedded>;

    /// Sets one more.
    ///
    /// # Errors
    /// When there is no embedded cluster, or the fault makes no sense to it.
    fn add_fault(&self, fault: ApiFault) -> Result<(), AddFaultError>;

    /// Takes all of them away.
    ///
    /// # Errors
    /// When there is no embedded cluster.
    fn clear_faults(&self) -> Result<(), NotEmbedded>;
}

/// Why an actor was not made to fail.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProvokeError {
    /// No actor has that path.
    #[error("there is no actor {path}")]
    UnknownActor {
        /// As asked.
        path: String,
    },
    /// It is there and cannot be reached.
    #[error("the actor {path} cannot be reached: {reason}")]
    Unreachable {
        /// As asked.
        path: String,
        /// Why.
        reason: String,
    },
}

/// Why events cannot be followed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WatchError {
    /// No such topic.
    #[error("there is no topic {name}")]
    UnknownTopic {
        /// As asked.
        name: String,
        /// The one most like it.
        nearest: Option<String>,
    },
    /// The sequence is too old or of another run.
    #[error("events after {after} are not kept")]
    OutOfRange {
        /// As asked.
        after: u64,
    },
}

/// The store cannot answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the store cannot answer: {reason}")]
pub struct StoreUnavailable {
    /// Why.
    pub reason: String,
}

/// Faults of the API exist in the embedded cluster only.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the cluster is not the embedded one")]
pub struct NotEmbedded;

/// Why a fault was not set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AddFaultError {
    /// There is no embedded cluster.
    #[error(transparent)]
    NotEmbedded(#[from] NotEmbedded),
    /// It makes no sense.
    #[error("{reason}")]
    Refused {
        /// Why, and what would.
        reason: String,
    },
}

/// Keeps secrets of the API, sealed.
pub trait Keeper: fmt::Debug + Send + Sync + 'static {
    /// The secret of that name.
    fn load(&self, name: &'static str) -> BoxFuture<'static, Result<Option<Secret>, KeeperError>>;

    /// Keeps a secret; the future ends when it is durable.
    fn save(&self, name: &'static str, secret: Secret) -> BoxFuture<'static, Result<(), KeeperError>>;
}

/// A secret could not be kept or read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct KeeperError {
    /// Why.
    pub reason: String,
}

/// Proves bearer tokens that are not ours, by Kubernetes TokenReview. Called once per request with
/// such a token, so an implementation should remember its answers for a little while.
pub trait TokenReviewer: fmt::Debug + Send + Sync + 'static {
    /// Who bears this token; `None` when it is not valid here.
    fn review(&self, token: Secret) -> BoxFuture<'static, Result<Option<Identity>, ReviewError>>;
}

/// Whether the token is valid could not be found out.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct ReviewError {
    /// Why.
    pub reason: String,
}
