//! `freehold store`: through the server while it runs, on its directory while it does not.
//!
//! With `--server` the server is asked. Without it the store of the configuration is opened; when a running
//! program holds it, the server of the same configuration is asked, if it is the one that uses this store.

use std::{fs, path::Path};

use futures::StreamExt as _;

use super::{
    Console,
    amounts::size,
    arguments::{ClientArguments, Format, StoreAction},
    connection::Connection,
    failure::{Exit, Failure},
    local::Setup,
    offline::{self, Offline},
    table::Table,
};
use crate::{
    api::{
        proto::private_v1::{self, store_service_client::StoreServiceClient},
        wire,
    },
    domain::store_report::{StoreReport, StoreVerification},
    store::backup::{BackupError, write_backup},
};

pub fn run(
    action: &StoreAction,
    client: &ClientArguments,
    setup: &Setup,
    format: Format,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    match action {
        StoreAction::Restore { file } => {
            let records = offline::restore(setup, file)?;
            console.say(&format!("{records} records are restored from {}", file.display()));
        }
        StoreAction::Rebind { confirm: _ } => {
            let previous = offline::rebind(setup).map_err(|why| match why {
                Offline::InUse => Failure::new(Exit::Conflict, "store_locked", "the store is in use")
                    .hint("stop the server first"),
                Offline::Failed(failure) => failure,
            })?;
            let previous = previous.unwrap_or_else(|| "no cluster".to_owned());
            console.say(&format!(
                "the store belonged to {previous}; it will belong to the cluster that the next start finds"
            ));
        }
        StoreAction::Info => {
            let report = here_or_there(client, setup, || offline::info(setup), online_info)?;
            console.show(format, &report, info_table)?;
        }
        StoreAction::Verify => {
            let found = here_or_there(client, setup, || offline::verify(setup), online_verify)?;
            console.show(format, &found, verification_table)?;
            if !found.problems.is_empty() {
                return Ok(Exit::No);
            }
        }
        StoreAction::Backup { file } => {
            let records = here_or_there(
                client,
                setup,
                || offline::backup(setup, file),
                async |connection| online_backup(connection, file).await,
            )?;
            console.say(&format!(
                "{records} records are in {}, and verified",
                file.display()
            ));
        }
    }
    Ok(Exit::Done)
}

/// Works on the directory unless a server is named or holds it.
fn here_or_there<T>(
    client: &ClientArguments,
    setup: &Setup,
    here: impl FnOnce() -> Result<T, Offline>,
    there: impl AsyncFnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut client = client.clone();
    let mut holder_of = None;
    if client.server.is_none() {
        match here() {
            Ok(result) => return Ok(result),
            Err(Offline::Failed(failure)) => return Err(failure),
            Err(Offline::InUse) => {
                // Whoever holds it is most likely the server of the same configuration.
                let config = setup.load()?;
                let scheme = if config.api.tls.is_on() { "https" } else { "http" };
                client.server = Some(format!("{scheme}://{}", config.api.grpc.listen));
                holder_of = Some(config.store.path);
            }
        }
    }
    let mut result = None;
    super::ask(async {
        let connection = Connection::open(&client)?;
        if let Some(path) = &holder_of {
            refuse_another_store(path, &online_info(&connection).await?)?;
        }
        result = Some(there(&connection).await?);
        Ok(Exit::Done)
    })?;
    result.ok_or_else(|| Failure::failed("interrupted"))
}

/// An answer about another store than the one that was meant would be worse than none.
fn refuse_another_store(meant: &Path, answers: &StoreReport) -> Result<(), Failure> {
    let theirs = Path::new(&answers.path);
    let same = theirs == meant
        || (theirs.is_absolute() && fs::canonicalize(meant).is_ok_and(|meant| Path::new(&meant) == theirs));
    if same {
        return Ok(());
    }
    let message = format!(
        "{} is in use, but the server that answers uses {}",
        meant.display(),
        theirs.display()
    );
    Err(Failure::new(Exit::Conflict, "another_store", message)
        .hint("name the server that uses it with --server"))
}

async fn online_info(connection: &Connection) -> Result<StoreReport, Failure> {
    let mut client = StoreServiceClient::new(connection.wire().await?);
    let call = client.info(connection.request(private_v1::StoreInfoRequest {}));
    Ok(wire::store::parse(connection.answer(call).await?))
}

async fn online_verify(connection: &Connection) -> Result<StoreVerification, Failure> {
    let mut client = StoreServiceClient::new(connection.wire().await?);
    let call = client.verify(connection.request(private_v1::VerifyStoreRequest {}));
    Ok(wire::store::parse_verification(connection.answer(call).await?))
}

/// Receives a copy, which is verified before it gets its name.
async fn online_backup(connection: &Connection, file: &Path) -> Result<u64, Failure> {
    if file.exists() {
        let path = file.to_owned();
        return Err(BackupError::Exists { path }.into());
    }
    let mut client = StoreServiceClient::new(connection.wire().await?);
    // The stream lasts as long as the store is large: no deadline.
    let call = client.backup(private_v1::BackupStoreRequest {});
    let chunks = connection.answer(call).await?;
    let mut broken = None;
    let chunks = chunks.map(|chunk| match chunk {
        Ok(chunk) => Ok(bytes::Bytes::from(chunk.data)),
        Err(status) => {
            let failure = connection.refused(status);
            let message = failure.message.clone();
            broken = Some(failure);
            Err(message)
        }
    });
    let written = write_backup(chunks, file).await;
    match (written, broken) {
        (Ok(header), _) => Ok(header.records),
        (Err(_), Some(failure)) => Err(failure),
        (Err(error), None) => Err(error.into()),
    }
}

fn info_table(report: &StoreReport) -> String {
    let bytes = |bytes: u64| size(i64::try_from(bytes).unwrap_or(i64::MAX));
    let mut facts = Table::facts();
    facts.fact("path", &*report.path);
    facts.fact("format", report.format.to_string());
    facts.fact("healthy", super::amounts::yes_no(report.healthy));
    facts.fact("size", bytes(report.bytes));
    facts.fact("free", report.free_bytes.map_or_else(|| "?".to_owned(), bytes));
    facts.fact(
        "cluster",
        report
            .cluster_uid
            .clone()
            .unwrap_or_else(|| "none yet".to_owned()),
    );
    facts.fact("starts", report.epoch.to_string());
    facts.fact("records", report.records.to_string());
    for (kind, count) in &report.records_by_kind {
        facts.fact(&format!("  {kind}"), count.to_string());
    }
    facts.render()
}

fn verification_table(found: &StoreVerification) -> String {
    let mut text = format!(
        "{} records checked, {} problems\n",
        found.records,
        found.problems.len()
    );
    for problem in &found.problems {
        text.push_str(&super::table::one_line(problem));
        text.push('\n');
    }
    text
}
