//! The sections of the configuration, typed, and how each is read.
//!
//! What a key means and why it has its default stands in `config/default.yaml`, once.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use config::Value;
use serde::{Serialize, Serializer};

use super::{
    error::ConfigError,
    names::{domain, label, plain_word},
    reader::{Reader, as_text, wrong},
};
use crate::domain::human::{HumanDuration, HumanSize};

const ZERO: HumanDuration = HumanDuration(Duration::ZERO);
const TENTH_OF_A_SECOND: HumanDuration = HumanDuration(Duration::from_millis(100));

/// `provider`: what the marketplace is told.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProviderConfig {
    /// The provider's address; empty when it is not set.
    pub address: String,
    /// Attributes by name.
    pub attributes: BTreeMap<String, String>,
    /// The auditors who signed them.
    pub signed_by: Vec<String>,
}

/// `store`: what survives.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct StoreConfig {
    /// The directory.
    pub path: PathBuf,
    /// The file of the sealing key.
    pub key_file: PathBuf,
    /// Free space below which nothing more is taken.
    pub min_free: HumanSize,
}

/// `api`: the ways in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApiConfig {
    /// `api.grpc`.
    pub grpc: ListenConfig,
    /// `api.http`.
    pub http: ListenConfig,
    /// `api.health`.
    pub health: OptionalListenConfig,
    /// `api.access`.
    pub access: AccessConfig,
    /// `api.tls`.
    pub tls: TlsConfig,
    /// `api.limits`.
    pub limits: ApiLimitsConfig,
}

/// A listener that is always there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListenConfig {
    /// Where it listens.
    pub listen: SocketAddr,
}

/// A listener that can be off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptionalListenConfig {
    /// Where it listens, if it does.
    #[serde(serialize_with = "or_empty")]
    pub listen: Option<SocketAddr>,
}

/// `api.access`: who may come in.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AccessConfig {
    /// Whether loopback wants identities too.
    pub require_identity: bool,
    /// Where the first operator's token is written.
    #[serde(serialize_with = "path_or_empty")]
    pub bootstrap_token_file: Option<PathBuf>,
}

/// `api.tls`: certificates, as files.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TlsConfig {
    /// Asked for by name; see [`TlsConfig::is_on`].
    pub enabled: bool,
    /// The server's chain.
    #[serde(serialize_with = "path_or_empty")]
    pub cert_file: Option<PathBuf>,
    /// Its private key.
    #[serde(serialize_with = "path_or_empty")]
    pub key_file: Option<PathBuf>,
    /// Who may vouch for clients.
    #[serde(serialize_with = "path_or_empty")]
    pub client_ca_file: Option<PathBuf>,
    /// Names in a certificate of our own making.
    pub names: Vec<String>,
}

impl TlsConfig {
    /// Whether TLS is spoken: it is asked for, or there is a certificate for it.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.enabled || self.cert_file.is_some()
    }
}

/// `api.limits`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ApiLimitsConfig {
    /// Bytes of one message.
    pub max_message: HumanSize,
    /// Connections at once.
    pub max_connections: u32,
    /// Streams on one connection.
    pub max_streams: u32,
    /// Calls in progress.
    pub max_concurrent: u32,
    /// Answers that are streams.
    pub max_open_streams: u32,
    /// Calls a second from one caller; 0: without limit.
    pub rate: u32,
    /// Calls at once before the rate counts.
    pub burst: u32,
}

/// Which cluster it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterKind {
    /// Simulated inside the process.
    Embedded,
    /// A real one.
    Kubernetes,
}

/// Whether the cluster is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterMode {
    /// Leases are deployed.
    Manage,
    /// Nothing is written, nothing reserved.
    Observe,
}

/// `cluster`: whose hardware is sold.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ClusterConfig {
    /// Simulated or real.
    pub kind: ClusterKind,
    /// The kubeconfig, if one is named.
    #[serde(serialize_with = "path_or_empty")]
    pub kubeconfig: Option<PathBuf>,
    /// Whether it is written to.
    pub mode: ClusterMode,
    /// Where objects that describe leases are kept.
    pub manifest_namespace: String,
}

