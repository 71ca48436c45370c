//! What the command line does without asking a server: run one, read the configuration, work on a store that
//! nobody has open, run the embedded cluster alone. Each function is one call into the part that knows how.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::{
    Console,
    arguments::{ConfigAction, EmbeddedAction, Format},
    failure::{Exit, Failure},
};
use crate::domain::store_report::{StoreReport, StoreVerification};

/// Where the configuration comes from.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// `--config`.
    pub file: Option<PathBuf>,
    /// All environment variables; the config picks its own.
    pub environment: Vec<(OsString, OsString)>,
    /// `--set`, in order, each with a `=`.
    pub sets: Vec<String>,
}

/// Why a store could not be worked on directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offline {
    /// A running program has it open: ask that one.
    InUse,
    /// It does not work at all.
    Failed(Failure),
}

/// `freehold serve`: until SIGTERM or Ctrl-C, which end it with `Exit::Done`.
pub fn serve(_setup: &Setup, _console: &mut Console<'_>) -> Result<Exit, Failure> {
    Err(not_wired("serve")) // wired by the integrator
}

/// `freehold config check|show|reference`.
pub fn config(
    _setup: &Setup,
    _action: &ConfigAction,
    _format: Format,
    _console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    Err(not_wired("config")) // wired by the integrator
}

/// `freehold embedded [--listen]`, `freehold embedded reset`.
pub fn embedded(
    _setup: &Setup,
    _action: Option<EmbeddedAction>,
    _listen: Option<String>,
    _console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    Err(not_wired("embedded")) // wired by the integrator
}

/// What is in the configured store.
pub fn store_info(_setup: &Setup) -> Result<StoreReport, Offline> {
    Err(Offline::Failed(not_wired("store info"))) // wired by the integrator
}

/// Reads and checks every record of the configured store.
pub fn verify_store(_setup: &Setup) -> Result<StoreVerification, Offline> {
    Err(Offline::Failed(not_wired("store verify"))) // wired by the integrator
}

/// Writes a verified copy of the configured store; returns how many records are in it.
pub fn backup_store(_setup: &Setup, _file: &Path) -> Result<u64, Offline> {
    Err(Offline::Failed(not_wired("store backup"))) // wired by the integrator
}

/// Fills the configured store, which must be empty, from a backup.
pub fn restore_store(_setup: &Setup, _file: &Path) -> Result<(), Failure> {
    Err(not_wired("store restore")) // wired by the integrator
}

/// Makes the configured store forget which cluster it belongs to.
pub fn rebind_store(_setup: &Setup) -> Result<(), Failure> {
    Err(not_wired("store rebind")) // wired by the integrator
}

/// Reads a backup from end to end; returns how many records are in it.
pub fn verify_backup(_file: &Path) -> Result<u64, Failure> {
    Err(not_wired("store backup")) // wired by the integrator
}

fn not_wired(command: &str) -> Failure {
    Failure::failed(format!("`freehold {command}` is not connected yet"))
}
