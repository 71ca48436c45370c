//! A response's body: holds the call's place until it is sent, ends a stream when its reader loses
//! the right to it, and counts how it ended.

use std::{
    any::Any,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::Surface;
use crate::{
    api::errors::{ApiError, code_name},
    ports::telemetry::{Metrics, RequestLabels},
};

/// A place among the calls.
pub(super) type Permits = OwnedSemaphorePermit;
/// Resolves when a stream must end, and why.
pub(super) type Ended = Pin<Box<dyn Future<Output = ApiError> + Send>>;

/// What ends a stream from our side.
pub(super) fn ended(
    stopping: CancellationToken,
    revoked: Option<CancellationToken>,
    left: Option<Duration>,
    asked: Option<Duration>,
) -> Ended {
    Box::pin(async move {
        let lasts = |wait: Option<Duration>| async move {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let taken_back = async {
            match revoked {
                Some(revoked) => revoked.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let lost = |reason: &str| ApiError::CredentialsInvalid {
            reason: reason.to_owned(),
        };
        tokio::select! {
            biased;
            () = stopping.cancelled() => ApiError::Stopping,
            () = taken_back => lost("the token has been revoked"),
            () = lasts(left) => lost("they have expired"),
            () = lasts(asked) => ApiError::Deadline,
        }
    })
}

/// Counts one answer.
pub(super) struct Outcome {
    metrics: Metrics,
    surface: Surface,
    method: &'static str,
}

impl Outcome {
    pub(super) fn new(metrics: Metrics, surface: Surface, method: &'static str) -> Self {
        Self {
            metrics,
            surface,
            method,
        }
    }

    pub(super) fn record(self, code: String) {
        let family = match self.surface {
            Surface::Grpc => &self.metrics.grpc_requests,
            Surface::Http | Surface::Health => &self.metrics.http_requests,
        };
        let labels = RequestLabels {
            method: self.method,
            code,
        };
        family.get_or_create(&labels).inc();
    }
}

/// The body itself.
pub(super) struct GuardedBody {
    inner: Body,
    ended: Option<Ended>,
    outcome: Option<Outcome>,
    finished: bool,
    _permits: Option<Permits>,
    _alive: Box<dyn Any + Send>,
}

impl GuardedBody {
    pub(super) fn new(
        inner: Body,
        ended: Option<Ended>,
        outcome: Option<Outcome>,
        permits: Option<Permits>,
        alive: Box<dyn Any + Send>,
    ) -> Self {
        Self {
            inner,
            ended,
            outcome,
            finished: false,
            _permits: permits,
            _alive: alive,
        }
    }

    fn count(&mut self, code: &str) {
        if let Some(outcome) = self.outcome.take() {
            outcome.record(code.to_owned());
        }
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.finished {
            return Poll::Ready(None);
        }
        // First, so that a stream that never pauses ends too.
        if let Some(ended) = &mut self.ended
            && let Poll::Ready(error) = ended.as_mut().poll(context)
        {
            self.finished = true;
            self.ended = None;
            // What feeds the stream is let go at once.
            self.inner = Body::empty();
            let status = error.status();
            self.count(code_name(status.code()));
            let mut trailers = HeaderMap::new();
            if status.add_header(&mut trailers).is_err() {
                return Poll::Ready(None);
            }
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                let sent = frame
                    .trailers_ref()
                    .and_then(|trailers| trailers.get("grpc-status"));
                if let Some(sent) = sent {
                    let code = code_name(tonic::Code::from_bytes(sent.as_bytes()));
                    self.count(code);
                }
            }
            Some(Err(_)) => {
                self.finished = true;
                self.count("INTERNAL");
            }
            None => {
                self.finished = true;
                self.count("UNKNOWN");
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.finished || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.ended.is_some() {
            SizeHint::default()
        } else {
            self.inner.size_hint()
        }
    }
}

impl Drop for GuardedBody {
    fn drop(&mut self) {
        // Nobody read it to its end.
        self.count("CANCELLED");
    }
}
