//! Status owns the answer to "are you ready, and if not, why?".
//!
//! Owns: the status document.
//! Listens: `inventory.source`, `inventory.cluster`; the store's health at every poll.
//! Publishes: `status`, when anything but an age changed.
//! Persists: nothing.
//! Stops when: the root stops it.
//! After a restart: reads its topics again; reasons that stood before keep their time.

use futures::StreamExt as _;
use serde::Serialize;

use super::{
    behaviour::{Behaviour, Handles, Message, Scope},
    wiring::Wiring,
};
use crate::{
    bus::{Claim, KeyWriter},
    domain::{
        actor::FaultClass,
        status::{ClusterIdentity, Parts, Status, StatusReason, StoreSummary, reasons},
        supervision::Kind,
    },
};

/// Something that the status hangs on may have changed.
#[derive(Debug)]
pub struct PartChanged;

impl Message for PartChanged {
    type Reply = ();
}

/// Time to look at what cannot be watched: ages, and the store's health.
#[derive(Debug)]
pub struct PollDue;

impl Message for PollDue {
    type Reply = ();
}

/// The status as of now, from what the bus and the store tell.
#[must_use]
pub fn assess(wiring: &Wiring, before: &[StatusReason]) -> Status {
    let source = wiring.bus.inventory_source.get("");
    let handle = wiring.bus.inventory_cluster.get("");
    let store = wiring.store.health();
    let parts = Parts {
        source: source.as_deref(),
        reported: handle.map_or((0, 0), |handle| (handle.nodes, handle.revision)),
        max_age: wiring.settings.max_age,
        store_healthy: store.healthy,
        now: wiring.clock.monotonic(),
    };
    let reasons = reasons(parts.troubles(), before, wiring.clock.wall());
    let address = wiring.cluster.describe();
    Status {
        version: crate::VERSION.to_owned(),
        revision: crate::REVISION.to_owned(),
        started_at: wiring.started_at,
        ready: reasons.is_empty(),
        reasons,
        mode: wiring.settings.mode.clone(),
        maintenance: false,
        cluster: ClusterIdentity {
            kind: address.kind,
            uid: source.as_ref().and_then(|source| source.cluster_uid.clone()),
            server: address.server,
        },
        inventory: parts.inventory(),
        reservations: 0,
        leases: 0,
        store: StoreSummary {
            path: store.path,
            bytes: store.bytes,
            healthy: store.healthy,
        },
        recovered: wiring.recovery,
    }
}

/// The keeper of the status document.
#[derive(Debug)]
pub struct StatusKeeper {
    wiring: Wiring,
    writer: Option<KeyWriter<Status>>,
    published: Option<Status>,
}

impl StatusKeeper {
    /// A keeper that has not looked yet.
    #[must_use]
    pub fn new(wiring: Wiring) -> Self {
        Self {
            wiring,
            writer: None,
            published: None,
        }
    }

    fn publish(&mut self) {
        let last = self.wiring.bus.status.get("");
        let before = last.as_deref().map_or(&[][..], |status| &status.reasons);
        let status = assess(&self.wiring, before);
        let same = self
            .published
            .as_ref()
            .is_some_and(|published| without_ages(published) == without_ages(&status));
        if same {
            return;
        }
        if self
            .published
            .as_ref()
            .is_none_or(|published| published.ready != status.ready)
        {
            let reasons: Vec<&str> = status
                .reasons
                .iter()
                .map(|reason| reason.message.as_str())
                .collect();
            tracing::info!(ready = status.ready, ?reasons, "readiness");
        }
        if let Some(writer) = &self.writer
            && let Err(superseded) = writer.publish(status.clone())
        {
            tracing::debug!(%superseded, "status not published");
        }
        self.published = Some(status);
    }
}

/// A status without what changes all the time.
fn without_ages(status: &Status) -> Status {
    let mut status = status.clone();
    status.inventory.age_ms = status.inventory.age_ms.map(|_| 0);
    status.store.bytes = 0;
    for reason in &mut status.reasons {
        reason.message.clear();
    }
    status
}

/// What the keeper shows.
#[derive(Debug, Serialize)]
pub struct View {
    ready: bool,
    reasons: Vec<String>,
}

impl Behaviour for StatusKeeper {
    const KIND: Kind = Kind::Status;
    type View = View;

    fn start(&mut self, scope: &mut Scope<'_, Self>) {
        let claim = Claim {
            path: scope.path().to_owned(),
            generation: scope.generation(),
        };
        match self.wiring.bus.status.claim("", claim) {
            Ok(writer) => self.writer = Some(writer),
            Err(refused) => return scope.fail(FaultClass::Invariant, refused.to_string()),
        }
        scope.follow(
            self.wiring
                .bus
                .inventory_source
                .subscribe()
                .into_stream()
                .map(|_| PartChanged),
        );
        scope.follow(
            self.wiring
                .bus
                .inventory_cluster
                .subscribe()
                .into_stream()
                .map(|_| PartChanged),
        );
        self.publish();
        scope.after(self.wiring.settings.poll_period, PollDue);
    }

    fn view(&self) -> View {
        let status = self.published.as_ref();
        View {
            ready: status.is_some_and(|status| status.ready),
            reasons: status
                .into_iter()
                .flat_map(|s| &s.reasons)
                .map(|reason| reason.code.clone())
                .collect(),
        }
    }
}

impl Handles<PartChanged> for StatusKeeper {
    fn handle(&mut self, _: PartChanged, _: &mut Scope<'_, Self>) {
        self.publish();
    }
}

impl Handles<PollDue> for StatusKeeper {
    fn handle(&mut self, _: PollDue, scope: &mut Scope<'_, Self>) {
        self.publish();
        scope.after(self.wiring.settings.poll_period, PollDue);
    }
}
