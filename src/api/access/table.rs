//! The table: every RPC and every route, and who may call it. It is checked against the compiled
//! descriptors at start-up: a method that is not in it keeps the program from starting, and so does a
//! line without a method. HTTP routes are made from their lines, so there are none beside them.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use thiserror::Error;

use crate::domain::access::{Role, Rule};

const OPERATOR: Rule = Rule::Only(&[Role::Operator]);
const READERS: Rule = Rule::Only(&[Role::Operator, Role::Marketplace]);

/// Every RPC.
pub const RPCS: &[(&str, Rule)] = &[
    ("/freehold.v1.StatusService/Get", READERS),
    ("/freehold.v1.StatusService/Watch", READERS),
    ("/freehold.v1.InventoryService/Get", READERS),
    ("/freehold.v1.EventService/Watch", OPERATOR),
    ("/freehold.private.v1.AccessService/CreateToken", OPERATOR),
    ("/freehold.private.v1.AccessService/ListTokens", OPERATOR),
    ("/freehold.private.v1.AccessService/RevokeToken", OPERATOR),
    ("/freehold.private.v1.DebugService/ListActors", OPERATOR),
    ("/freehold.private.v1.DebugService/RetryActor", OPERATOR),
    ("/freehold.private.v1.DebugService/ProvokeFault", OPERATOR),
    ("/freehold.private.v1.DebugService/ListFaults", OPERATOR),
    ("/freehold.private.v1.DebugService/AddFault", OPERATOR),
    ("/freehold.private.v1.DebugService/ClearFaults", OPERATOR),
    ("/freehold.private.v1.StoreService/Info", OPERATOR),
    ("/freehold.private.v1.StoreService/Verify", OPERATOR),
    ("/freehold.private.v1.StoreService/Backup", OPERATOR),
    ("/grpc.health.v1.Health/Check", Rule::Anyone),
    ("/grpc.health.v1.Health/Watch", Rule::Anyone),
    (
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        OPERATOR,
    ),
];

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/livez`
    Alive,
    /// `/readyz`
    Ready,
    /// `/metrics`
    Metrics,
    /// `/`
    Dashboard,
    /// `/api/v1/status`
    Status,
    /// `/api/v1/inventory`
    Inventory,
    /// `GET /debug/actors`
    Actors,
    /// `POST /debug/actors/<path>/fault`
    ProvokeFault,
    /// `GET /debug/faults`
    Faults,
    /// `POST /debug/faults`
    AddFault,
    /// `DELETE /debug/faults`
    ClearFaults,
}

/// A route.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its HTTP method; HEAD goes with GET.
    pub method: Method,
    /// Its path as axum writes it; the last part may be `{*rest}`.
    pub path: &'static str,
    /// Who may.
    pub rule: Rule,
    /// Whether the plain health listener has it too, for everybody.
    pub plain: bool,
    /// What it does.
    pub endpoint: Endpoint,
}

const fn route(method: Method, path: &'static str, rule: Rule, endpoint: Endpoint) -> Route {
    Route {
        method,
        path,
        rule,
        plain: false,
        endpoint,
    }
}

const fn plain(path: &'static str, rule: Rule, endpoint: Endpoint) -> Route {
    Route {
        method: Method::GET,
        path,
        rule,
        plain: true,
        endpoint,
    }
}

/// Every route.
pub const ROUTES: &[Route] = &[
    plain("/livez", Rule::Anyone, Endpoint::Alive),
    plain("/readyz", Rule::Anyone, Endpoint::Ready),
    plain("/metrics", OPERATOR, Endpoint::Metrics),
    route(Method::GET, "/", OPERATOR, Endpoint::Dashboard),
    route(Method::GET, "/api/v1/status", READERS, Endpoint::Status),
    route(Method::GET, "/api/v1/inventory", READERS, Endpoint::Inventory),
    route(Method::GET, "/debug/actors", OPERATOR, Endpoint::Actors),
    route(
        Method::POST,
        "/debug/actors/{*path}",
        OPERATOR,
        Endpoint::ProvokeFault,
    ),
    route(Method::GET, "/debug/faults", OPERATOR, Endpoint::Faults),
    route(Method::POST, "/debug/faults", OPERATOR, Endpoint::AddFault),
    route(Method::DELETE, "/debug/faults", OPERATOR, Endpoint::ClearFaults),
];

/// A method of the table with what its descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rpc {
    /// Its path.
    pub path: &'static str,
    /// Who may.
    pub rule: Rule,
    /// Whether it answers with a stream.
    pub streams: bool,
}

/// The table, checked.
#[derive(Debug)]
pub struct AccessTable {
    rpcs: BTreeMap<&'static str, Rpc>,
}

/// Why the table does not fit the descriptors.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TableError {
    /// Descriptors that cannot be read.
    #[error("the compiled descriptors cannot be read: {0}")]
    Descriptors(String),
    /// They do not fit.
    #[error(
        "the access table does not fit the services: without a line {unlisted:?}, without a method {unknown:?}"
    )]
    Mismatch {
        /// Methods the table says nothing about.
        unlisted: Vec<String>,
        /// Lines about methods that do not exist.
        unknown: Vec<String>,
    },
}

impl AccessTable {
    /// The table over our own services, health and reflection.
    ///
    /// # Errors
    /// When a method is not in the table or the other way round.
    pub fn check() -> Result<Self, TableError> {
        Self::over(
            RPCS,
            &[
                super::super::proto::DESCRIPTORS,
                tonic_health::pb::FILE_DESCRIPTOR_SET,
                tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            ],
        )
    }

    fn over(rpcs: &[(&'static str, Rule)], descriptors: &[&[u8]]) -> Result<Self, TableError> {
        let mut methods = BTreeMap::new();
        for encoded in descriptors {
            methods.extend(methods_of(encoded)?);
        }
        let listed: BTreeSet<&str> = rpcs.iter().map(|(path, _)| *path).collect();
        let unlisted: Vec<String> = methods
            .keys()
            .filter(|path| !listed.contains(path.as_str()))
            .cloned()
            .collect();
        let unknown: Vec<String> = listed
            .iter()
            .filter(|path| !methods.contains_key(**path))
            .map(|path| (*path).to_owned())
            .collect();
        if !unlisted.is_empty() || !unknown.is_empty() {
            return Err(TableError::Mismatch { unlisted, unknown });
        }
        let rpcs = rpcs
            .iter()
            .map(|(path, rule)| {
                let rpc = Rpc {
                    path,
                    rule: *rule,
                    streams: methods.get(*path).copied().unwrap_or(false),
                };
                (*path, rpc)
            })
            .collect();
        Ok(Self { rpcs })
    }

    /// The line of an RPC.
    #[must_use]
    pub fn rpc(&self, path: &str) -> Option<Rpc> {
        self.rpcs.get(path).copied()
    }

    /// The line of a route.
    ///
    /// # Errors
    /// `true` when the path exists with another method.
    pub fn route(method: &Method, path: &str) -> Result<&'static Route, bool> {
        let asked = if method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        let mut path_exists = false;
        for route in ROUTES {
            if matches(route.path, path) {
                if route.method == *asked {
                    return Ok(route);
                }
                path_exists = true;
            }
        }
        Err(path_exists)
    }
}

/// The services of ours, for health.
#[must_use]
pub fn services() -> BTreeSet<&'static str> {
    RPCS.iter()
        .filter_map(|(path, _)| path.strip_prefix('/')?.split_once('/'))
        .map(|(service, _)| service)
        .filter(|service| service.starts_with("freehold."))
        .collect()
}

fn matches(pattern: &str, path: &str) -> bool {
    match pattern.split_once("{*") {
        Some((start, _)) => path.strip_prefix(start).is_some_and(|rest| !rest.is_empty()),
        None => pattern == path,
    }
}

/// The methods of a descriptor set, and whether they answer with a stream.
fn methods_of(encoded: &[u8]) -> Result<BTreeMap<String, bool>, TableError> {
    let set =
        FileDescriptorSet::decode(encoded).map_err(|error| TableError::Descriptors(error.to_string()))?;
    let mut methods = BTreeMap::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                methods.insert(path, method.server_streaming());
            }
        }
    }
    Ok(methods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::proto::DESCRIPTORS;

    #[test]
    fn every_method_has_a_line_and_every_line_a_method() {
        let table = AccessTable::check().unwrap();
        assert!(table.rpc("/freehold.v1.EventService/Watch").unwrap().streams);
        assert!(!table.rpc("/freehold.v1.StatusService/Get").unwrap().streams);
        assert_eq!(table.rpc("/freehold.v1.StatusService/Nothing"), None);
    }

    #[test]
    fn a_method_without_a_line_keeps_the_table_from_being_made() {
        let forgotten: Vec<_> = RPCS[1..].to_vec();
        let sets = [
            DESCRIPTORS,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        ];
        assert_eq!(
            AccessTable::over(&forgotten, &sets).unwrap_err(),
            TableError::Mismatch {
                unlisted: vec![RPCS[0].0.to_owned()],
                unknown: vec![]
            }
        );
        let mut invented = RPCS.to_vec();
        invented.push(("/freehold.v1.StatusService/Explode", OPERATOR));
        assert_eq!(
            AccessTable::over(&invented, &sets).unwrap_err(),
            TableError::Mismatch {
                unlisted: vec![],
                unknown: vec!["/freehold.v1.StatusService/Explode".into()]
            }
        );
    }

    #[test]
    fn only_health_is_open_to_strangers() {
        let open: Vec<&str> = RPCS
            .iter()
            .filter(|(_, rule)| *rule == Rule::Anyone)
            .map(|(path, _)| *path)
            .collect();
        assert!(
            open.iter().all(|path| path.starts_with("/grpc.health.v1.")),
            "{open:?}"
        );
        let routes: Vec<&str> = ROUTES
            .iter()
            .filter(|route| route.rule == Rule::Anyone)
            .map(|route| route.path)
            .collect();
        assert_eq!(routes, ["/livez", "/readyz"]);
    }

    #[test]
    fn a_path_finds_its_route_and_nothing_else() {
        let found = |method, path| AccessTable::route(&method, path).map(|route| route.endpoint);
        assert_eq!(found(Method::HEAD, "/livez"), Ok(Endpoint::Alive));
        assert_eq!(
            found(Method::POST, "/debug/actors/root/node-pool/n1/fault"),
            Ok(Endpoint::ProvokeFault)
        );
        assert_eq!(found(Method::POST, "/livez"), Err(true));
        assert_eq!(found(Method::POST, "/debug/actors/"), Err(false));
        assert_eq!(found(Method::GET, "/livez/"), Err(false));
        assert_eq!(found(Method::GET, "//api/v1/status"), Err(false));
    }
}
