//! What the outside world sees of the bus: one line of `freehold watch`, one message of `EventService`.

use jiff::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeMap};

/// Something that happened on a topic.
#[derive(Clone, Debug, PartialEq)]
pub struct BusEvent {
    /// The topic's name.
    pub topic: String,
    /// The key within the topic.
    pub key: String,
    /// Its place in the order of all events; what a reader resumes after.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    pub change: Change,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The key has this value now, or the stream carried it.
    Value(serde_json::Value),
    /// The key is gone.
    Deleted,
    /// The reader fell behind by so many events of a stream topic.
    Missed(u64),
    /// What the reader knew of this retained topic no longer holds; present values follow.
    Reset,
}

impl Serialize for BusEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("topic", &self.topic)?;
        map.serialize_entry("key", &self.key)?;
        map.serialize_entry("sequence", &self.sequence)?;
        map.serialize_entry("at", &self.at)?;
        match &self.change {
            Change::Value(value) => map.serialize_entry("value", value)?,
            Change::Deleted => map.serialize_entry("deleted", &true)?,
            Change::Missed(count) => map.serialize_entry("missed", count)?,
            Change::Reset => map.serialize_entry("reset", &true)?,
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_prints_as_the_interface_says() {
        let event = |change| BusEvent {
            topic: "inventory.nodes".into(),
            key: "node-0001".into(),
            sequence: 7,
            at: Timestamp::UNIX_EPOCH,
            change,
        };
        let head = json!({"topic": "inventory.nodes", "key": "node-0001", "sequence": 7, "at": "1970-01-01T00:00:00Z"});
        for (change, name, shown) in [
            (Change::Value(json!({"cpu": 1})), "value", json!({"cpu": 1})),
            (Change::Deleted, "deleted", json!(true)),
            (Change::Missed(3), "missed", json!(3)),
            (Change::Reset, "reset", json!(true)),
        ] {
            let mut wanted = head.clone();
            wanted[name] = shown;
            assert_eq!(serde_json::to_value(event(change)).unwrap(), wanted);
        }
    }
}
