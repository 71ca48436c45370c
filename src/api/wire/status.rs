//! `freehold.v1.Status`.

use super::{WireError, parse_time, render_time};
use crate::{api::proto::v1, domain::status};

/// Domain → wire.
#[must_use]
pub fn render(status: status::Status) -> v1::Status {
    v1::Status {
        version: status.version,
        revision: status.revision,
        started_at: Some(render_time(status.started_at)),
        ready: status.ready,
        reasons: status
            .reasons
            .into_iter()
            .map(|reason| v1::StatusReason {
                part: reason.part,
                code: reason.code,
                message: reason.message,
                since: Some(render_time(reason.since)),
            })
            .collect(),
        mode: status.mode,
        maintenance: status.maintenance,
        cluster: Some(v1::ClusterIdentity {
            kind: status.cluster.kind,
            uid: status.cluster.uid,
            server: status.cluster.server,
        }),
        inventory: Some(v1::InventorySummary {
            revision: status.inventory.revision,
            age_ms: status.inventory.age_ms,
            nodes: status.inventory.nodes,
        }),
        reservations: status.reservations,
        leases: status.leases,
        store: Some(v1::StoreSummary {
            path: status.store.path,
            bytes: status.store.bytes,
            healthy: status.store.healthy,
        }),
        recovered: Some(v1::Recovery {
            unclean: status.recovered.unclean,
            reservations: status.recovered.reservations,
            leases: status.recovered.leases,
            hostnames: status.recovered.hostnames,
            dropped_records: status.recovered.dropped_records,
            took_ms: status.recovered.took_ms,
        }),
    }
}

/// Wire → domain.
///
/// # Errors
/// When a part is missing.
pub fn parse(status: v1::Status) -> Result<status::Status, WireError> {
    let cluster = status.cluster.ok_or(WireError::missing("cluster"))?;
    let inventory = status.inventory.ok_or(WireError::missing("inventory"))?;
    let store = status.store.ok_or(WireError::missing("store"))?;
    let recovered = status.recovered.ok_or(WireError::missing("recovered"))?;
    let reasons = status
        .reasons
        .into_iter()
        .map(|reason| {
            Ok(status::StatusReason {
                part: reason.part,
                code: reason.code,
                message: reason.message,
                since: parse_time("since", reason.since)?,
            })
        })
        .collect::<Result<_, WireError>>()?;
    Ok(status::Status {
        version: status.version,
        revision: status.revision,
        started_at: parse_time("started_at", status.started_at)?,
        ready: status.ready,
        reasons,
        mode: status.mode,
        maintenance: status.maintenance,
        cluster: status::ClusterIdentity {
            kind: cluster.kind,
            uid: cluster.uid,
            server: cluster.server,
        },
        inventory: status::InventorySummary {
            revision: inventory.revision,
            age_ms: inventory.age_ms,
            nodes: inventory.nodes,
        },
        reservations: status.reservations,
        leases: status.leases,
        store: status::StoreSummary {
            path: store.path,
            bytes: store.bytes,
            healthy: store.healthy,
        },
        recovered: status::Recovery {
            unclean: recovered.unclean,
            reservations: recovered.reservations,
            leases: recovered.leases,
            hostnames: recovered.hostnames,
            dropped_records: recovered.dropped_records,
            took_ms: recovered.took_ms,
        },
    })
}
