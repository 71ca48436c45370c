//! What a control plane is to consist of.

use std::time::Duration;

/// What runs beside etcd and the API server, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Without it pods get no node.
    pub scheduler: bool,
    /// Without it there are no default ServiceAccounts (so no pods), no garbage collection, no Deployments.
    pub controller_manager: bool,
    /// Without it nodes are never Ready and pods never run.
    pub kwok: bool,
    /// How often a KWOK node reports. A silent node is found lost after four of these.
    pub node_heartbeat: Duration,
    /// How long pods stay on a lost node.
    pub toleration_of_lost_nodes: Duration,
    /// More arguments for the API server, after ours.
    pub api_server_arguments: Vec<String>,
}

impl Options {
    /// Everything.
    pub fn full() -> Self {
        Self {
            scheduler: true,
            controller_manager: true,
            kwok: true,
            node_heartbeat: Duration::from_secs(30),
            toleration_of_lost_nodes: Duration::from_secs(300),
            api_server_arguments: Vec::new(),
        }
    }

    /// Only etcd and the API server: the fastest to start.
    pub fn api_only() -> Self {
        Self {
            scheduler: false,
            controller_manager: false,
            kwok: false,
            ..Self::full()
        }
    }
}
