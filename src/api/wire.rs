//! Protobuf ↔ domain, both ways: the server renders with it, the command line parses with it and so
//! prints the very same documents as HTTP.

use jiff::Timestamp;
use thiserror::Error;

pub mod actor;
pub mod event;
pub mod fault;
pub mod inventory;
pub mod status;
pub mod store;
pub mod token;

/// A message that cannot be understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// A field that must be there.
    #[error("{field} is missing")]
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A field whose value makes no sense.
    #[error("{field} cannot be understood: {message}")]
    Malformed {
        /// Its name.
        field: &'static str,
        /// What is wrong.
        message: String,
    },
}

impl WireError {
    fn missing(field: &'static str) -> Self {
        Self::Missing { field }
    }

    fn malformed(field: &'static str, message: impl ToString) -> Self {
        Self::Malformed {
            field,
            message: message.to_string(),
        }
    }

    /// The field it is about.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::Missing { field } | Self::Malformed { field, .. } => field,
        }
    }
}

pub(crate) fn render_time(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: time.as_second(),
        nanos: time.subsec_nanosecond(),
    }
}

pub(crate) fn parse_time(
    field: &'static str,
    time: Option<prost_types::Timestamp>,
) -> Result<Timestamp, WireError> {
    let time = time.ok_or(WireError::missing(field))?;
    Timestamp::new(time.seconds, time.nanos).map_err(|error| WireError::malformed(field, error))
}

pub(crate) fn parse_optional_time(
    field: &'static str,
    time: Option<prost_types::Timestamp>,
) -> Result<Option<Timestamp>, WireError> {
    time.map(|time| parse_time(field, Some(time))).transpose()
}

/// A word out of a closed list, by its serde name.
fn parse_word<T: serde::de::DeserializeOwned>(field: &'static str, word: &str) -> Result<T, WireError> {
    serde_json::from_value(serde_json::Value::from(word)).map_err(|error| WireError::malformed(field, error))
}

fn render_word<T: serde::Serialize>(word: &T) -> String {
    match serde_json::to_value(word) {
        Ok(serde_json::Value::String(text)) => text,
        // Only called with unit variants, which are always strings.
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_the_wire_to_the_nanosecond() {
        for text in [
            "2026-11-15T12:34:56.123456789Z",
            "1960-01-01T00:00:00.25Z",
            "1970-01-01T00:00:00Z",
        ] {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(parse_time("at", Some(render_time(time))), Ok(time));
        }
    }

    #[test]
    fn an_absurd_time_is_an_error() {
        let absurd = prost_types::Timestamp {
            seconds: i64::MAX,
            nanos: -7,
        };
        assert_eq!(parse_time("at", Some(absurd)).unwrap_err().field(), "at");
        assert_eq!(parse_time("at", None), Err(WireError::missing("at")));
        assert_eq!(parse_optional_time("at", None), Ok(None));
    }
}
