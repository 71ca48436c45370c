//! `freehold.v1.Event`.

use super::{WireError, parse_time, render_time};
use crate::{
    api::proto::v1::{self, event},
    domain::event::{BusEvent, Change},
};

/// Domain → wire.
#[must_use]
pub fn render(event: BusEvent) -> v1::Event {
    v1::Event {
        topic: event.topic,
        key: event.key,
        sequence: event.sequence,
        at: Some(render_time(event.at)),
        change: Some(match event.change {
            Change::Value(value) => event::Change::ValueJson(value.to_string()),
            Change::Deleted => event::Change::Deleted(true),
            Change::Missed(count) => event::Change::Missed(count),
            Change::Reset => event::Change::Reset(true),
        }),
    }
}

/// Wire → domain.
///
/// # Errors
/// When a part is missing or the value is no JSON.
pub fn parse(event: v1::Event) -> Result<BusEvent, WireError> {
    let change = match event.change.ok_or(WireError::missing("change"))? {
        event::Change::ValueJson(text) => Change::Value(
            serde_json::from_str(&text).map_err(|error| WireError::malformed("value_json", error))?,
        ),
        event::Change::Deleted(_) => Change::Deleted,
        event::Change::Missed(count) => Change::Missed(count),
        event::Change::Reset(_) => Change::Reset,
    };
    Ok(BusEvent {
        topic: event.topic,
        key: event.key,
        sequence: event.sequence,
        at: parse_time("at", event.at)?,
        change,
    })
}
