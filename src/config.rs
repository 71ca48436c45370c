//! The configuration: compiled-in defaults < a file < the environment < `--set`.
//!
//! Every layer is checked as it is added (unknown keys, wrong values), so that an error names the place it was
//! written in, even when a later layer would have hidden it. The `config` crate merges the layers; each value
//! remembers its origin. Nothing here reads the process's own environment or arguments: [`Sources`] carries them.

mod document;
mod embedded;
mod error;
mod known;
mod layer;
mod names;
mod reader;
mod reference;
mod sections;
mod show;

use std::{collections::BTreeMap, ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use config::{Value, ValueKind};
use serde::Serialize;

pub use self::{
    embedded::{EmbeddedConfig, FaultConfig, FaultKind},
    error::ConfigError,
    reference::{KeyReference, markdown_reference, plain_reference, reference},
    sections::{
        AccessConfig, ApiConfig, ApiLimitsConfig, ClusterConfig, ClusterKind, ClusterMode, DebugConfig,
        InventoryConfig, LeaseConfig, ListenConfig, LogConfig, LogFormat, NewNodes, OptionalListenConfig,
        ProviderConfig, ReservationConfig, StoreConfig, TlsConfig,
    },
    show::{Format, Setting},
};
use self::{
    layer::{DEFAULT_ORIGIN, Layer, PREFIX},
    reader::{Reader, as_text, wrong},
};
use crate::domain::human::{HumanDecimal, HumanDuration};

/// What Kubernetes sets in every pod.
const IN_A_POD: &str = "KUBERNETES_SERVICE_HOST";

/// Where a configuration comes from, besides the defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file of `--config` or `FREEHOLD_CONFIG`.
    pub file: Option<PathBuf>,
    /// The environment: all of it, for `FREEHOLD__…` is picked out here.
    pub environment: Vec<(OsString, OsString)>,
    /// The `key=value` of every `--set`, in order.
    pub sets: Vec<String>,
}

impl Sources {
    /// Adds the environment, as from `std::env::vars_os()`.
    #[must_use]
    pub fn with_environment<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let variables = variables.into_iter();
        self.environment
            .extend(variables.map(|(name, value)| (name.into(), value.into())));
        self
    }
}

/// A layer that was read, and how many keys it set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerSummary {
    /// Its name, for people.
    pub layer: String,
    /// How many keys it sets.
    pub keys: usize,
}

/// The whole configuration, typed and checked.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Config {
    /// How often what cannot be watched is polled.
    pub inventory_resource_poll_period: HumanDuration,
    /// Every how many polls the inventory is logged; 0 = never.
    pub inventory_resource_debug_frequency: u32,
    /// How many times over a core may be sold.
    pub cpu_commit_level: HumanDecimal,
    /// How many times over memory may be sold.
    pub memory_commit_level: HumanDecimal,
    /// How many times over storage may be sold.
    pub storage_commit_level: HumanDecimal,
    /// Host names nobody may take, in lower case; a leading dot blocks all names below.
    pub blocked_hostnames: Vec<String>,
    /// The provider's domain; empty when it is not set.
    pub deployment_ingress_domain: String,
    /// Whether every deployment gets a host name.
    pub deployment_ingress_static_hosts: bool,
    /// How many node ports may be sold.
    pub cluster_node_port_quantity: u32,
    /// `provider`.
    pub provider: ProviderConfig,
    /// `store`.
    pub store: StoreConfig,
    /// `api`.
    pub api: ApiConfig,
    /// `cluster`.
    pub cluster: ClusterConfig,
    /// `inventory`.
    pub inventory: InventoryConfig,
    /// `reservation`.
    pub reservation: ReservationConfig,
    /// `lease`.
    pub lease: LeaseConfig,
    /// `debug`.
    pub debug: DebugConfig,
    /// `log`.
    pub log: LogConfig,
    /// `embedded`.
    pub embedded: EmbeddedConfig,
    #[serde(skip)]
    origins: BTreeMap<String, String>,
    #[serde(skip)]
    layers: Vec<LayerSummary>,
    #[serde(skip)]
    in_a_pod: bool,
}

impl Default for Config {
    /// The compiled-in defaults.
    fn default() -> Self {
        Self::load(Sources::default()).expect("the compiled-in defaults load: a test holds it")
    }
}

