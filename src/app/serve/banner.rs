//! What a newcomer sees first.

use std::fmt::Write as _;

use crate::{
    api::server::Running,
    config::{ClusterKind, Config},
    domain::status::Status,
};

/// Where everything is, and what to type next.
pub(super) fn render(config: &Config, api: &Running, status: &Status) -> String {
    let scheme = if config.api.tls.is_on() { "https" } else { "http" };
    let mut text = String::new();
    let mut line = |label: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {label:<11}{value}");
    };
    let nodes = status
        .inventory
        .nodes
        .map_or_else(|| "nodes not known yet".to_owned(), |n| format!("{n} nodes"));
    let cluster = match config.cluster.kind {
        ClusterKind::Embedded => {
            format!("SIMULATED, inside this process, {nodes}: nothing here is real hardware")
        }
        ClusterKind::Kubernetes => format!("{} ({nodes})", status.cluster.server),
    };
    line("cluster", cluster);
    if config.cluster.kind == ClusterKind::Embedded && config.embedded.listen.is_some() {
        line(
            "kubectl",
            format!("KUBECONFIG={}", config.embedded.kubeconfig.display()),
        );
    }
    if let Some(address) = api.grpc_address {
        line("gRPC", format!("{scheme}://{address}"));
    }
    if let Some(address) = api.http_address {
        line("HTTP", format!("{scheme}://{address}"));
    }
    if let Some(address) = api.health_address {
        line("health", format!("http://{address}"));
    }
    line("store", config.store.path.display().to_string());
    for reason in &status.reasons {
        line("not ready", reason.message.clone());
    }
    let state = if status.ready {
        "ready"
    } else {
        "serving, but not ready"
    };
    let reach = reach(config, api);
    format!(
        "Freehold {} is {state}\n\n{text}\nNext, in another terminal:\n\n  {program} status{reach}\n  {program} inventory nodes{reach}\n  \
         {program} watch inventory.nodes{reach}\n",
        crate::VERSION,
        program = program(),
    )
}

/// What a client needs to be told when the defaults do not do.
fn reach(config: &Config, api: &Running) -> String {
    let mut flags = String::new();
    if let Some(address) = api.grpc_address
        && (config.api.tls.is_on() || address.to_string() != "127.0.0.1:7070")
    {
        let scheme = if config.api.tls.is_on() { "https" } else { "http" };
        let host = if address.ip().is_unspecified() {
            "localhost".to_owned()
        } else {
            address.ip().to_string()
        };
        let _ = write!(flags, " --server {scheme}://{host}:{}", address.port());
    }
    if config.api.tls.is_on() {
        if config.api.tls.cert_file.is_none() {
            let _ = write!(flags, " --ca {}", super::own_ca_file(config).display());
        }
        if config.api.tls.client_ca_file.is_none() {
            let _ = write!(
                flags,
                " --token-file {}",
                super::bootstrap_token_file(config).display()
            );
        }
    }
    flags
}

/// How this program was called, so that what is printed works as printed.
fn program() -> String {
    std::env::args_os().next().map_or_else(
        || "freehold".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}
