//! The one gate every call goes through, gRPC and HTTP alike: is it in the table, does it come from
//! where it may, who is it, may they, how often, and is there room. What passes gets its `Caller`
//! as an extension, a deadline, and a body that ends when the caller's right to it does.

mod body;
pub(crate) mod origin;

use std::{net::SocketAddr, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{body::Body, response::IntoResponse as _};
use futures::FutureExt as _;
use http::{HeaderMap, Request, Response};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::Instrument as _;

use self::body::{GuardedBody, Outcome, Permits};
use super::{
    access::{
        Caller, Identifier,
        certificate::CertifiedPeer,
        rate::{RateKey, RateLimiter},
        table::AccessTable,
    },
    errors::{ApiError, code_name},
    limits::Limits,
};
use crate::{
    domain::access::{Identity, Rule},
    ports::{clock::Clock, telemetry::Metrics},
};

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    Grpc,
    Http,
    /// Plain HTTP with health and metrics only.
    Health,
}

impl Surface {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Health => "health",
        }
    }
}

/// A listener, as far as its calls are concerned.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) surface: Surface,
    pub(crate) router: axum::Router,
    /// Whoever sends no credentials is the operator.
    pub(crate) trusting: bool,
    /// Only reachable from this machine, so a foreign Host or Origin means a browser was tricked.
    pub(crate) loopback: bool,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) certificate: Option<CertifiedPeer>,
}

/// Everything the gate decides with.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) table: AccessTable,
    pub(crate) identifier: Identifier,
    pub(crate) rates: RateLimiter,
    pub(crate) calls: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stopping: CancellationToken,
    pub(crate) metrics: Metrics,
}

/// The line of the table a call falls under.
#[derive(Clone, Copy, Debug)]
struct Line {
    name: &'static str,
    rule: Rule,
    streams: bool,
}

const UNLISTED: &str = "unlisted";

impl Gate {
    /// Answers a call; `alive` is kept until the answer is out.
    pub(crate) async fn handle(
        &self,
        door: &Door,
        peer: &Peer,
        request: Request<Body>,
        alive: impl Send + 'static,
    ) -> Response<Body> {
        let line = self.find(door, &request);
        let name = line.as_ref().map_or(UNLISTED, |line| line.name);
        let answered = match line {
            Ok(line) => self.answer(door, peer, line, request).await,
            Err(error) => Err(error),
        };
        let (response, permits, ended) = match answered {
            Ok(answered) => answered,
            Err(error) => (render(door.surface, &error), None, None),
        };
        let outcome = Outcome::new(self.metrics.clone(), door.surface, name);
        let (parts, body) = response.into_parts();
        let outcome = match known_outcome(door.surface, &parts) {
            Some(code) => {
                outcome.record(code);
                None
            }
            None => Some(outcome),
        };
        let guarded = GuardedBody::new(body, ended, outcome, permits, Box::new(alive));
        Response::from_parts(parts, Body::new(guarded))
    }

