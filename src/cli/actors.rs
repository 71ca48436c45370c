//! `freehold actors`.

use jiff::Timestamp;

use super::{
    Console,
    amounts::age,
    arguments::Format,
    connection::{Connection, LARGEST_ANSWER},
    failure::{Exit, Failure},
    follow::show_changes,
    table::Table,
};
use crate::{
    api::{
        proto::private_v1::{self, debug_service_client::DebugServiceClient},
        wire::{self, WireError},
    },
    domain::actor::{ActorReport, ActorState},
    ports::clock::{Clock as _, SystemClock},
};

/// Which part of the tree.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: Option<String>,
    pub depth: Option<u32>,
}

pub async fn run(
    connection: &Connection,
    asked: &Asked,
    watch: bool,
    format: Format,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    if watch {
        let fetch = async || fetch(connection, asked).await;
        return show_changes(connection, "actors", format, console, fetch, table).await;
    }
    let actors = fetch(connection, asked).await?;
    console.show(format, &actors, table)?;
    Ok(Exit::Done)
}

async fn fetch(connection: &Connection, asked: &Asked) -> Result<ActorReport, Failure> {
    let mut client =
        DebugServiceClient::new(connection.wire().await?).max_decoding_message_size(LARGEST_ANSWER);
    let request = private_v1::ListActorsRequest {
        path: asked.path.clone().unwrap_or_default(),
        depth: asked.depth,
    };
    let call = client.list_actors(connection.request(request));
    let actor = connection.answer(call).await?.actor;
    Ok(wire::actor::parse(
        actor.ok_or(WireError::Missing { field: "actor" })?,
    )?)
}

fn table(root: &ActorReport) -> String {
    let mut table = Table::new([
        "ACTOR",
        "KIND",
        "STATE",
        "FOR",
        "RESTARTS",
        "MAILBOX",
        "LAST FAULT",
    ]);
    add(&mut table, root, &root.path, 0, SystemClock::start().wall());
    table.render()
}

fn add(table: &mut Table, actor: &ActorReport, name: &str, level: usize, now: Timestamp) {
    let fault = actor
        .last_fault
        .as_ref()
        .map(|fault| format!("{} ago: {}", age(fault.at, now), fault.message))
        .unwrap_or_default();
    table.row([
        format!("{:indent$}{name}", "", indent = level * 2),
        actor.kind.clone(),
        state(actor.state).to_owned(),
        age(actor.since, now),
        actor.restarts.to_string(),
        actor.mailbox.to_string(),
        fault,
    ]);
    for child in &actor.children {
        let name = child.path.rsplit('/').next().unwrap_or(&child.path);
        add(table, child, name, level + 1, now);
    }
}

fn state(state: ActorState) -> &'static str {
    match state {
        ActorState::Starting => "starting",
        ActorState::Running => "running",
        ActorState::Backoff => "backoff",
        ActorState::Stopping => "stopping",
        ActorState::Failed => "failed",
    }
}
