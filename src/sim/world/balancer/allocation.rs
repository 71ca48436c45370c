//! Who has which address: the rules of keeping, sharing and giving.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use serde_json::Value;

use super::pools::Pool;
use crate::sim::world::document::Key;

/// Most addresses looked at in one pool for one Service.
const LOOK: usize = 1 << 16;

/// What a Service asks for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) pool: Option<String>,
    /// Addresses asked for, as written.
    pub(super) wanted: Vec<String>,
    /// The sharing key; empty = no sharing.
    pub(super) sharing: String,
    /// What two sharers must agree on besides: empty for traffic policy Cluster, the selector for Local.
    pub(super) backend: String,
    pub(super) ports: BTreeSet<(String, i64)>,
    /// The wanted families, true for IPv6.
    pub(super) families: Vec<bool>,
    /// Whether the second family is only a wish.
    pub(super) optional_second: bool,
    pub(super) namespace: String,
    pub(super) namespace_object: Option<Arc<Value>>,
    pub(super) service: Value,
}

/// The users of one address.
#[derive(Debug)]
struct Users {
    sharing: String,
    backend: String,
    ports: BTreeMap<(String, i64), Key>,
}

/// The addresses in use.
#[derive(Debug, Default)]
pub(super) struct Allocation {
    users: BTreeMap<IpAddr, Users>,
}

impl Allocation {
    /// The addresses in use.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &IpAddr> {
        self.users.keys()
    }

    /// Keeps the addresses a Service has, when they are still right for it.
    pub(super) fn keep(&mut self, request: &Request, key: &Key, held: &[IpAddr], pools: &[Pool]) -> bool {
        let Some(pool) = pools.iter().find(|pool| held.iter().all(|ip| pool.may_give(*ip))) else {
            return false;
        };
        let right_pool = request.pool.as_ref().is_none_or(|wanted| wanted == pool.name());
        let wanted: BTreeSet<IpAddr> = request
            .wanted
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        let right_addresses = request.wanted.is_empty() || wanted == held.iter().copied().collect();
        let families: BTreeSet<bool> = held.iter().map(IpAddr::is_ipv6).collect();
        let right_families = request
            .families
            .iter()
            .take(1)
            .all(|family| families.contains(family))
            && families.iter().all(|family| request.families.contains(family))
            && (request.optional_second || families.len() == request.families.len());
        if !(right_pool && right_addresses && right_families)
            || held.iter().any(|ip| self.conflict(request, *ip).is_some())
        {
            return false;
        }
        self.take(request, key, held);
        true
    }

    /// Finds addresses for a Service: the pool's name and what it gives.
    pub(super) fn allocate(
        &mut self,
        request: &Request,
        key: &Key,
        pools: &[Pool],
    ) -> Result<(String, Vec<IpAddr>), String> {
        let found = if request.wanted.is_empty() {
            self.find(request, pools)
        } else {
            self.asked_for(request, pools)
        };
        let (pool, given) = found?;
        self.take(request, key, &given);
        Ok((pool, given))
    }

    /// The addresses the Service names.
    fn asked_for(&self, request: &Request, pools: &[Pool]) -> Result<(String, Vec<IpAddr>), String> {
        let mut given = Vec::new();
        for text in &request.wanted {
            let address: IpAddr = text
                .parse()
                .map_err(|_| format!("invalid spec.loadBalancerIP \"{text}\""))?;
            if !request.families.contains(&address.is_ipv6()) {
                return Err(format!(
                    "requested loadBalancer IP(s) \"{text}\" does not match ipFamily of the service"
                ));
            }
            given.push(address);
        }
        let allowed = |pool: &&Pool| {
            request.pool.as_ref().is_none_or(|wanted| wanted == pool.name())
                && given.iter().all(|ip| pool.may_give(*ip))
        };
        let Some(pool) = pools.iter().find(allowed) else {
            let asked = request.wanted.join(",");
            return Err(match &request.pool {
                Some(name) => format!("[{asked}] is not allowed in pool \"{name}\""),
                None => format!("[{asked}] is not allowed in config"),
            });
        };
        for address in &given {
            if let Some(conflict) = self.conflict(request, *address) {
                return Err(conflict);
            }
        }
        Ok((pool.name().to_owned(), given))
    }

    /// Addresses from the pool the Service names, or from those that are meant for it.
    fn find(&self, request: &Request, pools: &[Pool]) -> Result<(String, Vec<IpAddr>), String> {
        if let Some(name) = &request.pool {
            let Some(pool) = pools.iter().find(|pool| pool.name() == name) else {
                return Err(format!("unknown pool \"{name}\""));
            };
            let given = self
                .free_in(request, pool)
                .ok_or_else(|| format!("no available IPs in pool \"{name}\""))?;
            return Ok((name.clone(), given));
        }
        let meant = |pool: &&Pool| {
            pool.auto_assign
                && pool.is_for(
                    &request.service,
                    &request.namespace,
                    request.namespace_object.as_deref(),
                )
        };
        let mut eligible: Vec<&Pool> = pools.iter().filter(meant).collect();
        // Pools meant for this Service come before those for everybody.
        eligible.sort_by_key(|pool| (!pool.is_pinned, pool.priority, pool.key.clone()));
        let found = eligible
            .iter()
            .find_map(|pool| Some((pool.name().to_owned(), self.free_in(request, pool)?)));
        found.ok_or_else(|| "no available IPs".to_owned())
    }

    /// One address of every wanted family from one pool.
    fn free_in(&self, request: &Request, pool: &Pool) -> Option<Vec<IpAddr>> {
        let mut given = Vec::new();
        for (place, family) in request.families.iter().enumerate() {
            let mut candidates = pool.candidates(*family).take(LOOK);
            match candidates.find(|address| self.conflict(request, *address).is_none()) {
                Some(address) => given.push(address),
                None if place > 0 && request.optional_second => {}
                None => return None,
            }
        }
        (!given.is_empty()).then_some(given)
    }

    /// Why a Service cannot have an address, if it cannot.
    fn conflict(&self, request: &Request, address: IpAddr) -> Option<String> {
        let users = self.users.get(&address)?;
        let by = users
            .ports
            .values()
            .next()
            .map_or_else(String::new, |key| format!("{}/{}", key.namespace, key.name));
        let may_share = !request.sharing.is_empty()
            && users.sharing == request.sharing
            && users.backend == request.backend;
        if !may_share {
            return Some(format!(
                "can't change sharing key for \"{}\", address also in use by {by}",
                request.namespace
            ));
        }
        let port = request.ports.iter().find(|port| users.ports.contains_key(port))?;
        Some(format!(
            "port {}/{} is already in use on \"{address}\"",
            port.0.to_lowercase(),
            port.1
        ))
    }

    fn take(&mut self, request: &Request, key: &Key, given: &[IpAddr]) {
        for address in given {
            let users = self.users.entry(*address).or_insert_with(|| Users {
                sharing: request.sharing.clone(),
                backend: request.backend.clone(),
                ports: BTreeMap::new(),
            });
            users
                .ports
                .extend(request.ports.iter().cloned().map(|port| (port, key.clone())));
        }
    }
}
