//! `freehold.private.v1.Fault`. On the wire 0 stands for "not given" in status, retry-after and delay; a
//! probability of 0 means always, because a fault that never happens is none.

use std::time::Duration;

use super::WireError;
use crate::{
    api::proto::private_v1,
    domain::api_fault::{ApiFault, ApiFaultKind},
};

/// Domain → wire.
#[must_use]
pub fn render(fault: ApiFault) -> private_v1::Fault {
    private_v1::Fault {
        verb: fault.verb,
        resource: fault.resource,
        namespace: fault.namespace,
        kind: fault.kind.name().to_owned(),
        status: u32::from(fault.status.unwrap_or(0)),
        retry_after_seconds: fault.retry_after.map_or(0, |wait| wait.as_secs()),
        delay_ms: fault
            .delay
            .map_or(0, |delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        probability: fault.probability,
        count: fault.count,
    }
}

/// Wire → domain.
///
/// # Errors
/// When a value makes no sense.
pub fn parse(fault: private_v1::Fault) -> Result<ApiFault, WireError> {
    let kind = ApiFaultKind::named(&fault.kind)
        .ok_or_else(|| WireError::malformed("kind", "use latency, error, drop, duplicate, cut or gone"))?;
    let status = match fault.status {
        0 => None,
        status => {
            Some(u16::try_from(status).map_err(|_| WireError::malformed("status", "it is no HTTP status"))?)
        }
    };
    let given = |amount: u64, unit: fn(u64) -> Duration| (amount > 0).then(|| unit(amount));
    let parsed = ApiFault {
        verb: fault.verb,
        resource: fault.resource,
        namespace: fault.namespace,
        kind,
        status,
        retry_after: given(fault.retry_after_seconds, Duration::from_secs),
        delay: given(fault.delay_ms, Duration::from_millis),
        probability: if fault.probability == 0.0 {
            1.0
        } else {
            fault.probability
        },
        count: fault.count,
    };
    parsed
        .check()
        .map_err(|error| WireError::malformed(error.field(), error))?;
    Ok(parsed)
}
