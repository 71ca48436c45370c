//! A program, a store and a keeper that exist in memory only, and clients to call the API with.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
};
use tokio_stream::wrappers::WatchStream;
use tonic::transport::{Channel, Endpoint};

use crate::{
    api::{
        access::tokens::NewToken,
        provider::{
            AddFaultError, Keeper, KeeperError, NotEmbedded, Provider, ProvokeError, StoreUnavailable,
            WatchError,
        },
        server::{Options, Parts, Running, Server},
    },
    domain::{
        access::{Identity, Role},
        actor::{ActorReport, ActorState, ProvokedFault},
        api_fault::ApiFault,
        event::{BusEvent, Change},
        inventory::Inventory,
        secret::Secret,
        status::{ClusterIdentity, InventorySummary, Recovery, Status, StatusReason, StoreSummary},
        store_report::{StoreReport, StoreVerification},
    },
    ports::{
        clock::{Clock, SystemClock},
        store::{Batch, Pair, Store, StoreError, StoreHealth, Write},
        telemetry::Metrics,
    },
};

pub(super) fn sample_status(ready: bool) -> Status {
    let since = "2026-11-15T12:00:00.5Z".parse().unwrap();
    let reason = StatusReason {
        part: "inventory".into(),
        code: "not_listed".into(),
        message: "no complete list yet".into(),
        since,
    };
    Status {
        version: "1.2.3".into(),
        revision: "abc".into(),
        started_at: since,
        ready,
        reasons: if ready { vec![] } else { vec![reason] },
        mode: "manage".into(),
        maintenance: false,
        cluster: ClusterIdentity {
            kind: "embedded".into(),
            uid: Some("u-1".into()),
            server: "https://127.0.0.1:7443".into(),
        },
        inventory: InventorySummary {
            revision: 9,
            age_ms: Some(12),
            nodes: None,
        },
        reservations: 1,
        leases: 2,
        store: StoreSummary {
            path: "./data".into(),
            bytes: 4096,
            healthy: true,
        },
        recovered: Recovery {
            unclean: true,
            took_ms: 5,
            ..Recovery::default()
        },
    }
}

#[derive(Debug)]
pub(super) struct FakeProvider {
    pub(super) status: watch::Sender<Status>,
    pub(super) provoked: Mutex<Vec<(String, ProvokedFault)>>,
    faults: Mutex<Vec<ApiFault>>,
    pub(super) slow_verify: AtomicBool,
    metrics: Metrics,
}

impl FakeProvider {
    fn new(metrics: Metrics) -> Self {
        Self {
            status: watch::Sender::new(sample_status(true)),
            provoked: Mutex::default(),
            faults: Mutex::default(),
            slow_verify: AtomicBool::new(false),
            metrics,
        }
    }
}

pub(super) fn sample_actor() -> ActorReport {
    ActorReport {
        path: "root".into(),
        kind: "root".into(),
        state: ActorState::Running,
        since: Timestamp::UNIX_EPOCH,
        restarts: 0,
        mailbox: 0,
        last_fault: None,
        view: json!({"children": 0}),
        children: vec![],
    }
}

