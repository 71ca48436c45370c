//! `freehold status`.

use super::{
    Console,
    amounts::{age, age_ms, known, size, span, yes_no},
    arguments::Format,
    connection::Connection,
    failure::{Exit, Failure},
    follow::show_changes,
    table::Table,
};
use crate::{
    api::{
        proto::v1::{self, status_service_client::StatusServiceClient},
        wire::{self, WireError},
    },
    domain::status::Status,
    ports::clock::{Clock as _, SystemClock},
};
use std::time::Duration;

pub async fn run(
    connection: &Connection,
    watch: bool,
    format: Format,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    if watch {
        return show_changes(
            connection,
            "status",
            format,
            console,
            async || fetch(connection).await,
            table,
        )
        .await;
    }
    let status = fetch(connection).await?;
    console.show(format, &status, table)?;
    Ok(Exit::Done)
}

async fn fetch(connection: &Connection) -> Result<Status, Failure> {
    let mut client = StatusServiceClient::new(connection.wire().await?);
    let call = client.get(connection.request(v1::GetStatusRequest {}));
    let status = connection.answer(call).await?.status;
    Ok(wire::status::parse(
        status.ok_or(WireError::Missing { field: "status" })?,
    )?)
}

fn table(status: &Status) -> String {
    let now = SystemClock::start().wall();
    let mut facts = Table::facts();
    facts.fact("ready", yes_no(status.ready));
    for reason in &status.reasons {
        let since = age(reason.since, now);
        facts.fact(
            "",
            format!(
                "{}: {} ({}, for {since})",
                reason.part, reason.message, reason.code
            ),
        );
    }
    facts.fact("version", format!("{} ({})", status.version, status.revision));
    facts.fact(
        "started",
        format!("{} ({} ago)", status.started_at, age(status.started_at, now)),
    );
    let maintenance = if status.maintenance { ", maintenance" } else { "" };
    facts.fact("mode", format!("{}{maintenance}", status.mode));
    let cluster = &status.cluster;
    facts.fact("cluster", format!("{} at {}", cluster.kind, cluster.server));
    facts.fact("cluster uid", known(cluster.uid.as_ref()));
    let inventory = &status.inventory;
    facts.fact(
        "inventory",
        format!(
            "{} nodes, revision {}, {} old",
            known(inventory.nodes),
            inventory.revision,
            age_ms(inventory.age_ms)
        ),
    );
    facts.fact("reservations", status.reservations.to_string());
    facts.fact("leases", status.leases.to_string());
    let store = &status.store;
    let health = if store.healthy { "healthy" } else { "not healthy" };
    let bytes = size(i64::try_from(store.bytes).unwrap_or(i64::MAX));
    facts.fact("store", format!("{}, {bytes}, {health}", store.path));
    let recovered = &status.recovered;
    let end = if recovered.unclean {
        "after an unclean end"
    } else {
        "after a clean stop"
    };
    facts.fact(
        "recovered",
        format!(
            "{} reservations, {} leases, {} hostnames, {} records dropped, in {}, {end}",
            recovered.reservations,
            recovered.leases,
            recovered.hostnames,
            recovered.dropped_records,
            span(Duration::from_millis(recovered.took_ms)),
        ),
    );
    facts.render()
}
