//! The section `embedded`: the simulated cluster and its faults.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::Serialize;

use super::{
    error::ConfigError,
    names::plain_word,
    reader::Reader,
    sections::{StoreConfig, or_empty, path_or_empty},
};
use crate::domain::human::{HumanDecimal, HumanDuration};

const ZERO: HumanDuration = HumanDuration(Duration::ZERO);
const MILLISECOND: HumanDuration = HumanDuration(Duration::from_millis(1));

/// `embedded`: the simulated cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EmbeddedConfig {
    /// Where its API is served, if it is.
    #[serde(serialize_with = "or_empty")]
    pub listen: Option<SocketAddr>,
    /// The kubeconfig it writes.
    pub kubeconfig: PathBuf,
    /// Nodes of the sample fleet.
    pub nodes: u32,
    /// A file with another fleet.
    #[serde(serialize_with = "path_or_empty")]
    pub fleet: Option<PathBuf>,
    /// How fast its controllers are; zero: at once.
    pub speed: HumanDecimal,
    /// Where its chance starts.
    pub seed: u64,
    /// Whether its objects survive a restart.
    pub persist: bool,
    /// Faults in its API.
    pub faults: Vec<FaultConfig>,
}

/// What a fault does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// It takes longer.
    Latency,
    /// It is answered with an error.
    Error,
    /// Its answer is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// Its watch is cut.
    Cut,
    /// Its watch is told 410.
    Gone,
}

/// A fault of the simulated API. What is absent matches everything, or is the kind's own default.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FaultConfig {
    /// The verb it meets: `get`, `list`, `watch` …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// The resource it meets: `nodes`, `pods` …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The namespace it meets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What it does.
    pub kind: FaultKind,
    /// The HTTP status of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The Retry-After of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<HumanDuration>,
    /// How long a latency lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<HumanDuration>,
    /// The share of requests it meets, 0 to 1.
    pub probability: HumanDecimal,
    /// How many times it happens; absent: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl EmbeddedConfig {
    /// `store` is where the kubeconfig goes by default.
    pub(super) fn read(reader: Reader<'_>, store: &StoreConfig) -> Result<Self, ConfigError> {
        let made = Self {
            listen: reader.optional_listen("listen")?,
            kubeconfig: reader
                .optional_path("kubeconfig")?
                .unwrap_or_else(|| store.path.join("embedded.kubeconfig")),
            nodes: reader.whole("nodes", 0..=100_000)?,
            fleet: reader.optional_path("fleet")?,
            speed: reader.decimal("speed", "a number from 0 to 1000000", |speed| {
                speed.millionths() <= 1_000_000 * HumanDecimal::ONE.millionths()
            })?,
            seed: reader.whole("seed", 0..=u64::MAX)?,
            persist: reader.flag("persist")?,
            faults: reader.list("faults", "a list of faults", |at, value| {
                FaultConfig::read(Reader::new(at, value)?)
            })?,
        };
        reader.done(made)
    }
}

impl FaultConfig {
    fn read(reader: Reader<'_>) -> Result<Self, ConfigError> {
        let made = Self {
            verb: read_if(&reader, "verb", fault_text)?,
            resource: read_if(&reader, "resource", fault_text)?,
            namespace: read_if(&reader, "namespace", fault_text)?,
            kind: reader.choice(
                "kind",
                &[
                    ("latency", FaultKind::Latency),
                    ("error", FaultKind::Error),
                    ("drop", FaultKind::Drop),
                    ("duplicate", FaultKind::Duplicate),
                    ("cut", FaultKind::Cut),
                    ("gone", FaultKind::Gone),
                ],
            )?,
            status: read_if(&reader, "status", |reader, key| reader.whole(key, 400..=599))?,
            retry_after: read_if(&reader, "retry-after", |reader, key| reader.duration(key, ZERO))?,
            delay: read_if(&reader, "delay", |reader, key| reader.duration(key, MILLISECOND))?,
            probability: read_if(&reader, "probability", |reader, key| {
                reader.decimal(key, "a number from 0 to 1", |share| share <= HumanDecimal::ONE)
            })?
            .unwrap_or(HumanDecimal::ONE),
            count: read_if(&reader, "count", |reader, key| reader.whole(key, 1..=u64::MAX))?,
        };
        reader.done(made)
    }
}

fn read_if<'a, T>(
    reader: &Reader<'a>,
    key: &'static str,
    read: impl Fn(&Reader<'a>, &'static str) -> Result<T, ConfigError>,
) -> Result<Option<T>, ConfigError> {
    if reader.has(key) {
        read(reader, key).map(Some)
    } else {
        Ok(None)
    }
}

fn fault_text(reader: &Reader<'_>, key: &'static str) -> Result<String, ConfigError> {
    reader.text_where(key, "a name such as list or nodes", |text| match text {
        "" => Err("leave the key out to match everything"),
        _ => plain_word(text),
    })
}
