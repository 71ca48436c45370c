//! `freehold store`: through the server while it runs, on its directory while it does not.
//!
//! With `--server` the server is asked. Without it the store of the configuration is opened; when a running
//! program holds it, that one is asked at the default address.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::{
    Console,
    amounts::size,
    arguments::{ClientArguments, Format, StoreAction},
    connection::Connection,
    failure::{Exit, Failure},
    local::{self, Offline, Setup},
    table::Table,
};
use crate::{
    api::{
        proto::private_v1::{self, store_service_client::StoreServiceClient},
        wire,
    },
    domain::store_report::{StoreReport, StoreVerification},
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
            local::restore_store(setup, file)?;
            console.say(&format!("the store is restored from {}", file.display()));
        }
        StoreAction::Rebind { confirm: _ } => {
            local::rebind_store(setup)?;
            console.say("the store will belong to the cluster that the next start finds");
        }
        StoreAction::Info => {
            let report = here_or_there(client, || local::store_info(setup), online_info)?;
            console.show(format, &report, info_table)?;
        }
        StoreAction::Verify => {
            let found = here_or_there(client, || local::verify_store(setup), online_verify)?;
            console.show(format, &found, verification_table)?;
            if !found.problems.is_empty() {
                return Ok(Exit::No);
            }
        }
        StoreAction::Backup { file } => {
            let records = here_or_there(
                client,
                || local::backup_store(setup, file),
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
    here: impl FnOnce() -> Result<T, Offline>,
    there: impl AsyncFnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if client.server.is_none() {
        match here() {
            Ok(result) => return Ok(result),
            Err(Offline::Failed(failure)) => return Err(failure),
            Err(Offline::InUse) => {}
        }
    }
    let mut result = None;
    super::ask(async {
        let connection = Connection::open(client)?;
        result = Some(there(&connection).await?);
        Ok(Exit::Done)
    })?;
    result.ok_or_else(|| Failure::failed("interrupted"))
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

/// Receives a copy into a file beside the target, verifies it, and only then gives it its name.
async fn online_backup(connection: &Connection, file: &Path) -> Result<u64, Failure> {
    if file.exists() {
        return Err(exists(file));
    }
    let part = PartFile::create(file)?;
    let mut client = StoreServiceClient::new(connection.wire().await?);
    // The stream lasts as long as the store is large: no deadline.
    let mut chunks = connection
        .answer(client.backup(private_v1::BackupStoreRequest {}))
        .await?;
    let mut output = &part.file;
    while let Some(chunk) = chunks
        .message()
        .await
        .map_err(|status| connection.refused(status))?
    {
        output
            .write_all(&chunk.data)
            .map_err(|error| unwritable(file, &error))?;
    }
    part.file.sync_all().map_err(|error| unwritable(file, &error))?;
    let records = local::verify_backup(&part.path)?;
    part.finish(file)?;
    Ok(records)
}

/// A file that is removed again unless it is finished.
struct PartFile {
    path: PathBuf,
    file: File,
}

impl PartFile {
    fn create(target: &Path) -> Result<Self, Failure> {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".part-{}", std::process::id()));
        let path = PathBuf::from(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| unwritable(&path, &error))?;
        Ok(Self { path, file })
    }

    fn finish(self, target: &Path) -> Result<(), Failure> {
        // A link, unlike a rename, never replaces what appeared meanwhile.
        fs::hard_link(&self.path, target).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => exists(target),
            _ => unwritable(target, &error),
        })
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        // A leftover part is only untidy.
        let _ = fs::remove_file(&self.path);
    }
}

fn exists(file: &Path) -> Failure {
    Failure::new(
        Exit::Conflict,
        "exists",
        format!("{} exists already", file.display()),
    )
    .hint("choose another name, or remove it first")
}

fn unwritable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{} cannot be written: {error}", file.display()))
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
