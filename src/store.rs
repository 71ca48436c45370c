//! The store: sled behind the `Store` port, and its twin in memory.
//!
//! **Directory.** `store.path` holds
//!
//! | name | what |
//! |---|---|
//! | `LOCK` | locked by the one process that uses the store; its pid |
//! | `FORMAT` | the format, the release that wrote it and the name of the data directory; read before anything else is touched, replaced atomically |
//! | `sled-N/` | the data directory of sled; compaction and migration write the next one and switch `FORMAT` |
//! | `ACKNOWLEDGED` | the number of the last commit that was acknowledged |
//! | `evidence/` | what was damaged, as it was found |
//! | `format-N-at-C.backup` | made before a migration from format N |
//!
//! The key that seals secrets is by default outside, beside the directory.
//!
//! **Keys.** One tree. Keys below a zero byte are the store's own: `\0meta` (format, epoch, cluster, key id, clean
//! stop) and `\0state` (number of the last commit, number of records, and the sum of all their
//! fingerprints). Everything else belongs to callers: `request/`, `request-time/` … Every value
//! is stored behind a CRC-32 over key and value; what callers put in is a versioned record
//! (`ports::store::record`).
//!
//! **Flush points.** One thread holds the only handle. Whatever waits in its queue becomes one sled batch in
//! the order of the calls, together with the new `\0state`; then sled's flush, then `fdatasync` of the log and of new
//! blobs (sled's flush itself makes no fsync); then `ACKNOWLEDGED` is written, and the callers are answered.
//! So what is durable is a prefix of what was asked, and nothing is acknowledged before it is durable.
//!
//! **Crash.** sled drops an incomplete batch, which was never acknowledged. At the start every record
//! is read and checked, and the sum of their fingerprints must be that of `\0state`: a record that is gone,
//! old or changed is noticed even if sled skipped it in silence. If the last commit is older than `ACKNOWLEDGED`, the end of
//! the log is gone, which is noticed too. `ACKNOWLEDGED` itself is written after each commit but synced only every few
//! seconds and at a clean stop: exact after a crash of the process; after a loss of power it may be a few seconds old, never
//! too new. So the one loss that can go unseen is that of the last seconds before a power cut, on a disk that did not keep
//! what it said it had synced.
//! Damage ends the start with a message, the files as they were found, and a copy of them in `evidence/`.
//!
//! **Failed flush.** Everything in flight is ambiguous: its callers are told so. The handle is dropped,
//! the directory opened again, everything verified, and what was never acknowledged is undone with the
//! values remembered from before; then `rebuilds` counts up and the store goes on. Until then every call gets `Unavailable`.
//!
//! **Space.** sled reuses the space of removed records by and by (measured: about eight times the live bytes at constant churn).
//! When a start finds the log much larger than what it holds, it is written anew.

mod acknowledged;
mod backend;
pub mod backup;
mod directory;
mod evidence;
mod layout;
mod maintain;
pub mod memory;
mod migrate;
mod open;
mod open_error;
mod options;
mod queue;
mod quiet;
mod read;
mod recover;
pub mod sealed;
mod sled_backend;
mod sled_store;
mod snapshot;
mod writer;

#[cfg(test)]
mod contract;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod formats;

pub use self::{
    layout::{BoundCluster, FORMAT},
    maintain::{StoreInfo, VerifyReport, info_of, verify_directory},
    open::{Opened, Recovery},
    open_error::OpenError,
    options::{FreeSpace, OnFlush, Options, default_key_file},
    sled_store::{SledStore, WrongCluster},
};
