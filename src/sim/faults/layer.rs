//! The middleware that lets faults strike.

use std::io;

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep, sleep_until};

use super::{Fault, FaultKind, Faults};
use crate::sim::{api::target, objects::Refusal};

/// Lets the faults in force strike one request: those before it takes effect, then those after.
pub async fn inject(State(faults): State<Faults>, request: Request, next: Next) -> Response {
    let target = target(request.method(), request.uri());
    let hits = faults.strike(&target);
    if hits.is_empty() {
        return next.run(request).await;
    }
    for fault in &hits {
        match fault.kind {
            FaultKind::Latency => sleep(delay(fault)).await,
            FaultKind::Error => return error(fault),
            FaultKind::Drop => return broken(),
            FaultKind::Gone => return gone(target.verb == "watch"),
            FaultKind::Duplicate | FaultKind::Cut => {}
        }
    }
    let mut response = next.run(request).await;
    for fault in &hits {
        response = match fault.kind {
            FaultKind::Duplicate => duplicate(response),
            FaultKind::Cut if target.verb == "watch" => cut_later(response, delay(fault)),
            FaultKind::Cut => {
                sleep(delay(fault)).await;
                return broken();
            }
            FaultKind::Latency | FaultKind::Error | FaultKind::Drop | FaultKind::Gone => response,
        };
    }
    response
}

fn delay(fault: &Fault) -> Duration {
    fault.delay().ok().flatten().unwrap_or_default()
}

fn error(fault: &Fault) -> Response {
    let code = fault.status.unwrap_or(500);
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        500 => "InternalError",
        _ => "",
    };
    let status = Refusal::new(code, reason, format!("an injected fault answers {code}")).status();
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    if let Some(seconds) = fault.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn reset() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "an injected fault closed the connection",
    )
}

/// An answer that breaks off before its first byte; an HTTP server closes the connection over it.
fn broken() -> Response {
    let body = stream::once(futures::future::ready(Err::<Bytes, io::Error>(reset())));
    Response::new(Body::from_stream(body))
}

fn gone(watch: bool) -> Response {
    let refusal = Refusal::expired("too old resource version: an injected fault has forgotten it");
    let (status, body) = if watch {
        (
            StatusCode::OK,
            format!("{}\n", json!({"type": "ERROR", "object": refusal.status()})),
        )
    } else {
        (StatusCode::GONE, refusal.status().to_string())
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Sends every event of a watch twice. The API writes whole events only, so that each chunk is some.
fn duplicate(response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let doubled = body.into_data_stream().map(|chunk| {
        chunk.map(|chunk| {
            let lines = chunk.split_inclusive(|byte| *byte == b'\n');
            lines
                .flat_map(|line| [line, line])
                .flatten()
                .copied()
                .collect::<Bytes>()
        })
    });
    Response::from_parts(parts, Body::from_stream(doubled))
}

/// Lets a watch live for a while, then breaks it off.
fn cut_later(response: Response, delay: Duration) -> Response {
    let until = Instant::now() + delay;
    let (parts, body) = response.into_parts();
    let events = stream::unfold(Some(body.into_data_stream()), move |events| async move {
        let mut events = events?;
        tokio::select! {
            biased;
            () = sleep_until(until) => Some((Err(io::Error::other(reset())), None)),
            chunk = events.next() => {
                let chunk = chunk?;
                Some((chunk.map_err(io::Error::other), Some(events)))
            }
        }
    });
    Response::from_parts(parts, Body::from_stream(events))
}
