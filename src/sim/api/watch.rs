//! Watches: events from a revision on, or the present objects first; bookmarks; and 410 when the past is gone.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::{Bytes, BytesMut};
use futures::stream;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    Call, answer,
    kinds::Kind,
    list::{bad_options, revision},
    request::Format,
    selectors::Selection,
};
use crate::sim::objects::{Cause, Change, ChangeKind, Cursor, Gone, Refusal};

/// How often a quiet watch hears that it is up to date.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// How long a watch lives that does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// How long a watch may live at most.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How many of the first objects are written at once.
const CHUNK: usize = 64;

/// Answers a watch.
pub fn watch(call: &Call) -> Result<Response, Refusal> {
    let selection = Selection::read(&call.kind, &call.place.namespace, &call.query)?;
    let version = revision(call.query.get("resourceVersion"))?;
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let initial = initial_events(call)?;
    let timeout = call
        .query
        .number::<u64>("timeoutSeconds")?
        .filter(|seconds| *seconds > 0);
    let timeout = timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs).min(LONGEST);

    let lists_first = initial.unwrap_or(matches!(version, None | Some(0)));
    let namespace = (!call.place.namespace.is_empty()).then_some(call.place.namespace.as_str());
    let objects = &call.api.objects;
    let mut first = VecDeque::new();
    let mut end_of_first = None;
    let cursor = if lists_first {
        let (listed, cursor) = objects.list_and_follow(&call.kind.storage, namespace);
        first = listed
            .items
            .into_iter()
            .filter(|object| selection.matches(object))
            .collect();
        end_of_first = (initial == Some(true)).then_some(listed.revision);
        Ok(cursor)
    } else {
        let present = objects.revision();
        match version.filter(|version| *version > 0) {
            // A revision from another life of this cluster: the client must list again.
            Some(future) if future > present => Err(Gone {
                after: future,
                oldest: present,
            }),
            after => objects.cursor(Some(&call.kind.storage), after),
        }
    };
    let started = Instant::now();
    let follower = Follower {
        encoder: Encoder {
            kind: call.kind.clone(),
            format: call.format,
            clock: Arc::clone(&call.api.clock),
        },
        selection,
        source: match cursor {
            Ok(cursor) => Source::Following(Box::new(cursor)),
            Err(gone) => Source::Lost(gone),
        },
        first,
        end_of_first,
        bookmarks,
        next_bookmark: started + BOOKMARK_EVERY,
        until: started + timeout,
    };
    let events = stream::unfold(follower, |mut follower| async move {
        let bytes = follower.next().await?;
        Some((Ok::<Bytes, io::Error>(bytes), follower))
    });
    Ok(answer::json_response(StatusCode::OK, Body::from_stream(events)))
}

/// Whether the present objects are asked for as events, with a bookmark after them.
fn initial_events(call: &Call) -> Result<Option<bool>, Refusal> {
    let asked = call
        .query
        .get("sendInitialEvents")
        .map(|_| call.query.flag("sendInitialEvents"));
    match (asked, call.query.get("resourceVersionMatch")) {
        (Some(_), Some("NotOlderThan")) | (None, None) => Ok(asked),
        (Some(_), _) => {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            Err(bad_options(Cause::forbidden("resourceVersionMatch", why)))
        }
        (None, Some(_)) => {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            Err(bad_options(Cause::forbidden("resourceVersionMatch", why)))
        }
    }
}

struct Follower {
    encoder: Encoder,
    selection: Selection,
    source: Source,
    first: VecDeque<Arc<Value>>,
    /// The revision of the bookmark after the first objects, while it is still to be sent.
    end_of_first: Option<u64>,
    bookmarks: bool,
    next_bookmark: Instant,
    until: Instant,
}

enum Source {
    Following(Box<Cursor>),
    Lost(Gone),
    Ended,
}

