//! Faults of the embedded cluster's API, between the forms that config, API and simulation have for them.

use std::time::Duration;

use crate::{
    config::{FaultConfig, FaultKind as ConfigKind},
    domain::{
        api_fault::{ApiFault, ApiFaultKind},
        human::HumanDuration,
    },
    sim::faults::{Fault, FaultKind},
};

/// As configured → as simulated.
pub(super) fn from_config(fault: &FaultConfig) -> Fault {
    Fault {
        verb: fault.verb.clone(),
        resource: fault.resource.clone(),
        namespace: fault.namespace.clone(),
        kind: match fault.kind {
            ConfigKind::Latency => FaultKind::Latency,
            ConfigKind::Error => FaultKind::Error,
            ConfigKind::Drop => FaultKind::Drop,
            ConfigKind::Duplicate => FaultKind::Duplicate,
            ConfigKind::Cut => FaultKind::Cut,
            ConfigKind::Gone => FaultKind::Gone,
        },
        status: fault.status,
        retry_after: fault.retry_after.map(|wait| seconds(wait.get())),
        delay: fault.delay.map(|delay| format!("{}ms", delay.get().as_millis())),
        probability: Some(fault.probability.as_f64()),
        count: fault.count,
    }
}

/// As asked over the API → as simulated.
pub(super) fn from_api(fault: ApiFault) -> Fault {
    let given = |text: String| (!text.is_empty()).then_some(text);
    Fault {
        verb: given(fault.verb),
        resource: given(fault.resource),
        namespace: given(fault.namespace),
        kind: match fault.kind {
            ApiFaultKind::Latency => FaultKind::Latency,
            ApiFaultKind::Error => FaultKind::Error,
            ApiFaultKind::Drop => FaultKind::Drop,
            ApiFaultKind::Duplicate => FaultKind::Duplicate,
            ApiFaultKind::Cut => FaultKind::Cut,
            ApiFaultKind::Gone => FaultKind::Gone,
        },
        status: fault.status,
        retry_after: fault.retry_after.map(seconds),
        delay: fault.delay.map(|delay| format!("{}ms", delay.as_millis())),
        probability: Some(fault.probability),
        count: fault.count,
    }
}

/// As simulated → as shown over the API.
pub(super) fn to_api(fault: Fault) -> ApiFault {
    ApiFault {
        verb: fault.verb.unwrap_or_default(),
        resource: fault.resource.unwrap_or_default(),
        namespace: fault.namespace.unwrap_or_default(),
        kind: match fault.kind {
            FaultKind::Latency => ApiFaultKind::Latency,
            FaultKind::Error => ApiFaultKind::Error,
            FaultKind::Drop => ApiFaultKind::Drop,
            FaultKind::Duplicate => ApiFaultKind::Duplicate,
            FaultKind::Cut => ApiFaultKind::Cut,
            FaultKind::Gone => ApiFaultKind::Gone,
        },
        status: fault.status,
        retry_after: fault.retry_after.map(|wait| Duration::from_secs(u64::from(wait))),
        delay: fault
            .delay
            .and_then(|delay| delay.parse::<HumanDuration>().ok())
            .map(HumanDuration::get),
        probability: fault.probability.unwrap_or(1.0),
        count: fault.count,
    }
}

/// Retry-After knows whole seconds only: a little longer is right, none at all is not.
fn seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}
