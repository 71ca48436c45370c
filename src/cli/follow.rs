//! Following topics across broken connections and restarts of the server.

use std::time::Duration;

use serde::Serialize;
use tonic::{Code, Streaming};

use super::{
    Console,
    arguments::Format,
    connection::{Connection, LARGEST_ANSWER},
    failure::{Exit, Failure},
};
use crate::{
    api::{
        proto::v1::{self, event_service_client::EventServiceClient},
        wire,
    },
    domain::event::BusEvent,
};

const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Changes that come within this time of each other are shown together.
const SETTLE: Duration = Duration::from_millis(100);

/// Follows topics: reconnects with backoff and goes on after the last event.
pub struct Follower<'a> {
    connection: &'a Connection,
    topics: Vec<String>,
    after: Option<u64>,
    events: Option<Streaming<v1::Event>>,
    connected_before: bool,
    wait: Duration,
}

/// What a follower learns.
#[derive(Debug)]
pub enum Followed {
    /// A connection stands, for the first time or again.
    Connected,
    /// Something happened.
    Event(BusEvent),
}

impl<'a> Follower<'a> {
    pub fn new(connection: &'a Connection, topics: Vec<String>, after: Option<u64>) -> Self {
        Self {
            connection,
            topics,
            after,
            events: None,
            connected_before: false,
            wait: FIRST_WAIT,
        }
    }

    /// The next thing to know. A first connection that fails is an error; a later one is tried again.
    pub async fn next(&mut self, console: &mut Console<'_>) -> Result<Followed, Failure> {
        loop {
            let Some(events) = &mut self.events else {
                match self.connect().await {
                    Ok(()) => return Ok(Followed::Connected),
                    Err(broken) => self.recover(broken, console).await?,
                }
                continue;
            };
            let broken = match events.message().await {
                Ok(Some(event)) => {
                    let event = wire::event::parse(event)?;
                    self.after = Some(event.sequence);
                    self.wait = FIRST_WAIT;
                    return Ok(Followed::Event(event));
                }
                Ok(None) => Broken {
                    failure: Failure::unreachable("the server ended the stream"),
                    code: Code::Unavailable,
                },
                Err(status) => Broken {
                    code: status.code(),
                    failure: self.connection.refused(status),
                },
            };
            self.events = None;
            self.recover(broken, console).await?;
        }
    }

    async fn connect(&mut self) -> Result<(), Broken> {
        let wire = self.connection.wire().await?;
        let mut client = EventServiceClient::new(wire).max_decoding_message_size(LARGEST_ANSWER);
        let request = v1::WatchEventsRequest {
            topics: self.topics.clone(),
            after: self.after,
        };
        let mut code = Code::Unavailable;
        let call = async {
            // No deadline of gRPC's: it would end the stream as well.
            client
                .watch(request)
                .await
                .inspect_err(|status| code = status.code())
        };
        match self.connection.answer(call).await {
            Ok(events) => {
                self.events = Some(events);
                self.connected_before = true;
                Ok(())
            }
            Err(failure) => Err(Broken { failure, code }),
        }
    }

    async fn recover(&mut self, broken: Broken, console: &mut Console<'_>) -> Result<(), Failure> {
        if broken.code == Code::OutOfRange && self.after.take().is_some() {
            console.say(&format!(
                "{}; starting over with the present values",
                broken.failure.message
            ));
            return Ok(());
        }
        let passing = broken.failure.exit == Exit::Unreachable
            || matches!(
                broken.code,
                Code::ResourceExhausted | Code::Cancelled | Code::Aborted
            );
        if !self.connected_before || !passing {
            return Err(broken.failure);
        }
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        console.say(&format!(
            "{}; trying again in {}",
            broken.failure.message,
            super::amounts::span(wait)
        ));
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// A connection that failed, and the code the server gave, if it was the server.
struct Broken {
    failure: Failure,
    code: Code,
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            code: Code::Unavailable,
        }
    }
}

/// Prints a document, and again whenever something happens on its topics and it is another one.
pub async fn show_changes<T: Serialize>(
    connection: &Connection,
    topic: &str,
    format: Format,
    console: &mut Console<'_>,
    fetch: impl AsyncFn() -> Result<T, Failure>,
    table: impl Fn(&T) -> String,
) -> Result<Exit, Failure> {
    let mut follower = Follower::new(connection, vec![topic.to_owned()], None);
    let mut shown = None;
    loop {
        follower.next(console).await?;
        while let Ok(followed) = tokio::time::timeout(SETTLE, follower.next(console)).await {
            followed?;
        }
        let document = match fetch().await {
            Ok(document) => document,
            // The follower will see the broken connection too, and say when it stands again.
            Err(failure) if failure.exit == Exit::Unreachable => continue,
            Err(failure) => return Err(failure),
        };
        let essence = essence(&document);
        if shown.as_ref() != Some(&essence) {
            console.show_next(format, &document, &table)?;
            shown = Some(essence);
        }
    }
}

/// The document without what changes by the mere passing of time.
fn essence<T: Serialize>(document: &T) -> serde_json::Value {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.remove("age_ms");
                fields.values_mut().for_each(strip);
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(document).unwrap_or_default();
    strip(&mut value);
    value
}
