//! Every command, flag and help text.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::SignedDuration;

const ABOUT: &str = "A compute provider's control plane in one binary.";

const EXAMPLES: &str = "\
Examples:
  freehold                                     start with the embedded cluster, nothing to set up
  freehold serve --config provider.yaml        start with a config file
  freehold status                              is it ready, and if not, why
  freehold inventory nodes                     the hardware
  freehold watch inventory.nodes -o json       every change, one line each
  freehold actors --watch                      what the program is doing inside

Exit status:
  0 done, or yes      3 the answer is no      6 server unreachable or not ready
  1 failed            4 not found             7 --wait ran out
  2 bad input         5 conflict";

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "freehold", version = VERSION_LINE, about = ABOUT, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do; `serve` when nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Config file; `freehold config reference` lists every key
    #[arg(long, global = true, value_name = "FILE", env = "FREEHOLD_CONFIG")]
    pub config: Option<PathBuf>,

    /// Set one config key, over the file and the environment; may be repeated
    #[arg(long = "set", global = true, value_name = "KEY=VALUE", value_parser = assignment)]
    pub sets: Vec<String>,

    /// How results are printed
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,

    /// How to reach a server.
    #[command(flatten)]
    pub client: ClientArguments,
}

const VERSION_LINE: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("FREEHOLD_REVISION"), ")");

/// How to reach a server.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Asking a server")]
pub struct ClientArguments {
    /// Where the server is [default: http://127.0.0.1:7070]
    #[arg(long, global = true, value_name = "URL", env = "FREEHOLD_SERVER")]
    pub server: Option<String>,

    /// File with the bearer token (`freehold token create` makes one)
    #[arg(long, global = true, value_name = "FILE", env = "FREEHOLD_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,

    /// CA certificate the server's certificate must come from
    #[arg(long, global = true, value_name = "FILE", env = "FREEHOLD_CA")]
    pub ca: Option<PathBuf>,

    /// Client certificate, with --key
    #[arg(long, global = true, value_name = "FILE", env = "FREEHOLD_CERT")]
    pub cert: Option<PathBuf>,

    /// Private key of the client certificate
    #[arg(long, global = true, value_name = "FILE", env = "FREEHOLD_KEY")]
    pub key: Option<PathBuf>,

    /// How long to wait for an answer, as in 500ms, 10s, 2m
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
}

/// Where a server is when nothing is said.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7070";

impl ClientArguments {
    /// The server to ask.
    #[must_use]
    pub fn server(&self) -> &str {
        self.server.as_deref().unwrap_or(DEFAULT_SERVER)
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// The same document as over HTTP; with --watch one a line
    Json,
    /// The same as YAML
    Yaml,
}

/// A command.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the provider (the default)
    Serve,

    /// What the provider is doing, whether it is ready, and why not
    #[command(
        after_help = "Examples:\n  freehold status\n  freehold status -o json | jq .ready\n  freehold status --watch"
    )]
    Status {
        /// Print again whenever it changes
        #[arg(long)]
        watch: bool,
    },

    /// The hardware: what there is, what is taken, what is sold
    #[command(
        after_help = "Examples:\n  freehold inventory\n  freehold inventory nodes\n  freehold inventory nodes --watch -o json"
    )]
    Inventory {
        /// What to show as a table; documents always hold everything
        #[arg(value_enum)]
        part: Option<InventoryPart>,
        /// Print again whenever it changes
        #[arg(long)]
        watch: bool,
    },

    /// The tree of actors: their states, restarts and last faults
    #[command(
        after_help = "Examples:\n  freehold actors\n  freehold actors root/node-pool --depth 1\n  freehold actors root/node-pool/node-0003 -o json"
    )]
    Actors {
        /// Show this actor and those below it
        path: Option<String>,
        /// How many levels below it
        #[arg(long, value_name = "N")]
        depth: Option<u32>,
        /// Print again whenever an actor starts, fails or stops
        #[arg(long)]
        watch: bool,
    },

    /// Follow topics of the bus: present values first, then every change
    #[command(
        after_help = "Topics: inventory.nodes, inventory.cluster, status, actors (docs/topics.md)\n\nExamples:\n  freehold watch inventory.nodes\n  freehold watch status actors -o json\n  freehold watch inventory.nodes --after 68719476812 -o json\n\nIt reconnects by itself and goes on after the last event it printed. Ctrl-C ends it with status 0."
    )]
    Watch {
        /// Which topics
        #[arg(required = true, value_name = "TOPIC")]
        topics: Vec<String>,
        /// Only what came after this sequence number
        #[arg(long, value_name = "N")]
        after: Option<u64>,
    },

    /// Bearer tokens of people and programs
    Token {
        /// What to do.
        #[command(subcommand)]
        action: TokenAction,
    },

    /// Check, show or explain the configuration
    Config {
        /// What to do.
        #[command(subcommand)]
        action: ConfigAction,
    },

    /// Back up, restore, verify or look into the store
    Store {
        /// What to do.
        #[command(subcommand)]
        action: StoreAction,
    },

    /// Run the embedded cluster alone, or reset it
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  freehold embedded --listen 127.0.0.1:7443\n  freehold embedded reset"
    )]
    Embedded {
        /// What to do; without it the cluster is served until Ctrl-C.
        #[command(subcommand)]
        action: Option<EmbeddedAction>,
        /// Where to serve its Kubernetes API [default: embedded.listen of the config]
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<String>,
    },

    /// Break things on purpose (needs debug.enabled: true on the server)
    Debug {
        /// What to do.
        #[command(subcommand)]
        action: DebugAction,
    },
}

