//! The commands against a server made for the test, and against servers that are not there.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
};

use clap::CommandFactory as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{Identity, Server, ServerTlsConfig},
};

use super::*;
use crate::{
    api::{
        proto::{
            private_v1::{
                self,
                access_service_server::{AccessService, AccessServiceServer},
                debug_service_server::{DebugService, DebugServiceServer},
            },
            v1::{
                self,
                event_service_server::{EventService, EventServiceServer},
                inventory_service_server::{InventoryService, InventoryServiceServer},
                status_service_server::{StatusService, StatusServiceServer},
            },
        },
        wire,
    },
    domain::{
        actor::{ActorReport, ActorState},
        event::{BusEvent, Change},
        inventory::{Inventory, NodeReport},
        status::{ClusterIdentity, InventorySummary, Recovery, Status as StatusDocument, StoreSummary},
    },
};

/// What a command printed, and how it ended.
#[derive(Debug)]
struct Outcome {
    exit: Exit,
    out: String,
    err: String,
}

impl Outcome {
    fn error(&self) -> Value {
        serde_json::from_str::<Value>(&self.err).unwrap()["error"].clone()
    }
}

fn freehold(arguments: &[&str]) -> Outcome {
    freehold_until(arguments, usize::MAX)
}

/// Runs a command whose output is read up to so many lines.
fn freehold_until(arguments: &[&str], lines: usize) -> Outcome {
    let (mut out, mut err) = (
        Pipe {
            text: Vec::new(),
            lines,
        },
        Vec::new(),
    );
    let words = std::iter::once("freehold").chain(arguments.iter().copied());
    let invocation = Invocation {
        arguments: words.map(OsString::from).collect(),
        environment: Vec::new(),
    };
    let exit = execute(invocation, &mut Console::new(&mut out, &mut err));
    Outcome {
        exit,
        out: String::from_utf8(out.text).unwrap(),
        err: String::from_utf8(err).unwrap(),
    }
}

