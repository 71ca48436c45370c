//! The register of all actors: who there is, how they are, and how to reach their guardians.

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::RwLock;
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{reference::Refused, slot::Slot};
use crate::domain::{
    actor::{ActorReport, ProvokedFault},
    supervision::{Place, policy},
};

/// The register of all actors.
#[derive(Clone, Debug, Default)]
pub struct ActorTree(Arc<RwLock<BTreeMap<String, Entry>>>);

/// An actor and its guardian.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) slot: Arc<Slot>,
    pub(super) stop: CancellationToken,
    pub(super) done: watch::Receiver<bool>,
    pub(super) retry: Arc<Notify>,
    pub(super) provoke: Arc<dyn Fn(ProvokedFault) -> Result<(), Refused> + Send + Sync>,
    /// Ascending in order of start.
    pub(super) order: u64,
}

impl fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slot.fmt(formatter)
    }
}

/// Why a fault could not be provoked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProvokeError {
    /// No such actor.
    #[error("there is no actor {path:?}: `freehold actors` lists them")]
    NotFound {
        /// As asked.
        path: String,
    },
    /// It does not take messages now.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl ActorTree {
    pub(super) fn enter(&self, entry: Entry) {
        self.0.write().insert(entry.slot.path().to_owned(), entry);
    }

    /// Removes an actor, unless a newer one stands in its place.
    pub(super) fn leave(&self, slot: &Arc<Slot>) {
        let mut entries = self.0.write();
        if entries
            .get(slot.path())
            .is_some_and(|entry| Arc::ptr_eq(&entry.slot, slot))
        {
            entries.remove(slot.path());
        }
    }

    /// An actor and those below it, down to so many levels. Paths may leave out the `root/` in front.
    #[must_use]
    pub fn describe(&self, path: Option<&str>, depth: Option<u32>) -> Option<ActorReport> {
        let entries = self.0.read();
        let path = full_path(path.unwrap_or_default());
        let mut reports = entries
            .get(&path)
            .into_iter()
            .chain(
                entries
                    .range(format!("{path}/")..format!("{path}0"))
                    .map(|(_, entry)| entry),
            )
            .filter(|entry| {
                depth.is_none_or(|depth| levels_below(&path, entry.slot.path()) <= depth as usize)
            })
            .map(|entry| entry.slot.report());
        let mut top = reports.next().filter(|report| report.path == path)?;
        for report in reports {
            place(&mut top, report);
        }
        Some(top)
    }

    /// Provokes a fault in an actor.
    pub fn provoke(&self, path: &str, fault: ProvokedFault) -> Result<(), ProvokeError> {
        let entry = self.0.read().get(&full_path(path)).cloned();
        let entry = entry.ok_or_else(|| ProvokeError::NotFound {
            path: path.to_owned(),
        })?;
        Ok((entry.provoke)(fault)?)
    }

    /// Has a quarantined actor tried again now.
    pub fn retry(&self, path: &str) -> Result<(), ProvokeError> {
        let entry = self.0.read().get(&full_path(path)).cloned();
        entry
            .ok_or_else(|| ProvokeError::NotFound {
                path: path.to_owned(),
            })?
            .retry
            .notify_waiters();
        Ok(())
    }

    /// Ends those below a path, in reverse order of start; the many of one pool together.
    pub(super) async fn stop_below(&self, path: &str) {
        let mut children: Vec<Entry> = {
            let entries = self.0.read();
            let below = entries.range(format!("{path}/")..format!("{path}0"));
            below
                .map(|(_, entry)| entry)
                .filter(|e| levels_below(path, e.slot.path()) == 1)
                .cloned()
                .collect()
        };
        children.sort_by_key(|entry| std::cmp::Reverse(entry.order));
        let (objects, others): (Vec<_>, Vec<_>) = children
            .into_iter()
            .partition(|entry| policy(entry.slot.kind()).place == Place::Objects);
        for entry in &objects {
            entry.stop.cancel();
        }
        for mut entry in objects.into_iter().chain(others) {
            entry.stop.cancel();
            // An error means that the guardian is gone, which is what is waited for.
            let _ = entry.done.wait_for(|done| *done).await;
        }
    }
}

fn full_path(path: &str) -> String {
    match path.trim_matches('/') {
        "" | "root" => "root".to_owned(),
        path if path.starts_with("root/") => path.to_owned(),
        path => format!("root/{path}"),
    }
}

fn levels_below(ancestor: &str, path: &str) -> usize {
    path.bytes()
        .filter(|byte| *byte == b'/')
        .count()
        .saturating_sub(ancestor.bytes().filter(|b| *b == b'/').count())
}

/// Puts a report under its parent. Reports come in path order, so that parents come first, and a parent
/// is the last one of its level.
fn place(above: &mut ActorReport, report: ActorReport) {
    let belongs_below = |child: &ActorReport| {
        report
            .path
            .strip_prefix(&child.path)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    match above.children.iter_mut().rev().find(|child| belongs_below(child)) {
        Some(parent) => place(parent, report),
        None => above.children.push(report),
    }
}
