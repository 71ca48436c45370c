//! Work on a store that no process has open, and what its errors mean on the command line.

use std::{io, path::Path, sync::Arc};

use super::{
    failure::{Exit, Failure},
    local::Setup,
};
use crate::{
    app,
    domain::store_report::{StoreReport, StoreVerification},
    ports::{clock::SystemClock, store::StoreError},
    store::{self, OpenError, Options, SledStore, backup::BackupError},
};

/// Why a store could not be worked on directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offline {
    /// A running program has it open: that one can be asked.
    InUse,
    /// It does not work at all.
    Failed(Failure),
}

impl<T: Into<Failure>> From<T> for Offline {
    fn from(error: T) -> Self {
        Self::Failed(error.into())
    }
}

pub fn info(setup: &Setup) -> Result<StoreReport, Offline> {
    let config = setup.load()?;
    Ok(app::report_of(
        store::info_of(&config.store.path).map_err(offline)?,
    ))
}

pub fn verify(setup: &Setup) -> Result<StoreVerification, Offline> {
    let config = setup.load()?;
    let found = store::verify_directory(&config.store.path).map_err(offline)?;
    Ok(StoreVerification {
        records: found.records,
        problems: found.problems,
    })
}

/// Writes a verified copy; returns how many records are in it.
pub fn backup(setup: &Setup, file: &Path) -> Result<u64, Offline> {
    with_store(setup, async |store| {
        Ok(store::backup::write_backup(store.backup_stream(), file)
            .await?
            .records)
    })
}

/// Makes the store forget which cluster it belongs to; says which it was.
pub fn rebind(setup: &Setup) -> Result<Option<String>, Offline> {
    with_store(setup, async |store| {
        let previous = store.unbind_cluster().await?;
        Ok(previous.map(|cluster| format!("{} ({})", cluster.name, cluster.uid)))
    })
}

/// Fills the configured store, which must be empty, from a backup.
pub fn restore(setup: &Setup, file: &Path) -> Result<u64, Failure> {
    let config = setup.load()?;
    Ok(store::backup::restore(file, &config.store.path)?.records)
}

/// Opens the configured store, which must be there, and closes it in order afterwards.
fn with_store<T>(
    setup: &Setup,
    work: impl AsyncFnOnce(&SledStore) -> Result<T, Failure>,
) -> Result<T, Offline> {
    let config = setup.load()?;
    // Opening would make a new one where there is none; looking does not.
    store::info_of(&config.store.path).map_err(offline)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the runtime could not be started: {error}")))?;
    let options = Options {
        // Nothing is sealed or unsealed here.
        key_file: None,
        ..Options::at(&config.store.path, Arc::new(SystemClock::start()))
    };
    let opened = SledStore::open(options).map_err(offline)?;
    runtime.block_on(async {
        let done = work(&opened.store).await;
        opened.store.close().await.map_err(Failure::from)?;
        Ok(done?)
    })
}

fn offline(error: OpenError) -> Offline {
    match error {
        OpenError::Locked { .. } => Offline::InUse,
        error => Offline::Failed(Failure::from(error)),
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let (exit, code) = match &error {
            OpenError::Locked { .. } => (Exit::Conflict, "store_locked"),
            OpenError::NoStore { .. } => (Exit::NotFound, "no_store"),
            OpenError::Damaged { .. } | OpenError::Lost { .. } | OpenError::BadFormatFile { .. } => {
                (Exit::Failed, "store_damaged")
            }
            OpenError::NewerFormat { .. } | OpenError::NewerRecord { .. } => (Exit::Failed, "store_newer"),
            OpenError::Unusable { .. } => (Exit::Failed, "store_unusable"),
            OpenError::Migration { .. } => (Exit::Failed, "store_migration"),
            OpenError::Key(_) => (Exit::Failed, "store_key"),
        };
        Self::new(exit, code, chain(&error))
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        let (exit, code) = match &error {
            BackupError::Exists { .. } => (Exit::Conflict, "exists"),
            BackupError::NotEmpty { .. } => (Exit::Conflict, "not_empty"),
            BackupError::Damaged { .. } => (Exit::BadInput, "backup_damaged"),
            BackupError::Newer { .. } => (Exit::BadInput, "backup_newer"),
            BackupError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                (Exit::NotFound, "not_found")
            }
            BackupError::Io { .. }
            | BackupError::Store(_)
            | BackupError::BrokeOff { .. }
            | BackupError::Restore { .. } => (Exit::Failed, "failed"),
        };
        Self::new(exit, code, chain(&error))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::failed(chain(&error))
    }
}

/// The whole chain on one line: Display never repeats its source.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