/// A pipe whose reader goes away after some lines.
struct Pipe {
    text: Vec<u8>,
    lines: usize,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let lines = self.text.iter().filter(|byte| **byte == b'\n').count();
        if lines >= self.lines {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Script = Vec<Result<Vec<Result<BusEvent, Status>>, Status>>;

/// A provider that answers with what it is given.
#[derive(Clone, Default)]
struct Fake {
    /// The answers to calls of Watch, in turn.
    watches: Arc<Mutex<Script>>,
    /// What those calls asked for.
    asked: Arc<Mutex<Vec<Option<u64>>>>,
    /// The authorization header of the last call.
    authorization: Arc<Mutex<Option<String>>>,
    /// How every other call is refused, if it is.
    refuse: Option<Status>,
}

impl Fake {
    fn check(&self, metadata: &tonic::metadata::MetadataMap) -> Result<(), Status> {
        *self.authorization.lock() = metadata
            .get("authorization")
            .map(|value| value.to_str().unwrap().to_owned());
        self.refuse.clone().map_or(Ok(()), Err)
    }
}

fn status_document() -> StatusDocument {
    StatusDocument {
        version: "0.1.0".into(),
        revision: "abc".into(),
        started_at: Timestamp::UNIX_EPOCH,
        ready: true,
        reasons: vec![],
        mode: "manage".into(),
        maintenance: false,
        cluster: ClusterIdentity {
            kind: "embedded".into(),
            uid: None,
            server: "in the process".into(),
        },
        inventory: InventorySummary {
            revision: 4,
            age_ms: Some(1500),
            nodes: Some(12),
        },
        reservations: 0,
        leases: 0,
        store: StoreSummary {
            path: "./data".into(),
            bytes: 2048,
            healthy: true,
        },
        recovered: Recovery::default(),
    }
}

fn inventory_document() -> Inventory {
    Inventory {
        revision: 4,
        observed_at: Some(Timestamp::UNIX_EPOCH),
        age_ms: Some(3),
        ready: true,
        nodes: vec![NodeReport {
            name: "node-0001".into(),
            ..NodeReport::default()
        }],
    }
}

fn actor_document() -> ActorReport {
    let actor = |path: &str, kind: &str, children| ActorReport {
        path: path.into(),
        kind: kind.into(),
        state: ActorState::Running,
        since: Timestamp::UNIX_EPOCH,
        restarts: 1,
        mailbox: 0,
        last_fault: None,
        view: json!({"x": 1}),
        children,
    };
    actor("root", "root", vec![actor("root/node-pool", "node-pool", vec![])])
}

#[tonic::async_trait]
impl StatusService for Fake {
    type WatchStream = tokio_stream::Empty<Result<v1::WatchStatusResponse, Status>>;

    async fn get(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        self.check(request.metadata())?;
        let status = Some(wire::status::render(status_document()));
        Ok(Response::new(v1::GetStatusResponse { status }))
    }

    async fn watch(&self, _: Request<v1::WatchStatusRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

#[tonic::async_trait]
impl InventoryService for Fake {
    async fn get(
        &self,
        request: Request<v1::GetInventoryRequest>,
    ) -> Result<Response<v1::GetInventoryResponse>, Status> {
        self.check(request.metadata())?;
        let inventory = Some(wire::inventory::render(inventory_document()));
        Ok(Response::new(v1::GetInventoryResponse { inventory }))
    }
}

type Events = Pin<Box<dyn futures::Stream<Item = Result<v1::Event, Status>> + Send>>;

#[tonic::async_trait]
impl EventService for Fake {
    type WatchStream = Events;

    async fn watch(&self, request: Request<v1::WatchEventsRequest>) -> Result<Response<Events>, Status> {
        self.asked.lock().push(request.get_ref().after);
        let mut watches = self.watches.lock();
        if watches.is_empty() {
            return Ok(Response::new(Box::pin(futures::stream::pending())));
        }
        let events = watches.remove(0)?;
        let events = events.into_iter().map(|event| event.map(wire::event::render));
        Ok(Response::new(Box::pin(futures::stream::iter(
            events.collect::<Vec<_>>(),
        ))))
    }
}

#[tonic::async_trait]
impl DebugService for Fake {
    async fn list_actors(
        &self,
        request: Request<private_v1::ListActorsRequest>,
    ) -> Result<Response<private_v1::ListActorsResponse>, Status> {
        self.check(request.metadata())?;
        if request.get_ref().path == "root/nobody" {
            return Err(Status::not_found("there is no actor root/nobody"));
        }
        let actor = Some(wire::actor::render(actor_document()));
        Ok(Response::new(private_v1::ListActorsResponse { actor }))
    }

    async fn retry_actor(
        &self,
        _: Request<private_v1::RetryActorRequest>,
    ) -> Result<Response<private_v1::RetryActorResponse>, Status> {
        Ok(Response::new(private_v1::RetryActorResponse {}))
    }

    async fn provoke_fault(
        &self,
        _: Request<private_v1::ProvokeFaultRequest>,
    ) -> Result<Response<private_v1::ProvokeFaultResponse>, Status> {
        Ok(Response::new(private_v1::ProvokeFaultResponse {}))
    }

    async fn list_faults(
        &self,
        _: Request<private_v1::ListFaultsRequest>,
    ) -> Result<Response<private_v1::ListFaultsResponse>, Status> {
        Ok(Response::new(private_v1::ListFaultsResponse { faults: vec![] }))
    }

    async fn add_fault(
        &self,
        _: Request<private_v1::AddFaultRequest>,
    ) -> Result<Response<private_v1::AddFaultResponse>, Status> {
        Ok(Response::new(private_v1::AddFaultResponse {}))
    }

    async fn clear_faults(
        &self,
        _: Request<private_v1::ClearFaultsRequest>,
    ) -> Result<Response<private_v1::ClearFaultsResponse>, Status> {
        Ok(Response::new(private_v1::ClearFaultsResponse {}))
    }
}

#[tonic::async_trait]
impl AccessService for Fake {
    async fn create_token(
        &self,
        request: Request<private_v1::CreateTokenRequest>,
    ) -> Result<Response<private_v1::CreateTokenResponse>, Status> {
        let asked = request.into_inner();
        assert!(!asked.request_id.is_empty());
        let secret = if asked.request_id == "again" { "" } else { "s3cret" };
        Ok(Response::new(private_v1::CreateTokenResponse {
            token: Some(private_v1::Token {
                id: "t-1".into(),
                name: asked.name,
                role: asked.role,
                subject: asked.subject,
                created_at: Some(prost_types::Timestamp::default()),
                expires_at: asked.expires_at,
            }),
            secret: secret.into(),
        }))
    }

    async fn list_tokens(
        &self,
        _: Request<private_v1::ListTokensRequest>,
    ) -> Result<Response<private_v1::ListTokensResponse>, Status> {
        Ok(Response::new(private_v1::ListTokensResponse { tokens: vec![] }))
    }

    async fn revoke_token(
        &self,
        _: Request<private_v1::RevokeTokenRequest>,
    ) -> Result<Response<private_v1::RevokeTokenResponse>, Status> {
        Err(Status::aborted("somebody else is at it"))
    }
}

/// A server in a runtime of its own, which ends with the test.
struct Running {
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Running {
    fn start(fake: Fake, tls: Option<ServerTlsConfig>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        runtime.spawn(
            server
                .add_service(StatusServiceServer::new(fake.clone()))
                .add_service(InventoryServiceServer::new(fake.clone()))
                .add_service(EventServiceServer::new(fake.clone()))
                .add_service(DebugServiceServer::new(fake.clone()))
                .add_service(AccessServiceServer::new(fake))
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        Self {
            address,
            _runtime: runtime,
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn event(sequence: u64) -> BusEvent {
    BusEvent {
        topic: "inventory.nodes".into(),
        key: "n1".into(),
        sequence,
        at: Timestamp::UNIX_EPOCH,
        change: Change::Value(json!({"n": sequence})),
    }
}

#[test]
fn the_tree_of_commands_is_sound() {
    Arguments::command().debug_assert();
}

#[test]
fn no_command_means_serve_and_flags_may_stand_on_either_side() {
    let parse =
        |words: &[&str]| Arguments::try_parse_from(std::iter::once(&"freehold").chain(words)).unwrap();
    assert!(parse(&["--set", "a=b"]).command.is_none());
    for words in [
        ["-o", "json", "--server", "http://h:1", "status"],
        ["status", "--server", "http://h:1", "-o", "json"],
    ] {
        let arguments = parse(&words);
        assert_eq!(arguments.output, Format::Json);
        assert_eq!(arguments.client.server(), "http://h:1");
    }
    let sets = parse(&["--set", "a=1", "serve", "--set", "b=x=y"]).sets;
    assert!(sets.contains(&"b=x=y".to_owned()), "{sets:?}");
    assert_eq!(parse(&["status"]).client.server(), "http://127.0.0.1:7070");
}

#[test]
fn help_is_a_result_and_teaches() {
    for words in [
        &["--help"][..],
        &["watch", "--help"],
        &["token", "create", "--help"],
    ] {
        let outcome = freehold(words);
        assert_eq!(outcome.exit, Exit::Done);
        assert!(outcome.out.contains("Examples:"), "{}", outcome.out);
        assert_eq!(outcome.err, "");
    }
    assert!(freehold(&["--help"]).out.contains("Exit status:"));
    assert!(freehold(&["--version"]).out.starts_with("freehold 0.1.0 ("));
}

#[test]
fn bad_usage_is_exit_2_and_json_when_asked() {
    for words in [
        &["frobnicate"][..],
        &["status", "--nonsense"],
        &["watch"],
        &["--set", "novalue", "status"],
        &["--set", "=x", "status"],
        &["status", "--timeout", "soon"],
        &["status", "--timeout", "-3s"],
        &["status", "--timeout", "0s"],
        &["store", "rebind"],
        &["actors", "--depth", "-1"],
        &["watch", "status", "--after", "18446744073709551616"],
    ] {
        let outcome = freehold(words);
        assert_eq!(outcome.exit, Exit::BadInput, "{words:?}");
        assert!(outcome.err.starts_with("error: "), "{}", outcome.err);
        assert_eq!(outcome.out, "");
        let outcome = freehold(&[&["-o", "json"], words].concat());
        assert_eq!(outcome.error()["code"], "usage", "{words:?}");
    }
}

#[test]
fn times_are_read_as_people_write_them() {
    let timeout = |text: &str| {
        let words = ["freehold", "--timeout", text, "status"];
        Arguments::try_parse_from(words)
            .map(|arguments| arguments.client.timeout.as_millis())
            .ok()
    };
    assert_eq!(timeout("500ms"), Some(500));
    assert_eq!(timeout("1m30s"), Some(90_000));
    assert_eq!(timeout("2d"), Some(172_800_000));
    for wrong in ["", "5", "0d", "99999999999999999999d", "1e9d", "-1s", "5 parsecs"] {
        assert_eq!(timeout(wrong), None, "{wrong:?}");
    }
}

#[test]
fn an_unreachable_server_is_exit_6_and_says_what_to_do() {
    // A port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{address}");
    for words in [
        &["status"][..],
        &["inventory"],
        &["actors"],
        &["watch", "status"],
        &["token", "list"],
    ] {
        let outcome = freehold(&[words, &["--server", &url, "-o", "json"]].concat());
        assert_eq!(outcome.exit, Exit::Unreachable, "{words:?}");
        let error = outcome.error();
        assert_eq!(error["code"], "unreachable");
        assert!(error["message"].as_str().unwrap().contains(&url), "{error}");
        assert!(
            error["hint"]
                .as_str()
                .unwrap()
                .contains("is `freehold serve` running?"),
            "{error}"
        );
    }
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_given_up_after_the_timeout() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let outcome = freehold(&["status", "--server", &url, "--timeout", "50ms"]);
    assert_eq!(outcome.exit, Exit::Unreachable);
    assert!(
        outcome.err.contains("did not answer within 50ms"),
        "{}",
        outcome.err
    );
}

#[test]
fn a_wrong_server_or_flag_is_bad_input_before_anything_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let (token, empty, two) = (
        write("token", "abc\n"),
        write("empty", " \n"),
        write("two", "a\nb\n"),
    );
    for (words, field) in [
        (&["--server", "127.0.0.1:7070"][..], "--server"),
        (&["--server", "ftp://127.0.0.1:7070"], "--server"),
        (&["--server", "http://"], "--server"),
        (&["--server", "not a url"], "--server"),
        (&["--server", ""], "--server"),
        (&["--server", "https://127.0.0.1:7070"], "--ca"),
        (&["--ca", &token], "--ca"),
        (&["--cert", &token, "--key", &token], "--cert"),
        (
            &["--server", "https://h:1", "--ca", &token, "--cert", &token],
            "--key",
        ),
        (&["--server", "https://h:1", "--ca", "/does/not/exist"], "--ca"),
        (&["--token-file", "/does/not/exist"], "--token-file"),
        (&["--token-file", &empty], "--token-file"),
        (&["--token-file", &two], "--token-file"),
        (
            &["--server", "http://203.0.113.1:7070", "--token-file", &token],
            "--token-file",
        ),
    ] {
        let outcome = freehold(&[words, &["status", "-o", "json"]].concat());
        assert_eq!(outcome.exit, Exit::BadInput, "{words:?}: {}", outcome.err);
        assert_eq!(outcome.error()["field"], field, "{words:?}: {}", outcome.err);
    }
}

#[test]
fn documents_are_those_of_the_domain() {
    let server = Running::start(Fake::default(), None);
    let url = server.url();
    let ask = |words: &[&str]| {
        let outcome = freehold(&[words, &["--server", &url]].concat());
        assert_eq!(outcome.exit, Exit::Done, "{}", outcome.err);
        assert_eq!(outcome.err, "");
        outcome.out
    };
    let document = |words: &[&str]| serde_json::from_str::<Value>(&ask(words)).unwrap();
    assert_eq!(
        document(&["status", "-o", "json"]),
        serde_json::to_value(status_document()).unwrap()
    );
    let inventory = serde_json::to_value(inventory_document()).unwrap();
    assert_eq!(document(&["inventory", "-o", "json"]), inventory);
    assert_eq!(document(&["inventory", "nodes", "-o", "json"]), inventory);
    assert_eq!(
        document(&["actors", "-o", "json"]),
        serde_json::to_value(actor_document()).unwrap()
    );

    let yaml: Value = serde_saphyr::from_str(&ask(&["status", "-o", "yaml"])).unwrap();
    assert_eq!(yaml, serde_json::to_value(status_document()).unwrap());
    let text = ask(&["status"]);
    assert!(text.contains("ready         yes\n"), "{text}");
    assert!(text.contains("12 nodes, revision 4, 1s old"), "{text}");
    assert!(
        text.contains("cluster uid   ?\n"),
        "unknown is shown as unknown: {text}"
    );
    let text = ask(&["actors"]);
    assert!(text.contains("\n  node-pool  node-pool  running  "), "{text}");
}

#[test]
fn a_token_is_sent_and_never_printed() {
    let fake = Fake::default();
    let server = Running::start(fake.clone(), None);
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "  top-secret\n").unwrap();
    let outcome = freehold(&[
        "status",
        "--server",
        &server.url(),
        "--token-file",
        token.to_str().unwrap(),
    ]);
    assert_eq!(outcome.exit, Exit::Done);
    assert_eq!(fake.authorization.lock().as_deref(), Some("Bearer top-secret"));
    assert!(!format!("{outcome:?}").contains("top-secret"));
}

#[test]
fn answers_of_the_server_have_their_exit_status() {
    for (status, exit, hint) in [
        (Status::invalid_argument("no"), Exit::BadInput, None),
        (Status::not_found("no"), Exit::NotFound, None),
        (Status::already_exists("no"), Exit::Conflict, None),
        (Status::aborted("no"), Exit::Conflict, None),
        (Status::unavailable("starting"), Exit::Unreachable, None),
        (
            Status::deadline_exceeded("slow"),
            Exit::Unreachable,
            Some("--timeout"),
        ),
        (
            Status::unauthenticated("who?"),
            Exit::Failed,
            Some("--token-file"),
        ),
        (Status::permission_denied("no"), Exit::Failed, Some("role")),
        (Status::unimplemented("what?"), Exit::Failed, Some("older")),
        (Status::internal("oops"), Exit::Failed, None),
    ] {
        let fake = Fake {
            refuse: Some(status.clone()),
            ..Fake::default()
        };
        let server = Running::start(fake, None);
        let outcome = freehold(&["status", "--server", &server.url(), "-o", "json"]);
        assert_eq!(outcome.exit, exit, "{status:?}");
        let error = outcome.error();
        assert_eq!(error["message"], status.message());
        match hint {
            Some(hint) => assert!(error["hint"].as_str().unwrap().contains(hint), "{error}"),
            None => assert_eq!(error["hint"], Value::Null),
        }
    }
    let numbers = [
        Exit::Done,
        Exit::Failed,
        Exit::BadInput,
        Exit::No,
        Exit::NotFound,
        Exit::Conflict,
        Exit::Unreachable,
        Exit::WaitRanOut,
    ];
    assert_eq!(numbers.map(Exit::status), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn an_actor_that_is_not_there_is_exit_4() {
    let server = Running::start(Fake::default(), None);
    let outcome = freehold(&["actors", "root/nobody", "--server", &server.url()]);
    assert_eq!(outcome.exit, Exit::NotFound);
    assert_eq!(outcome.err, "error: there is no actor root/nobody\n");
}

#[test]
fn a_watch_reconnects_resumes_and_starts_over_when_it_must() {
    let fake = Fake::default();
    *fake.watches.lock() = vec![
        Ok(vec![
            Ok(event(10)),
            Ok(event(11)),
            Err(Status::unavailable("stopping")),
        ]),
        Err(Status::out_of_range("events after 11 are not kept")),
        Ok(vec![
            Ok(event(20)),
            Ok(BusEvent {
                change: Change::Deleted,
                ..event(21)
            }),
            // The pipe is found closed when this one is printed.
            Ok(event(22)),
        ]),
    ];
    let server = Running::start(fake.clone(), None);
    let words = [
        "watch",
        "inventory.nodes",
        "-o",
        "json",
        "--server",
        &server.url(),
    ];
    let outcome = freehold_until(&words, 4);
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.err);
    let lines: Vec<Value> = outcome
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines[0],
        json!({"topic": "inventory.nodes", "key": "n1", "sequence": 10, "at": "1970-01-01T00:00:00Z", "value": {"n": 10}})
    );
    assert_eq!(lines[3]["deleted"], true);
    assert_eq!(
        lines
            .iter()
            .map(|line| line["sequence"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [10, 11, 20, 21]
    );
    assert_eq!(fake.asked.lock()[..3], [None, Some(11), None]);
    assert!(
        outcome.err.contains("starting over with the present values"),
        "{}",
        outcome.err
    );
    assert!(outcome.err.contains("trying again in 200ms"), "{}", outcome.err);
}

#[test]
fn a_watch_of_an_unknown_topic_fails_at_once() {
    let fake = Fake::default();
    *fake.watches.lock() = vec![Err(Status::not_found("there is no topic \"x\""))];
    let server = Running::start(fake, None);
    let outcome = freehold(&["watch", "x", "--server", &server.url()]);
    assert_eq!(outcome.exit, Exit::NotFound);
    assert_eq!(outcome.out, "");
}

#[test]
fn a_watched_document_is_printed_again_only_when_it_is_another_one() {
    let fake = Fake::default();
    *fake.watches.lock() = vec![Ok(vec![Ok(event(10)), Ok(event(11))]), Ok(vec![Ok(event(12))])];
    let server = Running::start(fake.clone(), None);
    let url = server.url();
    let (sender, receiver) = std::sync::mpsc::channel();
    // It never ends by itself: what it printed is read while it runs.
    std::thread::spawn(move || {
        let (mut out, mut err) = (Sending(sender), Vec::new());
        let words = ["freehold", "status", "--watch", "-o", "json", "--server", &url];
        let invocation = Invocation {
            arguments: words.map(OsString::from).into(),
            environment: Vec::new(),
        };
        execute(invocation, &mut Console::new(&mut out, &mut err));
    });
    let first = receiver.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    let first: Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(first, serde_json::to_value(status_document()).unwrap());
    while fake.asked.lock().len() < 3 {
        std::thread::yield_now();
    }
    assert!(
        receiver.try_recv().is_err(),
        "the same document is not printed twice"
    );
}

struct Sending(std::sync::mpsc::Sender<Vec<u8>>);

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .send(bytes.to_vec())
            .map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_new_token_goes_alone_to_stdout() {
    let server = Running::start(Fake::default(), None);
    let url = server.url();
    let create = [
        "token", "create", "--name", "x", "--role", "operator", "--server", &url,
    ];
    let outcome = freehold(&create);
    assert_eq!((outcome.exit, outcome.out.as_str()), (Exit::Done, "s3cret\n"));
    assert!(outcome.err.contains("t-1"));

    let outcome = freehold(&[&create[..], &["-o", "json", "--expires-in", "90d"]].concat());
    let document: Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!(document["secret"], "s3cret");
    assert_eq!(document["token"]["role"], "operator");
    assert!(document["token"]["expires_at"].is_string());

    let outcome = freehold(&[&create[..], &["--request-id", "again"]].concat());
    assert_eq!(outcome.exit, Exit::Conflict);
    let outcome = freehold(&[
        "token", "create", "--name", "x", "--role", "king", "--server", &url,
    ]);
    assert_eq!(outcome.exit, Exit::BadInput);
    let outcome = freehold(&["token", "revoke", "t-1", "--server", &url]);
    assert_eq!(outcome.exit, Exit::Conflict);
}

#[test]
fn faults_are_checked_before_they_are_sent() {
    let server = Running::start(Fake::default(), None);
    let url = server.url();
    let add = |words: &[&str]| {
        freehold(&[&["debug", "faults", "add", "--server", &url, "-o", "json"], words].concat())
    };
    assert_eq!(add(&["--kind", "error", "--status", "503"]).exit, Exit::Done);
    for (words, field) in [
        (&["--kind", "explode"][..], "--kind"),
        (&["--kind", "error", "--status", "200"], "--status"),
        (&["--kind", "drop", "--probability", "2"], "--probability"),
        (&["--kind", "drop", "--probability", "NaN"], "--probability"),
        (&["--kind", "drop", "--probability", "0"], "--probability"),
    ] {
        let outcome = add(words);
        assert_eq!(
            (outcome.exit, &outcome.error()["field"]),
            (Exit::BadInput, &json!(field)),
            "{words:?}"
        );
    }
    let outcome = freehold(&["debug", "provoke", "root", "--kind", "explode", "--server", &url]);
    assert_eq!(outcome.exit, Exit::BadInput);
}

/// A CA, and a server certificate of it for 127.0.0.1.
fn certificates() -> (String, ServerTlsConfig) {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec![]).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = parameters.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(parameters, key);
    let server_key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let server = server.signed_by(&server_key, &issuer).unwrap().pem();
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(server, server_key.serialize_pem()));
    (ca, tls)
}

#[test]
fn tls_is_used_and_its_troubles_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| -> String {
        let path: PathBuf = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let ((ca, tls), (other, _)) = (certificates(), certificates());
    let (ca, other) = (write("ca.pem", &ca), write("other.pem", &other));
    let server = Running::start(Fake::default(), Some(tls));
    let secure = format!("https://{}", server.address);

    let outcome = freehold(&["status", "--server", &secure, "--ca", &ca]);
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.err);

    let outcome = freehold(&["status", "--server", &secure, "--ca", &other]);
    assert_eq!(outcome.exit, Exit::Unreachable);
    assert!(outcome.err.contains("another CA"), "{}", outcome.err);

    let outcome = freehold(&["status", "--server", &server.url()]);
    assert_eq!(outcome.exit, Exit::Unreachable);
    assert!(outcome.err.contains("https://"), "{}", outcome.err);

    let plain = Running::start(Fake::default(), None);
    let outcome = freehold(&[
        "status",
        "--server",
        &format!("https://{}", plain.address),
        "--ca",
        &ca,
    ]);
    assert_eq!(outcome.exit, Exit::Unreachable);
    assert!(outcome.err.contains("http://"), "{}", outcome.err);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let server = Running::start(Fake::default(), None);
    let outcome = freehold_until(&["status", "--server", &server.url()], 0);
    assert_eq!((outcome.exit, outcome.err.as_str()), (Exit::Done, ""));
}

#[test]
fn the_configuration_is_checked_shown_and_explained() {
    let outcome = freehold(&["config", "check", "--set", "store.path=/somewhere"]);
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.err);
    assert!(
        outcome.out.starts_with("the configuration is valid\n"),
        "{}",
        outcome.out
    );

    let outcome = freehold(&["config", "check", "-o", "json", "--set", "store.pth=/somewhere"]);
    assert_eq!(outcome.exit, Exit::BadInput);
    assert_eq!(outcome.error()["code"], "config_invalid");
    assert_eq!(outcome.error()["field"], "store.pth");
    assert!(
        outcome.error()["hint"].as_str().unwrap().contains("store.path"),
        "{}",
        outcome.err
    );

    let outcome = freehold(&["config", "show", "-o", "json", "--set", "store.path=/somewhere"]);
    let document: Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!(document["store"]["path"], "/somewhere");

    let outcome = freehold(&["config", "reference"]);
    assert!(
        outcome.out.contains("api.grpc.listen: 127.0.0.1:7070"),
        "{}",
        outcome.out
    );
    let outcome = freehold(&["config", "check", "--config", "/does/not/exist.yaml"]);
    assert_eq!(outcome.exit, Exit::BadInput);
}

#[test]
fn a_wrong_configuration_stops_every_command_that_reads_it() {
    for words in [
        &["serve"][..],
        &["embedded"],
        &["store", "info"],
        &["store", "verify"],
        &[],
    ] {
        let outcome = freehold(&[&["--set", "nonsense=1", "-o", "json"], words].concat());
        assert_eq!(outcome.exit, Exit::BadInput, "{words:?}");
        assert_eq!(outcome.error()["field"], "nonsense");
    }
}

fn clock() -> Arc<crate::ports::clock::SystemClock> {
    Arc::new(crate::ports::clock::SystemClock::start())
}

#[test]
fn a_store_nobody_uses_is_looked_into_backed_up_and_restored() {
    use crate::store::{Options, SledStore};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let opened = SledStore::open(Options::at(&path, clock())).unwrap();
    runtime.block_on(async {
        opened.store.bind_cluster("uid-1", "embedded").await.unwrap();
        opened.store.close().await.unwrap();
    });
    drop(opened);

    let place = |path: &std::path::Path| format!("store.path={}", path.display());
    let run = |path: &std::path::Path, words: &[&str]| {
        freehold(&[&["store", "--set", &place(path)], words].concat())
    };
    let info = |path: &std::path::Path| -> Value {
        let outcome = run(path, &["info", "-o", "json"]);
        assert_eq!(outcome.exit, Exit::Done, "{}", outcome.err);
        serde_json::from_str(&outcome.out).unwrap()
    };
    assert_eq!(info(&path)["cluster_uid"], "uid-1");
    let outcome = run(&path, &["verify", "-o", "json"]);
    assert_eq!((outcome.exit, outcome.err.as_str()), (Exit::Done, ""));

    let file = directory.path().join("backup");
    let file_name = file.to_str().unwrap();
    assert_eq!(run(&path, &["backup", file_name]).exit, Exit::Done);
    assert_eq!(
        run(&path, &["backup", file_name]).exit,
        Exit::Conflict,
        "a backup is never replaced"
    );
    assert_eq!(
        run(&path, &["restore", file_name]).exit,
        Exit::Conflict,
        "a store is never replaced"
    );
    let copy = directory.path().join("copy");
    let outcome = run(&copy, &["restore", file_name]);
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.err);
    assert_eq!(info(&copy)["cluster_uid"], "uid-1");

    let outcome = run(&copy, &["rebind", "--confirm"]);
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.err);
    assert!(outcome.err.contains("embedded (uid-1)"), "{}", outcome.err);
    assert_eq!(info(&copy)["cluster_uid"], Value::Null);

    let missing = directory.path().join("nothing");
    assert_eq!(
        run(&copy, &["restore", missing.to_str().unwrap()]).exit,
        Exit::Conflict
    );
    assert_eq!(
        run(
            &directory.path().join("new"),
            &["restore", missing.to_str().unwrap()]
        )
        .exit,
        Exit::NotFound
    );
    std::fs::write(&file, "garbage").unwrap();
    let empty = directory.path().join("empty");
    assert_eq!(run(&empty, &["restore", file_name]).exit, Exit::BadInput);
}

#[test]
fn a_store_in_use_or_absent_is_told_apart_and_left_alone() {
    use super::offline::{self, Offline};
    use crate::store::{Options, SledStore};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let setup = |path: &std::path::Path| local::Setup {
        sets: vec![format!("store.path={}", path.display())],
        ..local::Setup::default()
    };
    for absent in [
        offline::info(&setup(&path)).err(),
        offline::backup(&setup(&path), &path).err(),
    ] {
        assert!(matches!(absent, Some(Offline::Failed(failure)) if failure.exit == Exit::NotFound));
    }
    assert!(!path.exists(), "looking for a store makes none");
    let opened = SledStore::open(Options::at(&path, clock())).unwrap();
    assert_eq!(offline::info(&setup(&path)).err(), Some(Offline::InUse));
    assert_eq!(offline::rebind(&setup(&path)).err(), Some(Offline::InUse));
    let outcome = freehold(&["store", "rebind", "--confirm", "--set", &setup(&path).sets[0]]);
    assert_eq!(outcome.exit, Exit::Conflict);
    drop(opened);
}