/// What becomes of a node that appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NewNodes {
    /// It is sold at once.
    Sell,
    /// It waits for an operator.
    Hold,
}

/// `inventory`: what is known of the hardware.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct InventoryConfig {
    /// Past this age nothing is answered.
    pub max_age: HumanDuration,
    /// What becomes of a node that appears.
    pub new_nodes: NewNodes,
    /// Corrections; none are known yet, so it is empty.
    pub overrides: BTreeMap<String, String>,
}

/// `reservation`: promises.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReservationConfig {
    /// How long one holds; zero: until it is won or lost.
    pub ttl: HumanDuration,
}

/// `lease`: deployments.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LeaseConfig {
    /// How long a closed lease stays readable.
    pub keep_closed: HumanDuration,
}

/// `debug`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DebugConfig {
    /// Whether faults can be provoked.
    pub enabled: bool,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Pretty on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Pretty,
    /// For machines.
    Json,
}

/// `log`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogConfig {
    /// The tracing filter; it is known to parse.
    pub filter: String,
    /// How lines look.
    pub format: LogFormat,
}

/// Not set is written as an empty text, as it is read.
pub(super) fn or_empty<S: Serializer>(value: &Option<SocketAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_str(""),
    }
}

/// Not set is written as an empty text, as it is read.
pub(super) fn path_or_empty<S: Serializer>(
    value: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.clone().unwrap_or_default().serialize(serializer)
}

impl ProviderConfig {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, ConfigError> {
        let mut attributes = BTreeMap::new();
        for (name, value) in
            reader.entries("attributes", "a map of names to texts, or a list of {key, value}")?
        {
            let at = format!("provider.attributes.{name}");
            let text = as_text(&at, value, "a text")?;
            if name.is_empty() || text.is_empty() {
                return Err(wrong(&at, value, "a name and a text that is not empty", None));
            }
            attributes.insert(name.to_owned(), text.to_owned());
        }
        let made = Self {
            address: reader.text_where("address", "an address without spaces", plain_word)?,
            attributes,
            signed_by: reader.list("signed-by", "a list of auditors' addresses", |at, value| {
                let text = as_text(at, value, "an auditor's address")?;
                match plain_word(text) {
                    Ok(()) if !text.is_empty() => Ok(text.to_owned()),
                    _ => Err(wrong(at, value, "an auditor's address", None)),
                }
            })?,
        };
        reader.done(made)
    }
}

impl StoreConfig {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, ConfigError> {
        let path = reader.path("path")?;
        let key_file = match reader.optional_path("key-file")? {
            Some(file) => file,
            // Beside the directory, never in it. A path without a name ("/", "..") has no such place.
            None => match path.file_name() {
                Some(name) => {
                    let mut name = name.to_owned();
                    name.push(".key");
                    path.with_file_name(name)
                }
                None => {
                    return Err(ConfigError::new(format!(
                        "it must be given, because {} has no name to derive it from",
                        path.display()
                    ))
                    .key("store.key-file"));
                }
            },
        };
        let made = Self {
            min_free: reader.size("min-free", 0..=u64::MAX)?,
            path,
            key_file,
        };
        reader.done(made)
    }
}