impl Config {
    /// Reads, checks and merges all layers.
    pub fn load(sources: Sources) -> Result<Self, ConfigError> {
        let mut merging = Merging::start()?;
        if let Some(path) = &sources.file {
            merging.add(format!("file {}", path.display()), Layer::file(path)?)?;
        }
        let mut variables = Vec::new();
        let mut in_a_pod = false;
        for (name, value) in &sources.environment {
            in_a_pod |= name == IN_A_POD && !value.is_empty();
            if !name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                continue;
            }
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
                return Err(ConfigError::new("it is not UTF-8 text")
                    .origin(Some(format!("environment variable {}", name.display()))));
            };
            variables.push((name, value));
        }
        variables.sort_unstable();
        for (name, value) in variables {
            merging.add("environment".to_owned(), Layer::variable(name, value)?)?;
        }
        for set in &sources.sets {
            merging.add("--set".to_owned(), Layer::set(set)?)?;
        }
        let mut config = merging.config;
        config.in_a_pod = in_a_pod;
        config.cross_check()?;
        Ok(config)
    }

    /// Whether a key was given in a file, in the environment or with `--set`.
    #[must_use]
    pub fn explicit(&self, key: &str) -> bool {
        self.origin(key)
            .is_some_and(|origin| !origin.starts_with(DEFAULT_ORIGIN))
    }

    /// Where the value of a key was written.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<&str> {
        self.origins.get(key).map(String::as_str)
    }

    /// The layers that were read, lowest first.
    #[must_use]
    pub fn layers(&self) -> &[LayerSummary] {
        &self.layers
    }

    /// In a pod somebody means business: a simulated cluster must be asked for by name, so that simulated
    /// hardware is never sold by mistake.
    pub fn refuse_simulation_in_pod(&self) -> Result<(), ConfigError> {
        if self.in_a_pod && !self.explicit("cluster.kind") {
            return Err(ConfigError::new(format!(
                "it must be given in a pod ({IN_A_POD} is set), so that simulated hardware is never sold by mistake"
            ))
            .key("cluster.kind")
            .origin(self.origin("cluster.kind"))
            .hint("set cluster.kind to kubernetes, or to embedded for a demonstration"));
        }
        Ok(())
    }

    fn from_value(value: &Value) -> Result<Self, ConfigError> {
        let reader = Reader::new("", value)?;
        let level = |key| {
            reader.decimal(key, "a number above 0 and up to 1000, such as 1.0", |level| {
                (1..=1000 * HumanDecimal::ONE.millionths()).contains(&level.millionths())
            })
        };
        let store = StoreConfig::read(reader.section("store")?)?;
        let made = Self {
            inventory_resource_poll_period: reader.duration(
                "inventory-resource-poll-period",
                HumanDuration(Duration::from_millis(10)),
            )?,
            inventory_resource_debug_frequency: reader
                .whole("inventory-resource-debug-frequency", 0..=1_000_000)?,
            cpu_commit_level: level("cpu-commit-level")?,
            memory_commit_level: level("memory-commit-level")?,
            storage_commit_level: level("storage-commit-level")?,
            blocked_hostnames: reader.list("blocked-hostnames", "a list of host names", blocked_hostname)?,
            deployment_ingress_domain: reader.text_where(
                "deployment-ingress-domain",
                "a domain such as provider.example.com",
                |text| {
                    if text.is_empty() {
                        Ok(())
                    } else {
                        names::domain(text)
                    }
                },
            )?,
            deployment_ingress_static_hosts: reader.flag("deployment-ingress-static-hosts")?,
            cluster_node_port_quantity: reader.whole("cluster-node-port-quantity", 0..=65_535)?,
            provider: ProviderConfig::read(reader.section("provider")?)?,
            api: ApiConfig::read(reader.section("api")?)?,
            cluster: ClusterConfig::read(reader.section("cluster")?)?,
            inventory: InventoryConfig::read(reader.section("inventory")?)?,
            reservation: ReservationConfig::read(reader.section("reservation")?)?,
            lease: LeaseConfig::read(reader.section("lease")?)?,
            debug: DebugConfig::read(reader.section("debug")?)?,
            log: LogConfig::read(reader.section("log")?)?,
            embedded: EmbeddedConfig::read(reader.section("embedded")?, &store)?,
            store,
            origins: BTreeMap::new(),
            layers: Vec::new(),
            in_a_pod: false,
        };
        reader.done(made)
    }

    /// What no single key can tell.
    fn cross_check(&self) -> Result<(), ConfigError> {
        let tls = &self.api.tls;
        let together = |given: &str, missing: &str| {
            ConfigError::new(format!("it must be given together with {given}"))
                .key(missing)
                .origin(self.origin(given))
        };
        match (&tls.cert_file, &tls.key_file) {
            (Some(_), None) => return Err(together("api.tls.cert-file", "api.tls.key-file")),
            (None, Some(_)) => return Err(together("api.tls.key-file", "api.tls.cert-file")),
            (Some(_), Some(_)) | (None, None) => {}
        }
        if self.deployment_ingress_static_hosts && self.deployment_ingress_domain.is_empty() {
            return Err(
                together("deployment-ingress-static-hosts", "deployment-ingress-domain")
                    .hint("host names are made below that domain"),
            );
        }
        let mut listeners = vec![
            ("api.grpc.listen", self.api.grpc.listen),
            ("api.http.listen", self.api.http.listen),
        ];
        listeners.extend(self.api.health.listen.map(|listen| ("api.health.listen", listen)));
        if self.cluster.kind == ClusterKind::Embedded {
            listeners.extend(self.embedded.listen.map(|listen| ("embedded.listen", listen)));
        }
        for (index, (key, listen)) in listeners.iter().enumerate() {
            let mut earlier = listeners.iter().take(index);
            let clash = |taken: &SocketAddr| {
                let everywhere = taken.ip().is_unspecified() || listen.ip().is_unspecified();
                taken.port() == listen.port()
                    && taken.port() != 0
                    && (everywhere || taken.ip() == listen.ip())
            };
            if let Some((other, _)) = earlier.find(|(_, taken)| clash(taken)) {
                return Err(ConfigError::new(format!("{listen} is also {other}"))
                    .key(*key)
                    .origin(self.origin(key)));
            }
        }
        for (key, listen) in [
            ("api.grpc.listen", self.api.grpc.listen),
            ("api.http.listen", self.api.http.listen),
        ] {
            if !listen.ip().to_canonical().is_loopback() && !tls.is_on() {
                return Err(ConfigError::new(format!("{listen} is not loopback, and there is no TLS"))
                    .key(key)
                    .origin(self.origin(key))
                    .hint("set api.tls.enabled: true, or listen on 127.0.0.1; api.health.listen may be plain anywhere"));
            }
        }
        Ok(())
    }
}

