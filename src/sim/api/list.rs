//! Lists: in pages that all show one revision, and only of what is selected.

use std::sync::Arc;

use axum::response::Response;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Call, answer, selectors::Selection};
use crate::sim::objects::{Cause, Details, Gone, Listed, Refusal, metadata_text};

/// Where a list goes on: the revision it shows, and the last object it has shown.
#[derive(Debug, Serialize, Deserialize)]
struct Continue {
    rv: u64,
    namespace: String,
    name: String,
}

/// The revision in a token that goes on with whatever there is now.
const INCONSISTENT: u64 = 0;

impl Continue {
    fn write(&self) -> Result<String, Refusal> {
        Ok(URL_SAFE_NO_PAD.encode(answer::to_bytes(self)?))
    }
}

/// Answers a list.
pub fn list(call: &Call) -> Result<Response, Refusal> {
    let selection = Selection::read(&call.kind, &call.place.namespace, &call.query)?;
    let limit: usize = call.query.number("limit")?.unwrap_or(0);
    let resume = call.query.get("continue").map(read_continue).transpose()?;
    let listed = match &resume {
        Some(resume) => {
            if call
                .query
                .get("resourceVersion")
                .is_some_and(|version| version != "0")
            {
                let message = "specifying resource version is not allowed when using continue";
                return Err(Refusal::bad_request(message));
            }
            go_on(call, resume)?
        }
        None => first_page(call, limit)?,
    };
    let after = resume
        .as_ref()
        .map(|resume| (resume.namespace.as_str(), resume.name.as_str()));
    let start = after.map_or(0, |after| {
        listed.items.partition_point(|object| {
            (metadata_text(object, "namespace"), metadata_text(object, "name")) <= after
        })
    });
    let mut rest = listed
        .items
        .iter()
        .skip(start)
        .filter(|object| selection.matches(object));
    let mut metadata = json!({"resourceVersion": listed.revision.to_string()});
    let items: Vec<Arc<Value>> = if limit == 0 {
        rest.cloned().collect()
    } else {
        let page: Vec<Arc<Value>> = rest.by_ref().take(limit).cloned().collect();
        let remaining = rest.count();
        if remaining > 0
            && let Some(last) = page.last()
        {
            metadata["continue"] = json!(write_continue(listed.revision, last)?);
            if !selection.is_selective() {
                metadata["remainingItemCount"] = json!(remaining);
            }
        }
        page
    };
    let now = call.api.clock.wall();
    let body = answer::encode_list(&call.kind, call.format, now, &items, &metadata)?;
    Ok(answer::json_response(StatusCode::OK, body))
}

fn first_page(call: &Call, limit: usize) -> Result<Listed, Refusal> {
    let version = revision(call.query.get("resourceVersion"))?;
    let exact = match (call.query.get("resourceVersionMatch"), version) {
        (None, version) => limit > 0 && version.is_some_and(|version| version > 0),
        (Some("NotOlderThan"), Some(_)) => false,
        (Some("Exact"), Some(version)) if version > 0 => true,
        (Some("Exact"), Some(_)) => {
            let why = "resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"";
            return Err(bad_options(Cause::forbidden("resourceVersionMatch", why)));
        }
        (Some("NotOlderThan" | "Exact"), None) => {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(bad_options(Cause::forbidden("resourceVersionMatch", why)));
        }
        (Some(other), _) => {
            let known = ["Exact", "NotOlderThan", ""];
            return Err(bad_options(Cause::unsupported(
                "resourceVersionMatch",
                &json!(other),
                &known,
            )));
        }
    };
    let present = call.api.objects.revision();
    match version {
        Some(version) if version > present => Err(too_large(version, present)),
        Some(version) if exact => at_revision(call, version).map_err(|gone| {
            Refusal::expired(format!(
                "The resourceVersion for the provided list is too old. ({})",
                gone.after
            ))
        }),
        _ => Ok(call.api.objects.list(&call.kind.storage, namespace(call))),
    }
}

fn namespace(call: &Call) -> Option<&str> {
    (!call.place.namespace.is_empty()).then_some(call.place.namespace.as_str())
}

fn at_revision(call: &Call, revision: u64) -> Result<Listed, Gone> {
    call.api
        .objects
        .list_at(&call.kind.storage, namespace(call), revision)
}

/// A revision in a query: none, or a number.
pub fn revision(text: Option<&str>) -> Result<Option<u64>, Refusal> {
    text.map(|text| {
        text.parse().map_err(|_| {
            let cause = Cause::invalid(
                "resourceVersion",
                &json!(text),
                "strconv.ParseUint: invalid syntax",
            );
            bad_options(cause)
        })
    })
    .transpose()
}

/// A refusal of the options of a list or watch.
pub fn bad_options(cause: Cause) -> Refusal {
    Refusal::invalid("meta.k8s.io", "ListOptions", "", vec![cause])
}

/// A revision that is still to come.
fn too_large(wanted: u64, present: u64) -> Refusal {
    Refusal {
        code: 504,
        reason: "Timeout",
        message: format!("Timeout: Too large resource version: {wanted}, current: {present}"),
        details: Some(Box::new(Details {
            causes: vec![Cause::of(
                "ResourceVersionTooLarge",
                "",
                "Too large resource version",
            )],
            retry_after_seconds: 1,
            ..Details::default()
        })),
        next: None,
    }
}

/// What the next page is taken from: the list as it was, or, with a token that says so, as it is now.
fn go_on(call: &Call, resume: &Continue) -> Result<Listed, Refusal> {
    if resume.rv == INCONSISTENT {
        return Ok(call.api.objects.list(&call.kind.storage, namespace(call)));
    }
    at_revision(call, resume.rv).or_else(|_| {
        let token = Continue {
            rv: INCONSISTENT,
            namespace: resume.namespace.clone(),
            name: resume.name.clone(),
        };
        let mut refusal = Refusal::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
             list without the continue parameter, or use the continue token in this response to retrieve the \
             remainder of the results. Continuing with the provided token results in an inconsistent list.",
        );
        refusal.next = Some(token.write()?);
        Err(refusal)
    })
}

fn write_continue(revision: u64, last: &Value) -> Result<String, Refusal> {
    let token = Continue {
        rv: revision,
        namespace: metadata_text(last, "namespace").to_owned(),
        name: metadata_text(last, "name").to_owned(),
    };
    token.write()
}

fn read_continue(text: &str) -> Result<Continue, Refusal> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    bytes
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or_else(|| Refusal::bad_request("continue key is not valid: it is not one this server gave"))
}
