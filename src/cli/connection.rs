//! The way to a server: TLS, credentials, deadlines, and messages that say what to do when it is not there.

use std::{error::Error, fs, net::IpAddr, path::Path, time::Duration};

use http::Uri;
use tonic::{
    Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use zeroize::Zeroizing;

use super::{
    arguments::ClientArguments,
    failure::{Exit, Failure},
};

/// An inventory of many thousand nodes is one message.
pub const LARGEST_ANSWER: usize = 512 << 20;

/// A server that says nothing for this long is asked whether it is still there.
const PING_AFTER: Duration = Duration::from_secs(20);

/// Knows how to reach a server; connects when asked to.
#[derive(Debug)]
pub struct Connection {
    server: String,
    endpoint: Endpoint,
    bearer: Bearer,
    timeout: Duration,
}

/// A connection that sends the caller's credentials.
pub type Wire = InterceptedService<Channel, Bearer>;

/// Adds the bearer token to each call.
#[derive(Clone, Debug)]
pub struct Bearer {
    token: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

impl Connection {
    /// Checks flags and reads credentials; does not connect yet.
    pub fn open(arguments: &ClientArguments) -> Result<Self, Failure> {
        let server = arguments.server().to_owned();
        let address = parse_address(&server)?;
        let secure = address.scheme_str() == Some("https");
        let mut endpoint = Endpoint::from(address.clone())
            .connect_timeout(arguments.timeout)
            .http2_keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_AFTER)
            .keep_alive_while_idle(true)
            .user_agent(concat!("freehold/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| Failure::failed(chain(&error)))?;
        if secure {
            endpoint = endpoint
                .tls_config(tls(arguments)?)
                .map_err(|error| Failure::bad_input("--ca", chain(&error)))?;
        } else if let Some(flag) = tls_flag(arguments) {
            return Err(Failure::bad_input(flag, format!("it has no effect on {server}"))
                .hint("write https:// in --server"));
        }
        let token = arguments.token_file.as_deref().map(read_token).transpose()?;
        if token.is_some() && !secure && !is_loopback(&address) {
            return Err(Failure::bad_input(
                "--token-file",
                format!("a token is not sent in the clear to {server}"),
            )
            .hint("write https:// in --server, with --ca"));
        }
        Ok(Self {
            server,
            endpoint,
            bearer: Bearer { token },
            timeout: arguments.timeout,
        })
    }

    /// Connects.
    pub async fn wire(&self) -> Result<Wire, Failure> {
        match tokio::time::timeout(self.timeout, self.endpoint.connect()).await {
            Ok(Ok(channel)) => Ok(InterceptedService::new(channel, self.bearer.clone())),
            Ok(Err(error)) => Err(self.explain(&error)),
            Err(_) => Err(self.too_slow()),
        }
    }

    /// A request with the deadline of `--timeout`.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }

    /// Waits for an answer, not longer than `--timeout`.
    pub async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.refused(status)),
            Err(_) => Err(self.too_slow()),
        }
    }

    /// What a status means: the server's word, or a connection that broke.
    pub fn refused(&self, status: Status) -> Failure {
        match status.source() {
            Some(source) => self.explain(source),
            None => Failure::from(status),
        }
    }

    fn too_slow(&self) -> Failure {
        Failure::new(
            Exit::Unreachable,
            "deadline_exceeded",
            format!(
                "{} did not answer within {}",
                self.server,
                super::amounts::span(self.timeout)
            ),
        )
        .hint("give it more time with --timeout, or look at the server's log")
    }

    fn explain(&self, error: &(dyn Error + 'static)) -> Failure {
        // tonic keeps the deadline as well, and may be first.
        if sources(error).any(|error| error.is::<tonic::TimeoutExpired>()) {
            return self.too_slow();
        }
        let reasons = chain(error);
        let secure = self.endpoint.uri().scheme_str() == Some("https");
        let hint = if is_refusal(error) {
            "is `freehold serve` running? if it listens elsewhere, say where with --server".to_owned()
        } else if reasons.contains("UnknownIssuer") || reasons.contains("BadSignature") {
            "the server's certificate comes from another CA: give that one with --ca".to_owned()
        } else if reasons.contains("NotValidForName") {
            "the server's certificate is for another name: write that name in --server".to_owned()
        } else if secure && (reasons.contains("InvalidContentType") || reasons.contains("corrupt message")) {
            "the server does not speak TLS: write http:// in --server".to_owned()
        } else if secure && reasons.contains("CertificateRequired") {
            "the server wants a client certificate: give --cert and --key".to_owned()
        } else if !secure {
            "is `freehold serve` running there? if it speaks TLS, write https:// in --server and give --ca"
                .to_owned()
        } else {
            "is `freehold serve` running there?".to_owned()
        };
        Failure::unreachable(format!("{} cannot be reached: {reasons}", self.server)).hint(hint)
    }
}

fn parse_address(server: &str) -> Result<Uri, Failure> {
    let bad = |message: &str| {
        Failure::bad_input("--server", format!("{server:?} {message}"))
            .hint("write it as in http://127.0.0.1:7070")
    };
    let address: Uri = server.parse().map_err(|_| bad("is not a URL"))?;
    match address.scheme_str() {
        Some("http" | "https") => {}
        Some(_) => return Err(bad("has a scheme other than http and https")),
        None => return Err(bad("has no scheme")),
    }
    if address.host().is_none_or(str::is_empty) {
        return Err(bad("has no host"));
    }
    Ok(address)
}

fn is_loopback(address: &Uri) -> bool {
    let host = address.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn tls_flag(arguments: &ClientArguments) -> Option<&'static str> {
    [
        ("--ca", &arguments.ca),
        ("--cert", &arguments.cert),
        ("--key", &arguments.key),
    ]
    .into_iter()
    .find_map(|(flag, file)| file.is_some().then_some(flag))
}

fn tls(arguments: &ClientArguments) -> Result<ClientTlsConfig, Failure> {
    let Some(ca) = &arguments.ca else {
        return Err(Failure::bad_input(
            "--ca",
            "https needs the CA certificate that the server's comes from",
        )
        .hint("the server's operator has it; FREEHOLD_CA=FILE works too"));
    };
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("--ca", ca)?));
    match (&arguments.cert, &arguments.key) {
        (Some(cert), Some(key)) => {
            let key = Zeroizing::new(read("--key", key)?);
            Ok(config.identity(Identity::from_pem(read("--cert", cert)?, &*key)))
        }
        (None, None) => Ok(config),
        (Some(_), None) => Err(Failure::bad_input(
            "--key",
            "--cert needs the private key as well",
        )),
        (None, Some(_)) => Err(Failure::bad_input(
            "--cert",
            "--key needs the certificate as well",
        )),
    }
}

fn read(flag: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file)
        .map_err(|error| Failure::bad_input(flag, format!("{} cannot be read: {error}", file.display())))
}

fn read_token(file: &Path) -> Result<MetadataValue<Ascii>, Failure> {
    let bad = |message: &str| Failure::bad_input("--token-file", format!("{} {message}", file.display()));
    let bytes = Zeroizing::new(read("--token-file", file)?);
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| bad("is not a token"))?
        .trim();
    if text.is_empty() {
        return Err(bad("is empty"));
    }
    let header = Zeroizing::new(format!("Bearer {text}"));
    let mut value = MetadataValue::try_from(header.as_str()).map_err(|_| bad("holds more than one token"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    sources(error).any(|error| {
        error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    })
}

fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        (**error).source()
    })
}

/// The whole chain on one line, without the parts that only repeat.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    for error in sources(error) {
        let text = error.to_string();
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}
