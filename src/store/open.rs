//! Opening a store: its thread finds it good, notes the start, and then serves it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use super::{
    acknowledged::Acknowledged,
    backend::{Backend, BackendError, Opener},
    layout::{META_KEY, Meta, STATE_KEY, State},
    migrate::{FORMATS, Formats},
    open_error::OpenError,
    options::Options,
    queue::{Inbox, Shared},
    recover::Opening,
    sealed::Sealer,
    sled_backend::SledOpener,
    sled_store::SledStore,
    writer::{Upkeep, Writer},
};

/// A log is written anew when it is this many times larger than what it holds.
const MOSTLY_EMPTY: u64 = 16;

/// An open store.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: SledStore,
    /// Raised at every start; whatever outlives the process carries it.
    pub epoch: u64,
    /// Seals secrets, if a key file was given.
    pub sealer: Option<Sealer>,
    /// What was found.
    pub recovery: Recovery,
}

/// What opening a store found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The process before did not stop in order.
    pub unclean: bool,
    /// Records that are there.
    pub records: u64,
    /// Acknowledged records that are gone. Always 0: a store that lost one is not opened.
    pub dropped_records: u64,
    /// Commits that were durable but not yet acknowledged when the process ended; they are kept.
    pub unacknowledged_commits: u64,
    /// sled's snapshot was damaged; the log alone held everything. A copy is here.
    pub evidence: Option<PathBuf>,
    /// The note of the last acknowledged commit was gone: a cut log would not have been noticed.
    pub mark_missing: bool,
    /// The log was written anew.
    pub compacted: bool,
    /// The format it had before.
    pub migrated_from: Option<u32>,
    /// How long it took.
    pub took_ms: u64,
}

/// Makes the opener of a data directory; tests put faults in between.
pub(super) type MakeOpener = Box<dyn Fn(&Path) -> Box<dyn Opener> + Send>;

pub(super) fn open(options: Options) -> Result<Opened, OpenError> {
    let sled: MakeOpener = Box::new(|directory| {
        Box::new(SledOpener {
            directory: directory.to_owned(),
        })
    });
    open_with(options, sled, FORMATS)
}

/// Starts the store's thread, which opens the store and then serves it.
pub(super) fn open_with(
    options: Options,
    make_opener: MakeOpener,
    formats: Formats,
) -> Result<Opened, OpenError> {
    let path = options.path.clone();
    let (inbox, requests) = mpsc::sync_channel(options.queue);
    let (ready, opened) = mpsc::channel();
    let shared = Arc::new(Shared::new(Arc::clone(&options.clock)));
    let for_thread = Arc::clone(&shared);
    let unusable = |reason: String| OpenError::Unusable {
        path: path.clone(),
        reason,
    };
    thread::Builder::new()
        .name("store".into())
        .spawn(
            move || match prepare(options, for_thread, &make_opener, formats) {
                Ok((writer, sealer, recovery)) => {
                    let _ = ready.send(Ok((writer.meta.epoch, sealer, recovery)));
                    if let Some((reply, outcome)) = writer.run(&requests) {
                        let _ = reply.send(outcome);
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            },
        )
        .map_err(|error| unusable(error.to_string()))?;
    let (epoch, sealer, recovery) = opened
        .recv()
        .unwrap_or_else(|_| Err(unusable("its thread ended".into())))?;
    Ok(Opened {
        store: SledStore {
            inbox: Inbox(inbox),
            shared,
            format: formats.current,
        },
        epoch,
        sealer,
        recovery,
    })
}

type Prepared = (Writer, Option<Sealer>, Recovery);

fn prepare(
    options: Options,
    shared: Arc<Shared>,
    make_opener: &MakeOpener,
    formats: Formats,
) -> Result<Prepared, OpenError> {
    let started = options.clock.monotonic();
    let opening = Opening {
        path: &options.path,
        evidence_limit: options.evidence_limit,
        make_opener,
        formats,
    };
    let lock = opening.claim()?;
    let mut recovery = Recovery::default();
    let mut found = opening.find(&mut recovery)?;
    opening.check_versions(&found, &options.known_records)?;
    let sealer = match &options.key_file {
        Some(key_file) => {
            let expected = found.meta.as_ref().and_then(|meta| meta.key_id.as_deref());
            Some(Sealer::open_or_create(key_file, expected)?)
        }
        None => None,
    };
    if found.backend.bytes()
        > options
            .compact_above
            .max(found.live_bytes.saturating_mul(MOSTLY_EMPTY))
    {
        match opening.write_anew(&found) {
            Ok(data) => {
                found = opening.switch_to(found, &data)?;
                recovery.compacted = true;
            }
            // Good as it is, only large: no reason not to start.
            Err(error) => tracing::warn!(%error, "the store could not be written anew"),
        }
    }
    recovery.unclean = found.meta.as_ref().is_some_and(|meta| !meta.clean);
    let mut meta = found.meta.take().unwrap_or_else(|| Meta {
        written_by: String::new(),
        epoch: 0,
        clean: false,
        created_at: options.clock.wall(),
        cluster: None,
        key_id: None,
    });
    meta.written_by = crate::VERSION.to_owned();
    meta.epoch = meta.epoch.saturating_add(1);
    meta.clean = false;
    if let Some(sealer) = &sealer {
        meta.key_id = Some(sealer.key_id().to_owned());
    }
    let mut backend = found.backend;
    let state = note_start(backend.as_mut(), found.state, &meta).map_err(|error| opening.failed(&error))?;
    let acknowledged =
        Acknowledged::create(&options.path, state.commit).map_err(|error| opening.unusable(&error))?;
    recovery.records = found.state.records;
    let took = options.clock.monotonic().saturating_sub(started);
    recovery.took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);

    let writer = Writer {
        opener: make_opener(&options.path.join(&found.data)),
        backend: Some(backend),
        acknowledged,
        state,
        meta,
        clock: options.clock,
        min_free: options.min_free,
        free_space: options.free_space,
        on_flush: options.on_flush,
        shared,
        upkeep: Upkeep::default(),
        fences: BTreeMap::new(),
        cursors: super::snapshot::Cursors::default(),
        broken: None,
        lock,
        path: options.path,
    };
    Ok((writer, sealer, recovery))
}

/// The first commit of a process: its epoch, and that it has not stopped in order yet.
fn note_start(backend: &mut dyn Backend, mut state: State, meta: &Meta) -> Result<State, BackendError> {
    let raw = meta
        .to_raw()
        .map_err(|error| BackendError::Broken(error.to_string()))?;
    if let Some(old) = backend.get(META_KEY)? {
        state.remove(META_KEY, &old);
    }
    state.add(META_KEY, &raw);
    state.commit = state.commit.saturating_add(1);
    backend.apply(&[
        (META_KEY.to_vec(), Some(raw)),
        (STATE_KEY.to_vec(), Some(state.to_raw())),
    ])?;
    backend.flush()?;
    backend.sync()?;
    Ok(state)
}
