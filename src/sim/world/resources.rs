//! The resources the controllers work on, each named once.

use std::sync::LazyLock;

use crate::sim::objects::Resource;

macro_rules! resources {
    ($($name:ident = $group:literal $plural:literal;)*) => {
        $(pub static $name: LazyLock<Resource> = LazyLock::new(|| Resource::new($group, $plural));)*
    };
}

resources! {
    PODS = "" "pods";
    NODES = "" "nodes";
    NAMESPACES = "" "namespaces";
    SERVICES = "" "services";
    ENDPOINTS = "" "endpoints";
    EVENTS = "" "events";
    CONFIG_MAPS = "" "configmaps";
    SERVICE_ACCOUNTS = "" "serviceaccounts";
    CLAIMS = "" "persistentvolumeclaims";
    VOLUMES = "" "persistentvolumes";
    DEPLOYMENTS = "apps" "deployments";
    REPLICA_SETS = "apps" "replicasets";
    STATEFUL_SETS = "apps" "statefulsets";
    JOBS = "batch" "jobs";
    STORAGE_CLASSES = "storage.k8s.io" "storageclasses";
    ENDPOINT_SLICES = "discovery.k8s.io" "endpointslices";
    ADDRESS_POOLS = "metallb.io" "ipaddresspools";
}