    async fn answer(
        &self,
        door: &Door,
        peer: &Peer,
        line: Line,
        mut request: Request<Body>,
    ) -> Result<(Response<Body>, Option<Permits>, Option<body::Ended>), ApiError> {
        if self.stopping.is_cancelled() && door.surface != Surface::Health {
            return Err(ApiError::Stopping);
        }
        if door.loopback {
            origin::check(door.surface, request.headers(), request.uri())?;
        }
        let caller = self.admit(door, peer, line, request.headers()).await?;
        let permits = self.room(door, line)?;
        let asked = match door.surface {
            Surface::Grpc => grpc_timeout(request.headers())?,
            Surface::Http | Surface::Health => None,
        };
        let ended = line.streams.then(|| {
            let stopping = self.stopping.clone();
            let left = caller.as_ref().and_then(|caller| caller.expires_at).map(|end| {
                let left = end.duration_since(self.clock.wall());
                Duration::try_from(left).unwrap_or(Duration::ZERO)
            });
            let revoked = caller.as_ref().and_then(|caller| caller.revoked.clone());
            body::ended(stopping, revoked, left, asked)
        });
        let span = tracing::info_span!("call", method = line.name, caller = tracing::field::Empty);
        if let Some(caller) = caller {
            span.record("caller", tracing::field::display(&caller.identity));
            request.extensions_mut().insert(caller);
        }
        let deadline = asked.unwrap_or(self.limits.call).min(self.limits.call);
        let answer = AssertUnwindSafe(door.router.clone().oneshot(request))
            .catch_unwind()
            .instrument(span);
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(Ok(response))) => Ok((response, permits, ended)),
            Ok(Ok(Err(never))) => match never {},
            // One call's panic must not take the other calls of its connection with it.
            Ok(Err(_)) => {
                tracing::error!(method = line.name, "a handler panicked");
                Err(ApiError::Internal)
            }
            Err(_) => Err(ApiError::Deadline),
        }
    }

    fn find(&self, door: &Door, request: &Request<Body>) -> Result<Line, ApiError> {
        let path = request.uri().path();
        if door.surface == Surface::Grpc {
            let rpc = self.table.rpc(path).ok_or(ApiError::NoSuchMethod)?;
            return Ok(Line {
                name: rpc.path,
                rule: rpc.rule,
                streams: rpc.streams,
            });
        }
        let route = AccessTable::route(request.method(), path).map_err(|path_exists| {
            if path_exists {
                ApiError::MethodNotAllowed
            } else {
                ApiError::NoSuchMethod
            }
        })?;
        let rule = match (door.surface, route.plain) {
            (Surface::Health, false) => return Err(ApiError::NoSuchMethod),
            (Surface::Health, true) => Rule::Anyone,
            _ => route.rule,
        };
        Ok(Line {
            name: route.path,
            rule,
            streams: false,
        })
    }

    /// Who calls, if they may and not too often.
    async fn admit(
        &self,
        door: &Door,
        peer: &Peer,
        line: Line,
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, ApiError> {
        let address = peer.address.map(|address| address.ip());
        if door.surface == Surface::Health {
            self.pace(RateKey::peer(address))?;
            return Ok(None);
        }
        let identified = match self.identifier.identify(headers, peer.certificate.as_ref()).await {
            Ok(Some(caller)) => Ok(Some(caller)),
            Ok(None) if door.trusting => Ok(Some(Caller {
                identity: Identity::local_operator(),
                expires_at: None,
                revoked: None,
            })),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let caller = match identified {
            Ok(caller) => caller,
            Err(error) => {
                // Guessing is paced by where it comes from; who has proved an identity is not held up by it.
                self.pace(RateKey::peer(address))?;
                return Err(error);
            }
        };
        self.pace(match &caller {
            Some(caller) => RateKey::Identity(caller.identity.clone()),
            None => RateKey::peer(address),
        })?;
        line.rule.admit(caller.as_ref().map(|caller| &caller.identity))?;
        Ok(caller)
    }

    fn pace(&self, key: RateKey) -> Result<(), ApiError> {
        self.rates
            .take(key)
            .map_err(|retry_after| ApiError::RateLimited { retry_after })
    }

    /// A place among the calls, or among the streams. Probes always find one.
    fn room(&self, door: &Door, line: Line) -> Result<Option<Permits>, ApiError> {
        if door.surface == Surface::Health {
            return Ok(None);
        }
        let (places, what) = if line.streams {
            (&self.streams, "streams")
        } else {
            (&self.calls, "calls")
        };
        let permit = places
            .clone()
            .try_acquire_owned()
            .map_err(|_| ApiError::Overloaded { what })?;
        Ok(Some(permit))
    }
}

/// An error as the surface says it.
pub(crate) fn render(surface: Surface, error: &ApiError) -> Response<Body> {
    match surface {
        Surface::Grpc => error.status().into_http(),
        Surface::Http | Surface::Health => {
            let mut response = axum::Json(error.document()).into_response();
            *response.status_mut() = error.row().http;
            response.headers_mut().extend(error.headers());
            response
        }
    }
}

/// The outcome, where it is known before the body has been sent.
fn known_outcome(surface: Surface, parts: &http::response::Parts) -> Option<String> {
    match surface {
        Surface::Grpc => {
            let sent = parts.headers.get("grpc-status")?;
            Some(code_name(tonic::Code::from_bytes(sent.as_bytes())).to_owned())
        }
        Surface::Http | Surface::Health => Some(parts.status.as_u16().to_string()),
    }
}

/// How long the client is willing to wait.
fn grpc_timeout(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let Some(value) = headers.get("grpc-timeout") else {
        return Ok(None);
    };
    let malformed = || ApiError::invalid("grpc-timeout", "it is up to 8 digits and one of H, M, S, m, u, n");
    let text = value.to_str().map_err(|_| malformed())?;
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(malformed());
    }
    let amount: u64 = digits.parse().map_err(|_| malformed())?;
    let wait = match text.strip_prefix(digits) {
        Some("H") => Duration::from_secs(amount * 3600),
        Some("M") => Duration::from_secs(amount * 60),
        Some("S") => Duration::from_secs(amount),
        Some("m") => Duration::from_millis(amount),
        Some("u") => Duration::from_micros(amount),
        Some("n") => Duration::from_nanos(amount),
        _ => return Err(malformed()),
    };
    Ok(Some(wait))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn timeout(text: &'static str) -> Result<Option<Duration>, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-timeout", HeaderValue::from_static(text));
        grpc_timeout(&headers)
    }

    #[test]
    fn a_timeout_is_read_in_every_unit() {
        assert_eq!(timeout("5S"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(
            timeout("99999999H"),
            Ok(Some(Duration::from_secs(99_999_999 * 3600)))
        );
        assert_eq!(timeout("20m"), Ok(Some(Duration::from_millis(20))));
        assert_eq!(timeout("7n"), Ok(Some(Duration::from_nanos(7))));
    }

    #[test]
    fn a_malformed_timeout_is_refused() {
        for text in ["", "S", "5", "5x", "123456789S", "-5S", "5 S", "5SS", "0x5S"] {
            assert!(timeout(text).is_err(), "{text:?}");
        }
    }
}