impl Provider for FakeProvider {
    fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    fn watch_status(&self) -> BoxStream<'static, Status> {
        WatchStream::new(self.status.subscribe()).boxed()
    }

    fn inventory(&self) -> Inventory {
        Inventory {
            revision: 9,
            ..Inventory::default()
        }
    }

    fn actors(&self, path: Option<&str>, _depth: Option<u32>) -> Option<ActorReport> {
        assert_ne!(path, Some("panic"), "on request");
        matches!(path, None | Some("root")).then(sample_actor)
    }

    fn retry(&self, path: &str) -> Result<(), ProvokeError> {
        if path == "root" {
            Ok(())
        } else {
            Err(ProvokeError::UnknownActor {
                path: path.to_owned(),
            })
        }
    }

    fn provoke(&self, path: &str, fault: ProvokedFault) -> Result<(), ProvokeError> {
        if path != "root/node-pool/n1" {
            return Err(ProvokeError::UnknownActor { path: path.into() });
        }
        self.provoked.lock().push((path.into(), fault));
        Ok(())
    }

    fn events(
        &self,
        topics: Vec<String>,
        after: Option<u64>,
    ) -> Result<BoxStream<'static, BusEvent>, WatchError> {
        if let Some(name) = topics.into_iter().find(|topic| topic != "inventory.nodes") {
            return Err(WatchError::UnknownTopic {
                name,
                nearest: Some("inventory.nodes".into()),
            });
        }
        if let Some(after) = after.filter(|after| *after > 100) {
            return Err(WatchError::OutOfRange { after });
        }
        let event = BusEvent {
            topic: "inventory.nodes".into(),
            key: "n1".into(),
            sequence: after.unwrap_or(0) + 1,
            at: Timestamp::UNIX_EPOCH,
            change: Change::Value(json!({"sellable": true})),
        };
        Ok(stream::iter([event]).chain(stream::pending()).boxed())
    }

    fn metrics_text(&self) -> String {
        self.metrics.text()
    }

    fn store_report(&self) -> BoxFuture<'static, Result<StoreReport, StoreUnavailable>> {
        future::ready(Ok(StoreReport {
            path: "./data".into(),
            ..StoreReport::default()
        }))
        .boxed()
    }

    fn verify_store(&self) -> BoxFuture<'static, Result<StoreVerification, StoreUnavailable>> {
        if self.slow_verify.load(Ordering::SeqCst) {
            return tokio::time::sleep(Duration::from_secs(3))
                .map(|()| {
                    Ok(StoreVerification {
                        records: 7,
                        problems: vec![],
                    })
                })
                .boxed();
        }
        future::ready(Err(StoreUnavailable {
            reason: "it is being reopened".into(),
        }))
        .boxed()
    }

    fn back_up_store(
        &self,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Result<Bytes, StoreUnavailable>>, StoreUnavailable>>
    {
        let chunks = stream::iter([Ok(Bytes::from_static(b"one")), Ok(Bytes::from_static(b"two"))]);
        future::ready(Ok(chunks.boxed())).boxed()
    }

    fn faults(&self) -> Result<Vec<ApiFault>, NotEmbedded> {
        Ok(self.faults.lock().clone())
    }

    fn add_fault(&self, fault: ApiFault) -> Result<(), AddFaultError> {
        self.faults.lock().push(fault);
        Ok(())
    }

    fn clear_faults(&self) -> Result<(), NotEmbedded> {
        self.faults.lock().clear();
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct FakeStore {
    pub(super) pairs: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(super) broken: AtomicBool,
}

impl Store for FakeStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'static, Result<(), StoreError>> {
        if self.broken.load(Ordering::SeqCst) {
            let reason = "no space".to_owned();
            return future::ready(Err(StoreError::Flush { reason })).boxed();
        }
        let mut pairs = self.pairs.lock();
        for write in batch.writes {
            match write {
                Write::Put(key, value) => drop(pairs.insert(key, value)),
                Write::Delete(key) => drop(pairs.remove(&key)),
            }
        }
        future::ready(Ok(())).boxed()
    }

    fn get(&self, key: Vec<u8>) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        future::ready(Ok(self.pairs.lock().get(&key).cloned())).boxed()
    }

    fn scan(
        &self,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> BoxFuture<'static, Result<Vec<Pair>, StoreError>> {
        let pairs = self.pairs.lock();
        let found = pairs
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after))
            .take(limit)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        future::ready(Ok(found)).boxed()
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::default()
    }
}

#[derive(Debug, Default)]
pub(super) struct FakeKeeper {
    pub(super) kept: Arc<Mutex<BTreeMap<&'static str, Secret>>>,
}