impl ApiConfig {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, ConfigError> {
        let (grpc, http, access) = (
            reader.section("grpc")?,
            reader.section("http")?,
            reader.section("access")?,
        );
        let (health, tls, limits) = (
            reader.section("health")?,
            reader.section("tls")?,
            reader.section("limits")?,
        );
        let made = Self {
            grpc: ListenConfig {
                listen: grpc.listen("listen")?,
            },
            http: ListenConfig {
                listen: http.listen("listen")?,
            },
            health: OptionalListenConfig {
                listen: health.optional_listen("listen")?,
            },
            access: AccessConfig {
                require_identity: access.flag("require-identity")?,
                bootstrap_token_file: access.optional_path("bootstrap-token-file")?,
            },
            tls: TlsConfig {
                enabled: tls.flag("enabled")?,
                cert_file: tls.optional_path("cert-file")?,
                key_file: tls.optional_path("key-file")?,
                client_ca_file: tls.optional_path("client-ca-file")?,
                names: tls.list("names", "a list of names", tls_name)?,
            },
            limits: ApiLimitsConfig {
                max_message: limits.size("max-message", 1 << 10..=1 << 30)?,
                max_connections: limits.whole("max-connections", 1..=1_000_000)?,
                max_streams: limits.whole("max-streams", 1..=1_000_000)?,
                max_concurrent: limits.whole("max-concurrent", 1..=1_000_000)?,
                max_open_streams: limits.whole("max-open-streams", 1..=1_000_000)?,
                rate: limits.whole("rate", 0..=1_000_000_000)?,
                burst: limits.whole("burst", 1..=1_000_000_000)?,
            },
        };
        grpc.done(())?;
        http.done(())?;
        health.done(())?;
        access.done(())?;
        tls.done(())?;
        limits.done(())?;
        reader.done(made)
    }
}

fn tls_name(at: &str, value: &Value) -> Result<String, ConfigError> {
    let expected = "a host name or an address such as freehold.example.com or 10.0.0.1";
    let text = as_text(at, value, expected)?;
    if text.parse::<IpAddr>().is_err() {
        domain(text).map_err(|why| wrong(at, value, expected, Some(why.to_owned())))?;
    }
    Ok(text.to_owned())
}

impl ClusterConfig {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, ConfigError> {
        let made = Self {
            kind: reader.choice(
                "kind",
                &[
                    ("embedded", ClusterKind::Embedded),
                    ("kubernetes", ClusterKind::Kubernetes),
                ],
            )?,
            kubeconfig: reader.optional_path("kubeconfig")?,
            mode: reader.choice(
                "mode",
                &[("manage", ClusterMode::Manage), ("observe", ClusterMode::Observe)],
            )?,
            manifest_namespace: reader.text_where("manifest-namespace", "the name of a namespace", label)?,
        };
        reader.done(made)
    }
}

impl InventoryConfig {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, ConfigError> {
        if let Some((name, value)) = reader.entries("overrides", "an empty map")?.first() {
            return Err(ConfigError::new("this release knows no overrides yet")
                .key(format!("inventory.overrides.{name}"))
                .origin(value.origin()));
        }
        let new_nodes = reader.choice("new-nodes", &[("sell", NewNodes::Sell), ("hold", NewNodes::Hold)])?;
        if new_nodes == NewNodes::Hold {
            return Err(ConfigError::new(
                "this release cannot hold nodes back yet: new ones are sold at once",
            )
            .key("inventory.new-nodes")
            .hint("cordon a node (kubectl cordon NODE) to keep it from being sold"));
        }
        let made = Self {
            max_age: reader.duration("max-age", TENTH_OF_A_SECOND)?,
            new_nodes,
            overrides: BTreeMap::new(),
        };
        reader.done(made)
    }
}

impl ReservationConfig {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, ConfigError> {
        let made = Self {
            ttl: reader.duration("ttl", ZERO)?,
        };
        reader.done(made)
    }
}

impl LeaseConfig {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, ConfigError> {
        let made = Self {
            keep_closed: reader.duration("keep-closed", ZERO)?,
        };
        reader.done(made)
    }
}

impl DebugConfig {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, ConfigError> {
        let made = Self {
            enabled: reader.flag("enabled")?,
        };
        reader.done(made)
    }
}

impl LogConfig {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, ConfigError> {
        let made = Self {
            filter: reader.text_where(
                "filter",
                "a log filter such as info or info,freehold=debug",
                |text| {
                    if text.trim().is_empty() {
                        return Err("off silences it".to_owned());
                    }
                    tracing_subscriber::EnvFilter::try_new(text)
                        .map(|_| ())
                        .map_err(|error| error.to_string())
                },
            )?,
            format: reader.choice(
                "format",
                &[
                    ("auto", LogFormat::Auto),
                    ("pretty", LogFormat::Pretty),
                    ("json", LogFormat::Json),
                ],
            )?,
        };
        reader.done(made)
    }
}