/// A part of the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InventoryPart {
    /// One line a node
    Nodes,
}

/// What to do with tokens.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenAction {
    /// Make a token; it is shown this once
    #[command(
        after_help = "Examples:\n  freehold token create --name grafana --role operator --expires-in 90d > grafana.token\n  freehold token create --name alice --role tenant --subject alice -o json"
    )]
    Create {
        /// What people call it
        #[arg(long)]
        name: String,
        /// marketplace, tenant, operator, synchronizer or node
        #[arg(long)]
        role: String,
        /// The tenant's owner, the synchronizer's source or the node's name
        #[arg(long, default_value = "")]
        subject: String,
        /// When it ends, as in 12h or 90d; without it, never
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires_in: Option<Duration>,
        /// The same id makes the same token, once
        #[arg(long, value_name = "ID")]
        request_id: Option<String>,
    },
    /// List tokens, without their secrets
    List,
    /// Revoke a token
    Revoke {
        /// Its id, as `list` shows it
        id: String,
        /// The same id revokes once
        #[arg(long, value_name = "ID")]
        request_id: Option<String>,
    },
}

/// What to do with the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum ConfigAction {
    /// Read the configuration as `serve` would, and say what is wrong with it
    Check,
    /// Print the configuration in effect, secrets hidden
    Show,
    /// Print every key with its default and effect
    Reference,
}

/// What to do with the store.
#[derive(Clone, Debug, Subcommand)]
pub enum StoreAction {
    /// Write a verified copy to a file; works while the server runs
    Backup {
        /// Must not exist yet
        file: PathBuf,
    },
    /// Fill an empty store from a backup; the server must not run
    Restore {
        /// Made by `store backup`
        file: PathBuf,
    },
    /// Read and check every record
    Verify,
    /// What is in it, and which cluster it belongs to
    Info,
    /// Let the store belong to the cluster the server finds at its next start
    Rebind {
        /// What is known of the old cluster will be compared with another one
        #[arg(long, required = true)]
        confirm: bool,
    },
}

/// What to do with the embedded cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum EmbeddedAction {
    /// Forget all its objects; the next start makes the sample fleet anew
    Reset,
}

/// What to break.
#[derive(Clone, Debug, Subcommand)]
pub enum DebugAction {
    /// Faults of the embedded cluster's API
    Faults {
        /// What to do.
        #[command(subcommand)]
        action: FaultAction,
    },
    /// Have a quarantined actor tried again now; needs no debug.enabled
    #[command(after_help = "Example:\n  freehold debug retry root/node-pool/node-0003")]
    Retry {
        /// The actor, as `freehold actors` shows it
        path: String,
    },
    /// Make an actor panic, freeze or stop
    #[command(after_help = "Example:\n  freehold debug provoke root/node-pool/node-0003 --kind panic")]
    Provoke {
        /// The actor, as `freehold actors` shows it
        path: String,
        /// panic, freeze or stop
        #[arg(long)]
        kind: String,
    },
}

/// What to do with faults.
#[derive(Clone, Debug, Subcommand)]
pub enum FaultAction {
    /// Those in effect
    List,
    /// Add one
    #[command(
        after_help = "Examples:\n  freehold debug faults add --kind error --status 503 --verb list --resource nodes --count 3\n  freehold debug faults add --kind latency --delay 500ms --probability 0.2"
    )]
    Add(Box<FaultArguments>),
    /// Remove all
    Clear,
}

/// A fault of the embedded cluster's API.
#[derive(Clone, Debug, Args)]
pub struct FaultArguments {
    /// latency, error, drop, duplicate, cut or gone
    #[arg(long)]
    pub kind: String,
    /// get, list, watch, create …; without it, any
    #[arg(long, default_value = "")]
    pub verb: String,
    /// Plural name of a resource, as in nodes; without it, any
    #[arg(long, default_value = "")]
    pub resource: String,
    /// Without it, any
    #[arg(long, default_value = "")]
    pub namespace: String,
    /// HTTP status of an error
    #[arg(long)]
    pub status: Option<u16>,
    /// Retry-After of an error
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub retry_after: Option<Duration>,
    /// How long a latency takes
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub delay: Option<Duration>,
    /// From 0 to 1
    #[arg(long, default_value_t = 1.0)]
    pub probability: f64,
    /// How many times; without it, without end
    #[arg(long)]
    pub count: Option<u64>,
}

fn assignment(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("write it as key=value, as in store.path=/var/lib/freehold".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    SignedDuration::from_str(text)
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .filter(|duration| !duration.is_zero())
        .or_else(|| days(text))
        .ok_or_else(|| "write a time above zero, as in 500ms, 10s, 2m, 12h or 90d".to_owned())
}

/// Whole days, which a clock's calendar could stretch and our timers do not.
fn days(text: &str) -> Option<Duration> {
    let days: u64 = text.strip_suffix('d')?.parse().ok()?;
    let seconds = days.checked_mul(86_400).filter(|seconds| *seconds > 0)?;
    // Beyond what a timestamp can hold is no time anybody means.
    (days <= 365_000).then(|| Duration::from_secs(seconds))
}
