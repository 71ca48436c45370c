//! A proxy in front of the API server that misbehaves as told: delays, cuts, refuses. It ends TLS with a certificate
//! of the same authority, so that clients notice nothing but the faults.

use std::{convert::Infallible, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::control_plane::ControlPlane;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Error>;

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is passed on after this long.
    Delay(Duration),
    /// It is never answered; the connection stays open.
    Hang,
    /// The connection is closed before the request is passed on.
    Cut,
    /// The request is passed on and done, and the connection closed instead of the answer.
    CutAfterward,
    /// The answer's body breaks off after this many bytes.
    CutBodyAfter(usize),
    /// It is answered with this code and a Status object, and never passed on.
    Answer {
        /// The HTTP code.
        code: u16,
        /// Seconds for the header Retry-After.
        retry_after: Option<u32>,
    },
}

/// One request, as faults are chosen by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub method: Method,
    pub uri: Uri,
}

type Choice = Box<dyn Fn(&Seen) -> bool + Send + Sync>;

struct Rule {
    applies: Choice,
    fault: Fault,
    times: usize,
}

#[derive(Default)]
struct Conduct {
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Vec<Seen>>,
    /// Cancelled to close every open connection.
    connections: Mutex<CancellationToken>,
}

/// The proxy; it ends when dropped.
pub struct Proxy {
    address: SocketAddr,
    conduct: Arc<Conduct>,
    _serving: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Proxy({})", self.address)
    }
}

impl Proxy {
    /// Starts one on this runtime, well-behaved.
    pub async fn start(plane: &ControlPlane) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let conduct = Arc::new(Conduct::default());
        let upstream = Arc::new(Upstream::new(plane)?);
        let acceptor = acceptor(plane)?;
        let serving = tokio::spawn(accept(listener, acceptor, upstream, Arc::clone(&conduct)));
        Ok(Self {
            address,
            conduct,
            _serving: AbortOnDropHandle::new(serving),
        })
    }

    /// A kubeconfig for a token that goes through this proxy.
    pub fn kubeconfig(&self, plane: &ControlPlane, name: &str, token: &str) -> io::Result<PathBuf> {
        let name = format!("{name}-through-{}", self.address.port());
        plane.write_kubeconfig(&name, token, Some(self.address))
    }

    /// From now on, this fault for the next `times` requests that apply. Faults given first are used up first.
    pub fn inject(
        &self,
        times: usize,
        fault: Fault,
        applies: impl Fn(&Seen) -> bool + Send + Sync + 'static,
    ) {
        self.conduct.rules.lock().push(Rule {
            applies: Box::new(applies),
            fault,
            times,
        });
    }

    /// No more faults.
    pub fn behave(&self) {
        self.conduct.rules.lock().clear();
    }

    /// Closes every open connection, in the middle of whatever it carries.
    pub fn cut_connections(&self) {
        let cut = std::mem::take(&mut *self.conduct.connections.lock());
        cut.cancel();
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.conduct.seen.lock().clone()
    }
}