/// The layers merged so far, and the configuration they make.
struct Merging {
    merged: config::Config,
    config: Config,
}

impl Merging {
    fn start() -> Result<Self, ConfigError> {
        let defaults = Layer::defaults()?;
        let summary = LayerSummary {
            layer: "compiled-in defaults".to_owned(),
            keys: defaults.keys,
        };
        let merged = merge(config::Config::builder().add_source(defaults))?;
        let mut config = Config::from_value(&merged.cache)?;
        config.layers.push(summary);
        let mut merging = Self { merged, config };
        merging.note_origins();
        Ok(merging)
    }

    /// Adds a layer on top. Layers of the same name are counted together.
    fn add(&mut self, name: String, layer: Layer) -> Result<(), ConfigError> {
        let keys = layer.keys;
        self.merged = merge(
            config::Config::builder()
                .add_source(self.merged.clone())
                .add_source(layer.clone()),
        )?;
        let mut layers = std::mem::take(&mut self.config.layers);
        match layers.last_mut().filter(|last| last.layer == name) {
            Some(last) => last.keys += keys,
            None => layers.push(LayerSummary { layer: name, keys }),
        }
        self.config = Config::from_value(&self.merged.cache).map_err(|error| layer.locate(error))?;
        self.config.layers = layers;
        self.note_origins();
        Ok(())
    }

    fn note_origins(&mut self) {
        fn walk(path: &str, value: &Value, origins: &mut BTreeMap<String, String>) {
            match &value.kind {
                ValueKind::Table(table) => {
                    for (key, value) in table {
                        walk(&known::join(path, key), value, origins);
                    }
                }
                _ => {
                    let origin = value.origin().unwrap_or_default();
                    origins.insert(path.to_owned(), origin.to_owned());
                }
            }
        }
        self.config.origins.clear();
        walk("", &self.merged.cache, &mut self.config.origins);
    }
}

fn merge(
    builder: config::ConfigBuilder<config::builder::DefaultState>,
) -> Result<config::Config, ConfigError> {
    builder
        .build()
        .map_err(|error| ConfigError::new(format!("the layers cannot be merged: {error}")))
}

fn blocked_hostname(at: &str, value: &Value) -> Result<String, ConfigError> {
    let expected = "a host name such as bad.example.com or .internal.local";
    let name = as_text(at, value, expected)?.to_lowercase();
    names::domain(name.strip_prefix('.').unwrap_or(&name))
        .map_err(|why| wrong(at, value, expected, Some(why.to_owned())))?;
    Ok(name)
}

#[cfg(test)]
mod tests;