impl Keeper for FakeKeeper {
    fn load(&self, name: &'static str) -> BoxFuture<'static, Result<Option<Secret>, KeeperError>> {
        future::ready(Ok(self.kept.lock().get(name).cloned())).boxed()
    }

    fn save(&self, name: &'static str, secret: Secret) -> BoxFuture<'static, Result<(), KeeperError>> {
        self.kept.lock().insert(name, secret);
        future::ready(Ok(())).boxed()
    }
}

/// A clock whose wall time is set by the test.
#[derive(Debug)]
pub(super) struct SteeredClock {
    wall: Mutex<Timestamp>,
    monotonic: SystemClock,
}

impl SteeredClock {
    pub(super) fn at(time: &str) -> Arc<Self> {
        Arc::new(Self {
            wall: Mutex::new(time.parse().unwrap()),
            monotonic: SystemClock::start(),
        })
    }

    pub(super) fn set(&self, time: &str) {
        *self.wall.lock() = time.parse().unwrap();
    }
}

impl Clock for SteeredClock {
    fn wall(&self) -> Timestamp {
        *self.wall.lock()
    }

    fn monotonic(&self) -> Duration {
        self.monotonic.monotonic()
    }
}

/// Everything around a server under test.
#[derive(Debug)]
pub(super) struct World {
    pub(super) provider: Arc<FakeProvider>,
    pub(super) store: Arc<FakeStore>,
    pub(super) keeper: Arc<FakeKeeper>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::start()))
    }

    pub(super) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let metrics = Metrics::new("1.2.3", "abc");
        Self {
            provider: Arc::new(FakeProvider::new(metrics.clone())),
            store: Arc::default(),
            keeper: Arc::default(),
            clock,
            metrics,
        }
    }

    pub(super) fn parts(&self) -> Parts {
        Parts {
            provider: self.provider.clone(),
            store: self.store.clone(),
            keeper: self.keeper.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            reviewer: None,
        }
    }

    pub(super) async fn start(&self, options: Options) -> Running {
        Server::start(options, self.parts()).await.unwrap()
    }

    /// A token of that role, put into the store as an operator would have.
    pub(super) async fn token(&self, role: Role, subject: &str) -> Secret {
        self.token_until(role, subject, None).await
    }

    pub(super) async fn token_until(&self, role: Role, subject: &str, end: Option<Timestamp>) -> Secret {
        use crate::api::access::tokens::TokenBook;
        let book = TokenBook::load(self.store.clone(), self.clock.clone())
            .await
            .unwrap();
        let new = NewToken {
            request_id: String::new(),
            name: "test".into(),
            role,
            subject: subject.into(),
            expires_at: end,
        };
        let made = book.create(new, &Identity::local_operator()).await.unwrap();
        made.secret.unwrap()
    }
}

/// Plain on loopback with credentials wanted, which is how most of access is tested.
pub(super) fn guarded() -> Options {
    let mut options = Options::loopback();
    options.require_identity = true;
    options.limits.calls_per_second = 0;
    options
}

pub(super) async fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

/// An answer over HTTP/1.1.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(super) fn error_code(&self) -> String {
        self.json()["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// Sends these lines as they are, so that nothing is put right on the way.
pub(super) async fn raw(address: SocketAddr, request: &str) -> Answer {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let _ = socket.read_to_end(&mut bytes).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0);
    Answer {
        status,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

/// An ordinary call over HTTP/1.1.
pub(super) async fn call(
    address: SocketAddr,
    method: &str,
    path: &str,
    token: Option<&Secret>,
    body: &str,
) -> Answer {
    let bearer = token.map_or_else(String::new, |token| {
        format!("authorization: Bearer {}\r\n", token.expose())
    });
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{bearer}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    raw(address, &request).await
}

pub(super) async fn get(address: SocketAddr, path: &str) -> Answer {
    call(address, "GET", path, None, "").await
}
