//! `freehold.private.v1.Actor`.

use super::{WireError, parse_time, parse_word, render_time, render_word};
use crate::{api::proto::private_v1, domain::actor};

/// Domain → wire.
#[must_use]
pub fn render(report: actor::ActorReport) -> private_v1::Actor {
    private_v1::Actor {
        path: report.path,
        kind: report.kind,
        state: render_word(&report.state),
        since: Some(render_time(report.since)),
        restarts: report.restarts,
        mailbox: report.mailbox,
        last_fault: report.last_fault.map(|fault| private_v1::ActorFault {
            at: Some(render_time(fault.at)),
            class: render_word(&fault.class),
            message: fault.message,
        }),
        view_json: report.view.to_string(),
        children: report.children.into_iter().map(render).collect(),
    }
}

/// Wire → domain.
///
/// # Errors
/// When a part is missing or makes no sense.
pub fn parse(actor: private_v1::Actor) -> Result<actor::ActorReport, WireError> {
    let last_fault = actor
        .last_fault
        .map(|fault| {
            Ok(actor::ActorFault {
                at: parse_time("last_fault.at", fault.at)?,
                class: parse_word("last_fault.class", &fault.class)?,
                message: fault.message,
            })
        })
        .transpose()?;
    Ok(actor::ActorReport {
        path: actor.path,
        kind: actor.kind,
        state: parse_word("state", &actor.state)?,
        since: parse_time("since", actor.since)?,
        restarts: actor.restarts,
        mailbox: actor.mailbox,
        last_fault,
        view: serde_json::from_str(&actor.view_json)
            .map_err(|error| WireError::malformed("view_json", error))?,
        children: actor.children.into_iter().map(parse).collect::<Result<_, _>>()?,
    })
}

/// The name of a fault to provoke → domain.
///
/// # Errors
/// When there is no such fault.
pub fn parse_provoked(kind: &str) -> Result<actor::ProvokedFault, WireError> {
    parse_word("kind", kind).map_err(|_| WireError::malformed("kind", "use panic, freeze or stop"))
}