impl Conduct {
    fn fault(&self, request: &Seen) -> Option<Fault> {
        self.seen.lock().push(request.clone());
        let mut rules = self.rules.lock();
        let rule = rules
            .iter_mut()
            .find(|rule| rule.times > 0 && (rule.applies)(request))?;
        rule.times -= 1;
        Some(rule.fault.clone())
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    upstream: Arc<Upstream>,
    conduct: Arc<Conduct>,
) {
    // Dropped with this task, and with it every connection.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let (acceptor, upstream, conduct) = (acceptor.clone(), Arc::clone(&upstream), Arc::clone(&conduct));
        let cut = conduct.connections.lock().clone();
        connections.spawn(async move {
            let serving = async {
                let connection = acceptor.accept(connection).await?;
                let service = service_fn(|request| serve(request, &upstream, &conduct));
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(connection), service)
                    .await?;
                Ok::<(), Error>(())
            };
            // How a connection ends is the client's to judge.
            let _ = cut.run_until_cancelled(serving).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(
    request: Request<Incoming>,
    upstream: &Upstream,
    conduct: &Conduct,
) -> Result<Response<Body>, Error> {
    let seen = Seen {
        method: request.method().clone(),
        uri: request.uri().clone(),
    };
    match conduct.fault(&seen) {
        None => upstream.pass(request).await,
        Some(Fault::Delay(delay)) => {
            tokio::time::sleep(delay).await;
            upstream.pass(request).await
        }
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Cut) => Err("cut".into()),
        Some(Fault::CutAfterward) => {
            let answer = upstream.pass(request).await?;
            answer.into_body().collect().await?;
            Err("cut".into())
        }
        Some(Fault::CutBodyAfter(bytes)) => {
            let (mut parts, body) = upstream.pass(request).await?.into_parts();
            // Else the client would know how much is missing.
            parts.headers.remove(header::CONTENT_LENGTH);
            Ok(Response::from_parts(parts, break_off(body, bytes)))
        }
        Some(Fault::Answer { code, retry_after }) => Ok(refusal(code, retry_after)?),
    }
}

fn break_off(body: Body, bytes: usize) -> Body {
    let frames = BodyStream::new(body).scan(Some(bytes), |left, frame| {
        let next = left.map(|allowed| {
            let frame = frame?;
            let Some(data) = frame.data_ref() else {
                return Ok(frame);
            };
            if data.len() < allowed {
                *left = Some(allowed - data.len());
                return Ok(frame);
            }
            *left = None;
            if allowed == 0 {
                return Err(Error::from("cut"));
            }
            Ok(hyper::body::Frame::data(data.slice(..allowed)))
        });
        std::future::ready(next)
    });
    let broken = frames.chain(futures::stream::once(async { Err(Error::from("cut")) }));
    BodyExt::boxed_unsync(StreamBody::new(broken))
}

/// An answer as the API server itself gives it when it cannot.
fn refusal(code: u16, retry_after: Option<u32>) -> Result<Response<Body>, http::Error> {
    let reason = match code {
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        410 => "Expired",
        _ => "Unknown",
    };
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "told to by the testbed", "reason": reason, "code": code,
    });
    let mut answer = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        answer = answer.header(header::RETRY_AFTER, seconds);
        status["details"] = json!({"retryAfterSeconds": seconds});
    }
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never: Infallible| match never {});
    answer.body(BodyExt::boxed_unsync(body))
}

/// The way to the API server: a connection for each request.
struct Upstream {
    address: SocketAddr,
    tls: TlsConnector,
}

impl Upstream {
    fn new(plane: &ControlPlane) -> io::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(plane.authority().certificate().as_bytes())
            .map_err(io::Error::other)?;
        roots.add(authority).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            address: plane.address(),
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    async fn pass(&self, request: Request<Incoming>) -> Result<Response<Body>, Error> {
        let connection = TcpStream::connect(self.address).await?;
        let name = ServerName::from(self.address.ip());
        let connection = self.tls.connect(name, connection).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(connection)).await?;
        // It lives as long as the answer's body is read.
        let carrying = AbortOnDropHandle::new(tokio::spawn(connection));
        let answer = sender.send_request(request).await?;
        Ok(answer.map(|body| {
            let frames = BodyStream::new(body).map(move |frame| {
                let _carrying = &carrying;
                frame.map_err(Error::from)
            });
            BodyExt::boxed_unsync(StreamBody::new(frames))
        }))
    }
}

fn acceptor(plane: &ControlPlane) -> io::Result<TlsAcceptor> {
    let identity = plane.authority().server().map_err(io::Error::other)?;
    let certificate =
        CertificateDer::from_pem_slice(identity.certificate.as_bytes()).map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(identity.key.serialize_der()).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
