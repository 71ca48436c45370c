//! What runs in the pods, as far as the API server has to ask: their logs, and commands run in them.
//! The protocol (selection of lines, WebSocket channels) is the API's; the content is the world's.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::sim::objects::Refusal;

/// The simulated containers.
pub trait Containers: fmt::Debug + Send + Sync + 'static {
    /// What a container printed, and will print when `follow`ed.
    fn log(&self, container: &ContainerRef, which: LogOf, follow: bool) -> Result<Log, Refusal>;

    /// Runs a command in a container, or attaches to what runs there, until it ends.
    fn exec(&self, session: Session) -> BoxFuture<'static, Result<Exit, Refusal>>;
}

/// One container of one pod.
#[derive(Clone, Debug)]
pub struct ContainerRef {
    /// The pod as it is stored.
    pub pod: Arc<Value>,
    /// The container's name; it is one of the pod's.
    pub container: String,
}

/// Which run of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOf {
    /// The present one.
    Present,
    /// The one before its last restart.
    Previous,
}

/// What a container printed.
pub struct Log {
    /// So far, oldest first.
    pub past: Vec<LogLine>,
    /// From then on, until the container ends; nothing when it was not asked to follow.
    pub future: BoxStream<'static, LogLine>,
}

impl fmt::Debug for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Log")
            .field("past", &self.past.len())
            .finish_non_exhaustive()
    }
}

/// One line, without its line break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was printed.
    pub at: Timestamp,
    /// What.
    pub text: String,
}

/// A command that runs in a container, and the channels to it. Dropping a sender closes that stream.
#[derive(Debug)]
pub struct Session {
    /// Where.
    pub container: ContainerRef,
    /// What to run; `None` attaches to the main process.
    pub command: Option<Vec<String>>,
    /// Whether it has a terminal (then there is no separate stderr).
    pub tty: bool,
    /// What the client types; closed at once when the client has no stdin.
    pub stdin: mpsc::Receiver<Bytes>,
    /// What the command prints.
    pub stdout: mpsc::Sender<Bytes>,
    /// What the command complains.
    pub stderr: mpsc::Sender<Bytes>,
    /// New sizes of the client's terminal: width, height.
    pub resize: mpsc::Receiver<(u16, u16)>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code.
    pub code: i32,
}
