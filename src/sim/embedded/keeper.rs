//! Keeps the journal: writes every change down, and holds answers back until theirs is.

use std::future::Future;

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::sim::{
    journal::{Journal, JournalError},
    objects::{Cursor, Objects, Refusal},
};

/// How far the journal has come.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    objects: Objects,
    progress: watch::Receiver<Progress>,
}

#[derive(Clone, Debug)]
struct Progress {
    /// Everything up to this revision is written.
    revision: u64,
    /// Set when nothing can be written any more.
    failed: Option<String>,
}

/// Writes down what happened since `before`; what it returns keeps on doing so until it is stopped.
pub(super) fn begin(
    mut journal: Journal,
    objects: Objects,
    before: u64,
    stop: CancellationToken,
) -> Result<(Kept, impl Future<Output = ()>), JournalError> {
    // The first start, and one that changed much, is a snapshot rather than thousands of entries.
    let cursor = match objects.cursor(None, Some(before)) {
        Ok(cursor) if before > 1 => cursor,
        _ => snapshot_now(&mut journal, &objects)?,
    };
    let start = Progress {
        revision: cursor.revision(),
        failed: None,
    };
    let (sender, progress) = watch::channel(start);
    let keeper = Keeper {
        journal,
        objects: objects.clone(),
        cursor,
        progress: sender,
    };
    Ok((Kept { objects, progress }, keeper.run(stop)))
}

/// Writes everything, and gives the place from which to go on.
fn snapshot_now(journal: &mut Journal, objects: &Objects) -> Result<Cursor, JournalError> {
    loop {
        let snapshot = objects.snapshot();
        let revision = snapshot.revision;
        let size = journal.begin_compaction(snapshot)?.write()?;
        journal.compacted(size);
        // More may have happened meanwhile than is remembered: then once more.
        if let Ok(cursor) = objects.cursor(None, Some(revision)) {
            return Ok(cursor);
        }
    }
}

struct Keeper {
    journal: Journal,
    objects: Objects,
    cursor: Cursor,
    progress: watch::Sender<Progress>,
}

impl Keeper {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            if let Err(error) = self.catch_up().await {
                return self.give_up(&error);
            }
            tokio::select! {
                biased;
                () = self.cursor.changed() => {}
                () = stop.cancelled() => break,
            }
        }
        let ended = self.catch_up().await.and_then(|()| self.journal.close());
        if let Err(error) = ended {
            tracing::error!(%error, "the embedded cluster's journal did not end in order");
        }
    }

    /// Writes all that happened.
    async fn catch_up(&mut self) -> Result<(), JournalError> {
        loop {
            match self.cursor.read() {
                Ok(changes) if changes.is_empty() => break,
                Ok(changes) => self.journal.append(&changes)?,
                Err(_) => self.cursor = snapshot_now(&mut self.journal, &self.objects)?,
            }
            let revision = self.cursor.revision();
            self.progress.send_modify(|progress| progress.revision = revision);
        }
        let revision = self.cursor.revision();
        self.progress.send_modify(|progress| progress.revision = revision);
        if self.journal.wants_compaction() {
            let compaction = self.journal.begin_compaction(self.objects.snapshot())?;
            if let Ok(written) = tokio::task::spawn_blocking(move || compaction.write()).await {
                self.journal.compacted(written?);
            }
        }
        Ok(())
    }

    fn give_up(&self, error: &JournalError) {
        tracing::error!(%error, "the embedded cluster can no longer remember: changes are refused");
        self.progress
            .send_modify(|progress| progress.failed = Some(error.to_string()));
    }
}

/// Answers requests that change something only when the change is written.
pub(super) fn after_writing(router: Router, kept: Option<Kept>) -> Router {
    match kept {
        None => router,
        Some(kept) => router.layer(middleware::from_fn_with_state(kept, hold_back)),
    }
}

async fn hold_back(State(mut kept): State<Kept>, request: Request, next: Next) -> Response {
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if changes && let Some(why) = kept.failed() {
        return refuse(&why);
    }
    let response = next.run(request).await;
    if !changes {
        return response;
    }
    let revision = kept.objects.revision();
    let reached = kept
        .progress
        .wait_for(|progress| progress.revision >= revision || progress.failed.is_some())
        .await;
    // A keeper that is gone went with the cluster; nobody is left to ask.
    match reached.map(|progress| progress.failed.clone()) {
        Ok(Some(why)) => refuse(&why),
        Ok(None) | Err(_) => response,
    }
}

impl Kept {
    fn failed(&self) -> Option<String> {
        self.progress.borrow().failed.clone()
    }
}

fn refuse(why: &str) -> Response {
    let refusal = Refusal::internal(format!("the embedded cluster cannot write its journal: {why}"));
    let status = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, axum::Json(refusal.status())).into_response()
}