impl Follower {
    /// The next bytes of the stream; `None` when it has ended.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.first.is_empty() {
            let mut bytes = BytesMut::new();
            for object in self.first.drain(..self.first.len().min(CHUNK)) {
                self.encoder.event(&mut bytes, "ADDED", &object);
            }
            return Some(bytes.freeze());
        }
        if let Some(revision) = self.end_of_first.take()
            && self.bookmarks
        {
            return Some(self.encoder.bookmark(revision, true));
        }
        loop {
            let cursor = match &mut self.source {
                Source::Ended => return None,
                Source::Lost(gone) => {
                    let event = Encoder::gone(*gone);
                    self.source = Source::Ended;
                    return Some(event);
                }
                Source::Following(cursor) => cursor,
            };
            match cursor.read() {
                Err(gone) => self.source = Source::Lost(gone),
                Ok(changes) => {
                    let mut bytes = BytesMut::new();
                    for change in &changes {
                        if let Some((kind, object)) = selected(&self.selection, change) {
                            self.encoder.event(&mut bytes, kind, &object);
                        }
                    }
                    if !bytes.is_empty() {
                        return Some(bytes.freeze());
                    }
                    if changes.is_empty()
                        && let Some(bytes) = self.wait().await
                    {
                        return bytes;
                    }
                }
            }
        }
    }

    /// Waits for a change, a bookmark or the end; `None` = look again.
    async fn wait(&mut self) -> Option<Option<Bytes>> {
        let Source::Following(cursor) = &mut self.source else {
            return None;
        };
        tokio::select! {
            biased;
            () = cursor.changed() => None,
            () = sleep_until(self.until) => {
                let revision = cursor.revision();
                self.source = Source::Ended;
                Some(self.bookmarks.then(|| self.encoder.bookmark(revision, false)))
            }
            () = sleep_until(self.next_bookmark), if self.bookmarks => {
                self.next_bookmark += BOOKMARK_EVERY;
                // Nothing came in between, so that everything up to the present was seen.
                match cursor.read() {
                    Ok(changes) if changes.is_empty() => {
                        let revision = cursor.revision();
                        Some(Some(self.encoder.bookmark(revision, false)))
                    }
                    Ok(changes) => {
                        let mut bytes = BytesMut::new();
                        for change in &changes {
                            if let Some((kind, object)) = selected(&self.selection, change) {
                                self.encoder.event(&mut bytes, kind, &object);
                            }
                        }
                        (!bytes.is_empty()).then(|| Some(bytes.freeze()))
                    }
                    Err(gone) => {
                        self.source = Source::Lost(gone);
                        None
                    }
                }
            }
        }
    }
}

/// The event of a change as a selection sees it: what moves in is added, what moves out is deleted.
fn selected(selection: &Selection, change: &Change) -> Option<(&'static str, Arc<Value>)> {
    let now = selection.matches(&change.object);
    let before = change
        .previous
        .as_ref()
        .is_some_and(|previous| selection.matches(previous));
    let object = Arc::clone(&change.object);
    match (change.kind, before, now) {
        (ChangeKind::Added, _, true) | (ChangeKind::Modified, false, true) => Some(("ADDED", object)),
        (ChangeKind::Modified, true, true) => Some(("MODIFIED", object)),
        (ChangeKind::Modified, true, false) => {
            let mut last = change.previous.as_deref().cloned()?;
            last["metadata"]["resourceVersion"] = json!(change.revision.to_string());
            Some(("DELETED", Arc::new(last)))
        }
        (ChangeKind::Deleted, before, now) if before || now => Some(("DELETED", object)),
        _ => None,
    }
}

struct Encoder {
    kind: Kind,
    format: Format,
    clock: Arc<dyn crate::ports::clock::Clock>,
}

impl Encoder {
    fn event(&self, bytes: &mut BytesMut, kind: &str, object: &Value) {
        let Ok(body) = answer::encode(&self.kind, self.format, self.clock.wall(), object) else {
            return;
        };
        bytes.extend_from_slice(b"{\"type\":\"");
        bytes.extend_from_slice(kind.as_bytes());
        bytes.extend_from_slice(b"\",\"object\":");
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(b"}\n");
    }

    fn bookmark(&self, revision: u64, end_of_first: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if end_of_first {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.format {
            Format::Plain => {
                json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata})
            }
            Format::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Format::Table => {
                let holder = json!({"metadata": metadata});
                let list = json!({"resourceVersion": revision.to_string()});
                super::table::render(&self.kind, self.clock.wall(), std::iter::once(&holder), &list)
            }
        };
        Bytes::from(format!("{}\n", json!({"type": "BOOKMARK", "object": object})))
    }

    fn gone(gone: Gone) -> Bytes {
        let refusal = Refusal::expired(format!(
            "too old resource version: {} ({})",
            gone.after, gone.oldest
        ));
        Bytes::from(format!(
            "{}\n",
            json!({"type": "ERROR", "object": refusal.status()})
        ))
    }
}
