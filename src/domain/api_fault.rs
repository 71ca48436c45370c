//! A fault of the embedded cluster's API (INTERFACE §2), as it is asked for and shown at run time.

use std::time::Duration;

use jiff::fmt::serde::unsigned_duration::friendly::compact;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What goes wrong, for which calls, how often. Empty texts mean any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiFault {
    /// `get`, `list`, `watch`, `create` …
    #[serde(default)]
    pub verb: String,
    /// The plural name of a resource, for example `nodes`.
    #[serde(default)]
    pub resource: String,
    /// A namespace.
    #[serde(default)]
    pub namespace: String,
    /// What happens.
    pub kind: ApiFaultKind,
    /// The HTTP status of an `error`.
    #[serde(default)]
    pub status: Option<u16>,
    /// The `Retry-After` of an `error`.
    #[serde(default, with = "compact::optional", alias = "retry-after")]
    pub retry_after: Option<Duration>,
    /// How long a `latency` takes.
    #[serde(default, with = "compact::optional")]
    pub delay: Option<Duration>,
    /// How likely it is, from 0 to 1.
    #[serde(default = "always")]
    pub probability: f64,
    /// How many times it still happens; absent means without end.
    #[serde(default)]
    pub count: Option<u64>,
}

fn always() -> f64 {
    1.0
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiFaultKind {
    /// The answer comes late.
    Latency,
    /// The answer is an error.
    Error,
    /// The request never arrives.
    Drop,
    /// A watch event comes twice.
    Duplicate,
    /// The connection is cut.
    Cut,
    /// The watch is told that its version is too old.
    Gone,
}

impl ApiFaultKind {
    /// Every kind there is.
    pub const ALL: [Self; 6] = [
        Self::Latency,
        Self::Error,
        Self::Drop,
        Self::Duplicate,
        Self::Cut,
        Self::Gone,
    ];

    /// Its name in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Error => "error",
            Self::Drop => "drop",
            Self::Duplicate => "duplicate",
            Self::Cut => "cut",
            Self::Gone => "gone",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A fault that makes no sense.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ApiFaultError {
    /// Not a probability.
    #[error("a probability lies between 0 and 1, not at {0}")]
    Probability(f64),
    /// Not an HTTP error.
    #[error("an error has a status from 400 to 599, not {0}")]
    Status(u16),
}

impl ApiFaultError {
    /// The field that is wrong.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::Probability(_) => "probability",
            Self::Status(_) => "status",
        }
    }
}

impl ApiFault {
    /// Whether its values make sense.
    ///
    /// # Errors
    /// When one does not, and which.
    pub fn check(&self) -> Result<(), ApiFaultError> {
        if !(0.0..=1.0).contains(&self.probability) {
            return Err(ApiFaultError::Probability(self.probability));
        }
        match self.status {
            Some(status) if !(400..=599).contains(&status) => Err(ApiFaultError::Status(status)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reads_as_people_write_it() {
        let fault: ApiFault = serde_json::from_str(
            r#"{"verb": "list", "resource": "nodes", "kind": "error", "status": 503, "retry-after": "2s", "delay": "150ms"}"#,
        )
        .unwrap();
        assert_eq!(fault.retry_after, Some(Duration::from_secs(2)));
        assert_eq!(fault.delay, Some(Duration::from_millis(150)));
        assert_eq!((fault.probability, fault.count), (1.0, None));
        assert_eq!(fault.check(), Ok(()));
        let shown = serde_json::to_string(&fault).unwrap();
        assert_eq!(serde_json::from_str::<ApiFault>(&shown).unwrap(), fault);
    }

    #[test]
    fn a_fault_that_makes_no_sense_is_refused_by_field() {
        let fault = |text: &str| serde_json::from_str::<ApiFault>(text);
        assert!(fault(r#"{"kind": "explode"}"#).is_err());
        assert!(fault(r#"{"kind": "drop", "probabilty": 0.5}"#).is_err());
        let field = |text| fault(text).unwrap().check().unwrap_err().field();
        assert_eq!(field(r#"{"kind": "drop", "probability": 1.5}"#), "probability");
        assert_eq!(field(r#"{"kind": "drop", "probability": -0.1}"#), "probability");
        assert_eq!(field(r#"{"kind": "error", "status": 200}"#), "status");
        let mut odd = fault(r#"{"kind": "drop"}"#).unwrap();
        odd.probability = f64::NAN;
        assert!(odd.check().is_err());
    }
}
