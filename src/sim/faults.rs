//! Faults on demand: what a real network and a real API server do on a bad day, put in front of the
//! simulated one by config or at run time. Which request is hit is drawn from a seed.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

mod layer;
#[cfg(test)]
mod tests;

pub use self::layer::inject;

/// One fault: which requests it hits, and what it does to them. A field that is not given matches any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Fault {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// The plural, with its subresource where one is meant: `pods`, `pods/status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The namespace of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What happens.
    pub kind: FaultKind,
    /// The HTTP status of an `error`; 500 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Seconds an `error` asks to wait before the next try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
    /// How long `latency` holds a request up, such as `250ms`; of a `cut`: how long the answer lives first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// How likely a matching request is hit, 0 to 1; always when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// How many requests it hits before it is used up; without end when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The request waits for `delay`, then goes on.
    Latency,
    /// The request is answered with `status` and has no effect.
    Error,
    /// The connection closes without an answer, before the request had any effect.
    Drop,
    /// Every event of the watch is sent twice.
    Duplicate,
    /// The request takes effect, then its answer breaks off; a watch breaks off after `delay`.
    Cut,
    /// The watch or list is told that its revision is too old: 410.
    Gone,
}

/// Why a fault cannot be set.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum BadFault {
    /// The verb is none of Kubernetes'.
    #[error("verb `{verb}` is not known: use one of {}, or leave it out for any", VERBS.join(", "))]
    Verb {
        /// As given.
        verb: String,
    },
    /// The status is no error.
    #[error("status {status} is not an HTTP error: use 400 to 599")]
    Status {
        /// As given.
        status: u16,
    },
    /// The probability is not between 0 and 1.
    #[error("probability {probability} is not between 0 and 1")]
    Probability {
        /// As given.
        probability: f64,
    },
    /// The delay cannot be read.
    #[error("delay `{delay}` is not a duration of up to a day: write it as `250ms`, `2s` or `1m`")]
    Delay {
        /// As given.
        delay: String,
    },
    /// Latency without a delay does nothing.
    #[error("a latency fault needs a delay, such as `delay: 250ms`")]
    NoDelay,
    /// A fault that hits nothing.
    #[error("count 0 would hit no request: leave it out for any number")]
    Count,
    /// A field that means nothing for that kind.
    #[error("`{field}` has no meaning for a fault of kind `{kind}`: leave it out")]
    Meaningless {
        /// The field.
        field: &'static str,
        /// The kind.
        kind: &'static str,
    },
}

const LONGEST_DELAY: Duration = Duration::from_secs(24 * 3600);

const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

impl FaultKind {
    /// As written in a config.
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
}

impl Fault {
    /// A fault of a kind that hits everything.
    #[must_use]
    pub fn any(kind: FaultKind) -> Self {
        Self {
            verb: None,
            resource: None,
            namespace: None,
            kind,
            status: None,
            retry_after: None,
            delay: None,
            probability: None,
            count: None,
        }
    }

    fn check(&self) -> Result<(), BadFault> {
        if let Some(verb) = &self.verb
            && !VERBS.contains(&verb.as_str())
        {
            return Err(BadFault::Verb { verb: verb.clone() });
        }
        if let Some(status) = self.status
            && !(400..600).contains(&status)
        {
            return Err(BadFault::Status { status });
        }
        if let Some(probability) = self.probability
            && !(0.0..=1.0).contains(&probability)
        {
            return Err(BadFault::Probability { probability });
        }
        if self.count == Some(0) {
            return Err(BadFault::Count);
        }
        let kind = self.kind.name();
        if self.kind != FaultKind::Error {
            let field = match (self.status, self.retry_after) {
                (Some(_), _) => Some("status"),
                (None, Some(_)) => Some("retry-after"),
                (None, None) => None,
            };
            if let Some(field) = field {
                return Err(BadFault::Meaningless { field, kind });
            }
        }
        match (self.kind, self.delay()?) {
            (FaultKind::Latency, None) => Err(BadFault::NoDelay),
            (FaultKind::Latency | FaultKind::Cut, _) | (_, None) => Ok(()),
            (_, Some(_)) => Err(BadFault::Meaningless { field: "delay", kind }),
        }
    }

    fn delay(&self) -> Result<Option<Duration>, BadFault> {
        let Some(text) = &self.delay else { return Ok(None) };
        let bad = || BadFault::Delay { delay: text.clone() };
        let span: jiff::SignedDuration = text.parse().map_err(|_| bad())?;
        let delay = Duration::try_from(span).map_err(|_| bad())?;
        if delay > LONGEST_DELAY {
            return Err(bad());
        }
        Ok(Some(delay))
    }
}

/// What a request is, as faults select it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The verb.
    pub verb: String,
    /// The plural, with the subresource after a slash.
    pub resource: String,
    /// The namespace, empty when there is none.
    pub namespace: String,
}

impl Fault {
    fn selects(&self, target: &Target) -> bool {
        let equal =
            |wanted: &Option<String>, present: &str| wanted.as_deref().is_none_or(|wanted| wanted == present);
        let fits_watch = !matches!(self.kind, FaultKind::Duplicate) || target.verb == "watch";
        let fits_read =
            !matches!(self.kind, FaultKind::Gone) || matches!(target.verb.as_str(), "watch" | "list");
        // A fault without a resource hits the API's resources, not discovery.
        let is_resource = self.resource.is_some() || !target.resource.is_empty();
        equal(&self.verb, &target.verb)
            && equal(&self.resource, &target.resource)
            && equal(&self.namespace, &target.namespace)
            && fits_watch
            && fits_read
            && is_resource
    }
}

/// The faults in force. A clone is another handle to the same ones.
#[derive(Clone, Debug)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    faults: Vec<Fault>,
    random: u64,
}

impl Faults {
    /// No faults; which requests later ones hit is drawn from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                faults: Vec::new(),
                random: seed,
            })),
        }
    }

    /// The faults in force, with the counts that are left.
    #[must_use]
    pub fn list(&self) -> Vec<Fault> {
        self.inner.lock().faults.clone()
    }

    /// Adds a fault after those in force.
    pub fn add(&self, fault: Fault) -> Result<(), BadFault> {
        fault.check()?;
        self.inner.lock().faults.push(fault);
        Ok(())
    }

    /// Removes all faults and says how many there were.
    pub fn clear(&self) -> usize {
        std::mem::take(&mut self.inner.lock().faults).len()
    }

    /// The faults that hit this request, in the order they were added; counts go down.
    fn strike(&self, target: &Target) -> Vec<Fault> {
        let mut inner = self.inner.lock();
        let Inner { faults, random } = &mut *inner;
        let mut hits = Vec::new();
        for fault in faults.iter_mut().filter(|fault| fault.selects(target)) {
            let hit = fault
                .probability
                .is_none_or(|probability| draw(random) < probability);
            if !hit {
                continue;
            }
            hits.push(fault.clone());
            if let Some(count) = &mut fault.count {
                *count = count.saturating_sub(1);
            }
        }
        faults.retain(|fault| fault.count != Some(0));
        hits
    }
}

/// The next number in [0, 1) of a splitmix64 sequence.
fn draw(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    // The upper 32 bits are plenty, and every u32 is exact in an f64.
    let upper = u32::try_from(mixed >> 32).unwrap_or(u32::MAX);
    f64::from(upper) / 4_294_967_296.0
}
