//! From a `kube::Client` to the API server inside the process, without sockets.
//!
//! Requests go straight to the router. Only those that upgrade (exec, attach) need a connection to take
//! over: they get one of their own, in memory.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use axum::{Router, body::Body};
use futures::future::BoxFuture;
use http::{Request, Response, header};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tower::{BoxError, Service};

/// How much may be under way in one direction of an upgraded connection.
const BUFFER: usize = 64 * 1024;

/// The service a client is made of.
#[derive(Clone, Debug)]
pub struct Transport {
    router: Router,
}

impl Transport {
    pub(super) fn new(router: Router) -> Self {
        Self { router }
    }
}

impl Service<Request<kube::client::Body>> for Transport {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let ready: Poll<Result<(), Infallible>> =
            Service::<Request<Body>>::poll_ready(&mut self.router, context);
        ready.map_err(Into::into)
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let request = request.map(Body::new);
        if request.headers().contains_key(header::UPGRADE) {
            return Box::pin(upgrade(self.router.clone(), request));
        }
        let answer = self.router.call(request);
        Box::pin(async move { answer.await.map_err(Into::into) })
    }
}

/// Sends one request over a connection in memory that it may keep.
async fn upgrade(router: Router, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    let (near, far) = tokio::io::duplex(BUFFER);
    let server = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(far), TowerToHyperService::new(router))
        .with_upgrades();
    // Both halves end with the connection: nobody needs to wait for them.
    tokio::spawn(async move {
        if let Err(error) = server.await {
            tracing::debug!(%error, "an upgraded connection inside the embedded cluster ended");
        }
    });
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "an upgraded connection inside the embedded cluster ended");
        }
    });
    Ok(sender.send_request(request).await?.map(Body::new))
}
