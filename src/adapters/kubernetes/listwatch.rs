//! List, then watch, for ever: pages, resumes, bookmarks, 410. What the server sends is read object by
//! object, so that one that makes no sense never hides the others.

use std::{collections::VecDeque, pin::Pin, time::Duration};

use futures::{Stream, StreamExt as _};
use kube::{
    api::{ListParams, WatchEvent, WatchParams},
    core::Request,
};
use serde::Deserialize;
use serde_json::Value;

use super::classify;
use crate::ports::cluster::{ClusterError, ErrorClass, Observation};

/// Objects asked for in one page.
const PAGE: u32 = 500;
/// A watch that says nothing for so much longer than it was to last, not even that it ends, is dead.
const GRACE: Duration = Duration::from_secs(30);
/// How long an answer to a list, or the first word of a watch, may take. The client itself tries some errors
/// again for minutes, in which nobody would hear that anything is wrong.
const ANSWER: Duration = Duration::from_secs(30);
/// The first wait after an error; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest wait after an error.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

type Changes = Pin<Box<dyn Stream<Item = Result<WatchEvent<Value>, kube::Error>> + Send>>;

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

enum Step {
    /// Ask for the next page; none asked yet when `token` is absent.
    List { token: Option<String> },
    /// Start to watch after a revision.
    Resume { revision: String },
    /// Read what the server sends.
    Follow { changes: Changes, revision: String },
    /// Wait after an error, then go on with this.
    Wait { next: Box<Step> },
}

struct Machine<K, V> {
    client: kube::Client,
    path: &'static str,
    /// After this long the server ends a watch, and its resumption shows that we are still heard.
    lasting: Duration,
    parse: fn(&Value) -> Option<(K, V)>,
    name_of: fn(&Value) -> Option<K>,
    step: Step,
    failures: u32,
    ready: VecDeque<Observation<K, V>>,
}

/// Everything about the objects under a path, from now on.
pub(super) fn observe<K, V>(
    client: kube::Client,
    path: &'static str,
    lasting: Duration,
    parse: fn(&Value) -> Option<(K, V)>,
    name_of: fn(&Value) -> Option<K>,
) -> impl Stream<Item = Observation<K, V>> + Send
where
    K: Send + 'static,
    V: Send + 'static,
{
    let machine = Machine {
        client,
        path,
        lasting,
        parse,
        name_of,
        step: Step::List { token: None },
        failures: 0,
        ready: VecDeque::new(),
    };
    futures::stream::unfold(machine, |mut machine| async move {
        loop {
            if let Some(observation) = machine.ready.pop_front() {
                return Some((observation, machine));
            }
            machine.advance().await;
        }
    })
}

impl<K, V> Machine<K, V> {
    async fn advance(&mut self) {
        let step = std::mem::replace(&mut self.step, Step::List { token: None });
        match step {
            Step::List { token } => self.list(token).await,
            Step::Resume { revision } => self.resume(revision).await,
            Step::Follow { changes, revision } => self.follow(changes, revision).await,
            Step::Wait { next } => {
                tokio::time::sleep(wait_after(self.failures)).await;
                self.step = *next;
            }
        }
    }

    async fn list(&mut self, token: Option<String>) {
        let first = token.is_none();
        let mut parameters = ListParams::default().limit(PAGE);
        parameters.continue_token = token;
        let page = match Request::new(self.path).list(&parameters) {
            Ok(request) => in_time(self.client.request::<Page>(request)).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        match page {
            Ok(page) => {
                if first {
                    self.ready.push_back(Observation::ListStarted);
                }
                for item in &page.items {
                    match (self.parse)(item) {
                        Some((key, value)) => self.ready.push_back(Observation::ListItem(key, value)),
                        None => tracing::warn!(path = self.path, "an object without a name was left out"),
                    }
                }
                match page.metadata.next.filter(|next| !next.is_empty()) {
                    Some(next) => self.step = Step::List { token: Some(next) },
                    None => {
                        self.ready.push_back(Observation::Listed);
                        self.step = Step::Resume {
                            revision: page.metadata.resource_version,
                        };
                    }
                }
            }
            // Also when a page is gone in the middle: what was heard of this list is dropped with it.
            Err(error) => self.broken(&error, Step::List { token: None }),
        }
    }

    async fn resume(&mut self, revision: String) {
        let seconds = u32::try_from(self.lasting.as_secs()).unwrap_or(u32::MAX).max(1);
        let parameters = WatchParams::default().timeout(seconds);
        let started = match Request::new(self.path).watch(&parameters, &revision) {
            Ok(request) => in_time(self.client.request_events::<Value>(request)).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        match started {
            Ok(changes) => {
                self.failures = 0;
                self.ready.push_back(Observation::Current);
                self.step = Step::Follow {
                    changes: Box::pin(changes),
                    revision,
                };
            }
            Err(error) if is_gone(&error) => self.step = Step::List { token: None },
            Err(error) => self.broken(&error, Step::Resume { revision }),
        }
    }

    async fn follow(&mut self, mut changes: Changes, mut revision: String) {
        let event = match tokio::time::timeout(self.lasting.saturating_add(GRACE), changes.next()).await {
            Ok(Some(Ok(event))) => event,
            // The server ended it in good order, or fell silent: either way the next answer tells.
            Ok(None) | Err(_) => {
                self.step = Step::Resume { revision };
                return;
            }
            Ok(Some(Err(error))) => return self.broken(&error, Step::Resume { revision }),
        };
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                note_revision(&mut revision, &object);
                if let Some((key, value)) = (self.parse)(&object) {
                    self.ready.push_back(Observation::Changed(key, value));
                }
            }
            WatchEvent::Deleted(object) => {
                note_revision(&mut revision, &object);
                self.ready
                    .extend((self.name_of)(&object).map(Observation::Removed));
            }
            WatchEvent::Bookmark(bookmark) => {
                revision = bookmark.metadata.resource_version;
                self.ready.push_back(Observation::Current);
            }
            WatchEvent::Error(status) if status.code == 410 => {
                self.step = Step::List { token: None };
                return;
            }
            WatchEvent::Error(status) => {
                let error = kube::Error::Api(status);
                return self.broken(&error, Step::Resume { revision });
            }
        }
        self.step = Step::Follow { changes, revision };
    }

    fn broken(&mut self, error: &kube::Error, next: Step) {
        self.failures = self.failures.saturating_add(1);
        let next = if is_gone(error) {
            Step::List { token: None }
        } else {
            next
        };
        self.ready.push_back(Observation::Broken(describe(error)));
        self.step = Step::Wait { next: Box::new(next) };
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(super::no_answer(ANSWER)),
    }
}

fn describe(error: &kube::Error) -> ClusterError {
    match classify(error) {
        // A source is tried again whatever it says; that is no bug of the caller's.
        ClusterError {
            class: ErrorClass::Bug,
            message,
        } => ClusterError {
            class: ErrorClass::Retryable,
            message,
        },
        error => error,
    }
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}

fn note_revision(revision: &mut String, object: &Value) {
    if let Some(newer) = object
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
    {
        newer.clone_into(revision);
    }
}

fn wait_after(failures: u32) -> Duration {
    FIRST_WAIT
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(LONGEST_WAIT)
}
