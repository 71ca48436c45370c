//! Why a store is not opened, and what to do about it.

use std::path::PathBuf;

use thiserror::Error;

use super::sealed::KeyError;

/// Why a store was not opened. Nothing in it was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The directory cannot be used.
    #[error("the store directory {path} cannot be used ({reason}): make it writable or set store.path")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Another process has it.
    #[error("the store {path} is in use by process {pid}: stop it first, or set another store.path")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Who has it.
        pid: String,
    },
    /// There is none.
    #[error("there is no store in {path}: check store.path")]
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// A newer release wrote it.
    #[error(
        "the store {path} has format {found}, written by freehold {written_by}; this release knows up to {known}: run that release or a newer one"
    )]
    NewerFormat {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest known here.
        known: u32,
        /// The release that wrote it.
        written_by: String,
    },
    /// A newer release wrote a record.
    #[error(
        "record {key} in {path} is {kind} version {found}, written by freehold {written_by}; this release knows up to {known}: run that release or a newer one"
    )]
    NewerRecord {
        /// The directory.
        path: PathBuf,
        /// Where it is.
        key: String,
        /// What it is.
        kind: String,
        /// Its version.
        found: u32,
        /// The newest known here.
        known: u32,
        /// The release that wrote last.
        written_by: String,
    },
    /// There is data but nothing that says what it is.
    #[error(
        "{path}/FORMAT cannot be read ({reason}): put it back, or move the directory away and `freehold store restore` a backup"
    )]
    BadFormatFile {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It is damaged.
    #[error(
        "the store {path} is damaged: {problem}; it is left as it was, with a copy in {evidence}: move it away and `freehold store restore` a backup"
    )]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// Where a copy is.
        evidence: PathBuf,
    },
    /// The end of it is gone.
    #[error(
        "the store {path} lost records: commit {acknowledged} was acknowledged, {found} is the last one there; it is left as it was, with a copy in {evidence}: move it away and `freehold store restore` a backup"
    )]
    Lost {
        /// The directory.
        path: PathBuf,
        /// The last commit that was acknowledged.
        acknowledged: u64,
        /// The last one there.
        found: u64,
        /// Where a copy is.
        evidence: PathBuf,
    },
    /// It could not be brought up to the present format.
    #[error("the store {path} could not be brought from format {from} to {to} ({reason}); it is unchanged")]
    Migration {
        /// The directory.
        path: PathBuf,
        /// Its format.
        from: u32,
        /// The present one.
        to: u32,
        /// What went wrong.
        reason: String,
    },
    /// The key is missing or wrong.
    #[error(transparent)]
    Key(#[from] KeyError),
}
