//! `pods/log`: which lines of a container are shown, and how.

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderValue, header};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    Call,
    containers::{ContainerRef, LogLine, LogOf},
};
use crate::sim::objects::{Refusal, metadata_text};

/// Answers a request for the log of a container.
pub fn log(call: &Call) -> Result<Response, Refusal> {
    let query = &call.query;
    let container = container(call)?;
    let since = since(call)?;
    let tail: Option<usize> = query.number("tailLines")?;
    let limit: Option<usize> = query.number("limitBytes")?;
    let timestamps = query.flag("timestamps");
    let follow = query.flag("follow");
    let which = if query.flag("previous") {
        LogOf::Previous
    } else {
        LogOf::Present
    };
    let log = call.api.containers.log(&container, which, follow)?;

    let mut past = log.past;
    past.retain(|line| since.is_none_or(|since| line.at >= since));
    if let Some(tail) = tail {
        past.drain(..past.len().saturating_sub(tail));
    }
    let future = if follow {
        log.future
    } else {
        stream::empty().boxed()
    };
    let lines = stream::iter(past).chain(future);
    let chunks = lines.scan(limit, move |left, line| {
        futures::future::ready(cut(left, render(&line, timestamps)))
    });
    let mut response = Response::new(Body::from_stream(chunks.map(Ok::<Bytes, std::io::Error>)));
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}

fn render(line: &LogLine, timestamps: bool) -> Bytes {
    let text = if timestamps {
        let at = line.at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ");
        format!("{at} {}\n", line.text)
    } else {
        format!("{}\n", line.text)
    };
    Bytes::from(text)
}

/// Cuts a line to what is left of the limit; `None` ends the log.
fn cut(left: &mut Option<usize>, mut line: Bytes) -> Option<Bytes> {
    let Some(left) = left else { return Some(line) };
    if *left == 0 {
        return None;
    }
    line.truncate(*left);
    *left -= line.len();
    Some(line)
}

fn since(call: &Call) -> Result<Option<Timestamp>, Refusal> {
    let query = &call.query;
    match (query.number::<i64>("sinceSeconds")?, query.get("sinceTime")) {
        (Some(_), Some(_)) => Err(Refusal::bad_request(
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        )),
        (Some(seconds), None) if seconds < 1 => {
            Err(Refusal::bad_request("sinceSeconds must be greater than 0"))
        }
        (Some(seconds), None) => {
            let now = call.api.clock.wall();
            Ok(now.checked_sub(SignedDuration::from_secs(seconds)).ok())
        }
        (None, Some(text)) => text
            .parse()
            .map(Some)
            .map_err(|_| Refusal::bad_request(format!("sinceTime \"{text}\" is not a time"))),
        (None, None) => Ok(None),
    }
}

/// The container a request is about: the one named, or the only one.
pub fn container(call: &Call) -> Result<ContainerRef, Refusal> {
    let pod = super::find(call)?;
    let name = metadata_text(&pod, "name");
    let names: Vec<String> = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| pod.pointer(&format!("/spec/{list}"))?.as_array())
        .flatten()
        .filter_map(|container| container.get("name")?.as_str())
        .map(str::to_owned)
        .collect();
    let container = match call.query.get("container") {
        Some(asked) if names.iter().any(|name| name == asked) => asked.to_owned(),
        Some(asked) => {
            let message = format!("container {asked} is not valid for pod {name}");
            return Err(Refusal::bad_request(message));
        }
        None => default_container(&pod, &names).ok_or_else(|| {
            let choices = names.join(" ");
            Refusal::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{choices}]"
            ))
        })?,
    };
    Ok(ContainerRef { pod, container })
}

fn default_container(pod: &Value, names: &[String]) -> Option<String> {
    if let [only] = names {
        return Some(only.clone());
    }
    let annotation = pod
        .get("metadata")?
        .get("annotations")?
        .get("kubectl.kubernetes.io/default-container")?;
    let wanted = annotation.as_str()?;
    names.iter().find(|name| *name == wanted).cloned()
}
