//! LoadBalancer Services and their addresses.

use serde_json::json;

use super::*;
use crate::sim::objects::Deletion;

fn balancer(name: &str, port: i64, annotations: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": port, "protocol": "TCP"}]}})
}

fn address(life: &Life, name: &str) -> String {
    life.get(&SERVICES, name).map_or(String::new(), |service| {
        text(&service["status"]["loadBalancer"]["ingress"][0], "ip").to_owned()
    })
}

/// A cluster whose only pool is this one.
async fn with_pool(spec: Value) -> Life {
    let life = Life::begin(1);
    life.objects
        .delete(&ADDRESS_POOLS, "metallb-system", "default", Deletion::now())
        .unwrap();
    life.create(
        &ADDRESS_POOLS,
        json!({"apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": "small", "namespace": "metallb-system"}, "spec": spec}),
    );
    life.pass(1).await;
    life
}

#[tokio::test(start_paused = true)]
async fn addresses_are_given_kept_and_given_back() {
    let life = with_pool(json!({"addresses": ["203.0.113.5-203.0.113.6"]})).await;
    for name in ["a", "b", "c"] {
        life.create(&SERVICES, balancer(name, 80, json!({})));
        life.pass(1).await;
    }
    assert_eq!(
        [address(&life, "a"), address(&life, "b"), address(&life, "c")],
        ["203.0.113.5", "203.0.113.6", ""]
    );
    assert_eq!(life.events("AllocationFailed"), 1);
    let pool = life
        .objects
        .get(&ADDRESS_POOLS, "metallb-system", "small")
        .unwrap();
    assert_eq!(
        (&pool["status"]["assignedIPv4"], &pool["status"]["availableIPv4"]),
        (&json!(2), &json!(0))
    );
    life.objects
        .delete(&SERVICES, "default", "a", Deletion::default())
        .unwrap();
    life.until("the waiting one to get it", |life| {
        address(life, "c") == "203.0.113.5"
    })
    .await;
    life.change(&SERVICES, "default", "b", |service| {
        service["spec"]["type"] = json!("ClusterIP")
    });
    life.until("it to be given back", |life| address(life, "b").is_empty())
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_address_is_shared_by_key_when_ports_differ_and_traffic_goes_the_same_way() {
    let life = with_pool(json!({"addresses": ["203.0.113.5-203.0.113.7"]})).await;
    let shared = json!({"metallb.universe.tf/allow-shared-ip": "alice"});
    let newer = json!({"metallb.io/allow-shared-ip": "alice"});
    life.create(&SERVICES, balancer("a", 80, shared.clone()));
    life.create(&SERVICES, balancer("b", 443, newer));
    life.create(&SERVICES, balancer("clash", 80, shared.clone()));
    let mut local = balancer("local", 8080, shared.clone());
    local["spec"]["externalTrafficPolicy"] = json!("Local");
    life.create(&SERVICES, local);
    life.create(
        &SERVICES,
        balancer("stranger", 9090, json!({"metallb.io/allow-shared-ip": "bob"})),
    );
    life.pass(1).await;
    assert_eq!(address(&life, "a"), "203.0.113.5");
    assert_eq!(address(&life, "b"), "203.0.113.5");
    assert_eq!(
        address(&life, "clash"),
        "203.0.113.6",
        "the port is taken on the first"
    );
    assert_eq!(
        address(&life, "local"),
        "203.0.113.7",
        "Local does not share with Cluster"
    );
    assert_eq!(address(&life, "stranger"), "", "another key shares with nobody");
}

#[tokio::test(start_paused = true)]
async fn pools_and_addresses_can_be_asked_for() {
    let life = with_pool(json!({"addresses": ["198.51.100.0/30", "2001:db8::/126"], "autoAssign": false, "avoidBuggyIPs": true})).await;
    life.create(&SERVICES, balancer("plain", 80, json!({})));
    life.create(
        &SERVICES,
        balancer("pooled", 80, json!({"metallb.universe.tf/address-pool": "small"})),
    );
    life.create(
        &SERVICES,
        balancer("named", 80, json!({"metallb.io/loadBalancerIPs": "198.51.100.3"})),
    );
    life.create(
        &SERVICES,
        balancer("outside", 80, json!({"metallb.io/loadBalancerIPs": "9.9.9.9"})),
    );
    life.create(
        &SERVICES,
        balancer("nowhere", 80, json!({"metallb.io/address-pool": "other"})),
    );
    life.pass(1).await;
    let mut both = balancer("both", 80, json!({"metallb.io/address-pool": "small"}));
    both["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    both["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
    life.create(&SERVICES, both);
    let mut classed = balancer("classed", 80, json!({"metallb.io/address-pool": "small"}));
    classed["spec"]["loadBalancerClass"] = json!("example.com/other");
    life.create(&SERVICES, classed);
    life.pass(1).await;
    assert_eq!(address(&life, "plain"), "", "the pool is not for everybody");
    assert_eq!(address(&life, "pooled"), "198.51.100.1", ".0 is avoided");
    assert_eq!(address(&life, "named"), "198.51.100.3");
    assert_eq!(
        [
            address(&life, "outside"),
            address(&life, "nowhere"),
            address(&life, "classed")
        ],
        ["", "", ""]
    );
    let both = life.get(&SERVICES, "both").unwrap();
    assert_eq!(count(&both, "status.loadBalancer.ingress"), 2);
    assert_eq!(both["status"]["loadBalancer"]["ingress"][1]["ip"], "2001:db8::");
}

#[tokio::test(start_paused = true)]
async fn a_pool_for_one_namespace_serves_it_first_and_nobody_else() {
    let life = with_pool(json!({"addresses": ["203.0.113.5-203.0.113.9"]})).await;
    life.create(&ADDRESS_POOLS, json!({"metadata": {"name": "tenant", "namespace": "metallb-system"},
        "spec": {"addresses": ["192.0.2.8/30"], "serviceAllocation": {"namespaces": ["lease"], "priority": 10}}}));
    let mut theirs = balancer("theirs", 80, json!({}));
    theirs["metadata"]["namespace"] = json!("lease");
    life.create(&SERVICES, theirs);
    life.create(&SERVICES, balancer("ours", 80, json!({})));
    life.pass(1).await;
    let theirs = life.objects.get(&SERVICES, "lease", "theirs").unwrap();
    assert_eq!(theirs["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.8");
    assert_eq!(
        theirs["metadata"]["annotations"]["metallb.io/ip-allocated-from-pool"],
        "tenant"
    );
    assert_eq!(address(&life, "ours"), "203.0.113.5");
}
