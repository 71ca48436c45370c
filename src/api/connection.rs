//! Connections: accepted up to a bound, TLS within a time, served by the gate, closed when idle and
//! when the server stops. Works on any stream of I/O, a socket's or an in-memory duplex's.

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::body::Body;
use futures::{Stream, StreamExt as _};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Semaphore, watch},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    access::certificate,
    gate::{Door, Gate, Peer, Surface},
    limits::Limits,
    tls::Tls,
};
use crate::ports::telemetry::ListenerLabels;

/// How long an idle connection may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long to wait after the system could not give us a connection: it may be out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Everything a listener's connections share.
#[derive(Clone, Debug)]
pub(crate) struct Reception {
    pub(crate) gate: Arc<Gate>,
    pub(crate) door: Arc<Door>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) limits: Limits,
    /// No new connections; those there are finish what they do.
    pub(crate) stopping: CancellationToken,
    /// Drop everything.
    pub(crate) killed: CancellationToken,
    pub(crate) connections: TaskTracker,
}

impl Reception {
    /// Serves every connection that comes in, until the server stops or no more can come.
    pub(crate) async fn serve<I, S>(self, incoming: S)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        S: Stream<Item = io::Result<(I, Option<SocketAddr>)>>,
    {
        let mut incoming = pin!(incoming);
        let slots = Arc::new(Semaphore::new(self.limits.connections));
        loop {
            let accepted = async {
                let slot = slots.clone().acquire_owned().await;
                (slot, incoming.next().await)
            };
            let accepted = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                accepted = accepted => accepted,
            };
            match accepted {
                (Ok(slot), Some(Ok((io, address)))) => {
                    let reception = self.clone();
                    self.connections.spawn(async move {
                        reception.connection(io, address).await;
                        drop(slot);
                    });
                }
                (_, Some(Err(error))) => {
                    tracing::warn!(%error, listener = self.door.surface.name(), "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                (_, None) | (Err(_), _) => return,
            }
        }
    }

    async fn connection<I>(self, io: I, address: Option<SocketAddr>)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let open = self
            .gate
            .metrics
            .connections
            .get_or_create_owned(&ListenerLabels {
                listener: self.door.surface.name(),
            });
        open.inc();
        let killed = self.killed.clone();
        tokio::select! {
            biased;
            () = killed.cancelled() => {}
            () = self.secure_and_talk(io, address) => {}
        }
        open.dec();
    }

    async fn secure_and_talk<I>(&self, io: I, address: Option<SocketAddr>)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Some(tls) = &self.tls else {
            let peer = Peer {
                address,
                certificate: None,
            };
            return self.talk(io, peer).await;
        };
        let handshake = TlsAcceptor::from(tls.current()).accept(io);
        let stream = tokio::select! {
            biased;
            () = self.stopping.cancelled() => return,
            stream = timeout(self.limits.handshake, handshake) => stream,
        };
        match stream {
            Ok(Ok(stream)) => {
                let sent = stream.get_ref().1.peer_certificates();
                let peer = Peer {
                    address,
                    certificate: sent.and_then(<[_]>::first).map(certificate::identify),
                };
                self.talk(stream, peer).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, ?address, "a TLS handshake failed"),
            Err(_) => tracing::debug!(?address, "a TLS handshake took too long"),
        }
    }

    async fn talk<I>(&self, io: I, peer: Peer)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (in_flight, activity) = watch::channel(0_usize);
        let in_flight = Arc::new(in_flight);
        let peer = Arc::new(peer);
        let service = service_fn(|request: http::Request<Incoming>| {
            let (gate, door, peer) = (self.gate.clone(), self.door.clone(), peer.clone());
            let alive = Working::begin(in_flight.clone());
            async move {
                let request = request.map(Body::new);
                Ok::<_, Infallible>(gate.handle(&door, &peer, request, alive).await)
            }
        });
        let builder = self.builder();
        let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
        let idle = self.idle(activity);
        let stopping = tokio::select! {
            biased;
            () = self.stopping.cancelled() => true,
            _ = connection.as_mut() => return,
            () = idle => false,
        };
        connection.as_mut().graceful_shutdown();
        // On a stop the server's own deadline cuts it off.
        if stopping {
            let _ = connection.await;
        } else {
            let _ = timeout(FAREWELL, connection).await;
        }
    }

    fn builder(&self) -> auto::Builder<TokioExecutor> {
        let limits = &self.limits;
        let mut builder = auto::Builder::new(TokioExecutor::new());
        if self.door.surface == Surface::Grpc {
            builder = builder.http2_only();
        }
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_headers(100)
            // hyper wants at least 8 KiB.
            .max_buf_size(usize::try_from(limits.header_bytes).map_or(16_384, |bytes| bytes.max(8192)));
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(limits.header_bytes)
            .max_concurrent_streams(limits.streams_per_connection)
            .max_pending_accept_reset_streams(32)
            .max_local_error_reset_streams(256)
            .keep_alive_interval(limits.keepalive)
            .keep_alive_timeout(limits.keepalive);
        builder
    }

    /// Ends when the connection has done nothing for too long: little time until its first call, more
    /// between calls, none counted while one is in flight.
    async fn idle(&self, mut activity: watch::Receiver<usize>) {
        let mut allowance = self.limits.handshake;
        loop {
            // A call may have come and gone before this is polled for the first time.
            if activity.has_changed().unwrap_or(false) {
                allowance = self.limits.idle;
            }
            let busy = *activity.borrow_and_update() > 0;
            let changed = if busy {
                activity.changed().await.is_ok()
            } else {
                match timeout(allowance, activity.changed()).await {
                    Ok(changed) => changed.is_ok(),
                    Err(_) => return,
                }
            };
            if !changed {
                // Nobody counts any more; the connection itself is over.
                std::future::pending::<()>().await;
            }
            allowance = self.limits.idle;
        }
    }
}

/// A call in flight on a connection, until its answer is out.
struct Working(Arc<watch::Sender<usize>>);

impl Working {
    fn begin(count: Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count = count.saturating_add(1));
        Self(count)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
