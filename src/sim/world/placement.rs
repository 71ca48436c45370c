//! Where a pod fits: the scheduler's arithmetic, pure.
//!
//! Requests count as in Kubernetes: the larger of the containers' sum and the largest init container
//! (sidecars count with both), plus overhead. Nodes are filtered by resources, selector, required node
//! affinity, taints and readiness; of those left the least allocated wins, ties go by name.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    document::{at, condition, fields, flag, list, meets, text},
    quantity::{Rounding, amount},
};

/// Amounts by resource. The four that every node has are fields, so that a pass over the fleet is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub cpu: i64,
    pub memory: i64,
    pub ephemeral: i64,
    pub pods: i64,
    pub extended: BTreeMap<String, i64>,
}

impl Amounts {
    /// Reads a resource list; what makes no sense is left out.
    pub fn parse(resources: Option<&Value>, rounding: Rounding) -> Self {
        let mut amounts = Self::default();
        for (resource, value) in resources.and_then(Value::as_object).into_iter().flatten() {
            let Some(value) = amount(resource, value, rounding) else {
                continue;
            };
            match resource.as_str() {
                "cpu" => amounts.cpu = value,
                "memory" => amounts.memory = value,
                "ephemeral-storage" => amounts.ephemeral = value,
                "pods" => amounts.pods = value,
                _ => {
                    amounts.extended.insert(resource.clone(), value);
                }
            }
        }
        amounts
    }

    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    /// The larger of both, resource by resource.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.cpu = with(self.cpu, other.cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral = with(self.ephemeral, other.ephemeral);
        self.pods = with(self.pods, other.pods);
        for (resource, value) in &other.extended {
            match self.extended.get_mut(resource) {
                Some(place) => *place = with(*place, *value),
                None => {
                    self.extended.insert(resource.clone(), with(0, *value));
                }
            }
        }
    }
}

/// What a pod asks of its node.
pub fn requests(pod: &Value) -> Amounts {
    let of = |container: &Value| {
        let mut asked = Amounts::parse(at(container, "resources.requests"), Rounding::Up);
        // Extended resources may be given as limits only.
        let limits = Amounts::parse(at(container, "resources.limits"), Rounding::Up);
        let has = |name: &str| at(container, "resources.requests").is_some_and(|map| map.get(name).is_some());
        for (name, given, place) in [
            ("cpu", limits.cpu, &mut asked.cpu),
            ("memory", limits.memory, &mut asked.memory),
            ("ephemeral-storage", limits.ephemeral, &mut asked.ephemeral),
        ] {
            if !has(name) {
                *place = given;
            }
        }
        for (name, value) in limits.extended {
            asked.extended.entry(name).or_insert(value);
        }
        asked
    };
    let mut sum = Amounts::default();
    for container in list(pod, "spec.containers") {
        sum.add(&of(container));
    }
    let mut starting = Amounts::default();
    let mut sidecars = Amounts::default();
    for container in list(pod, "spec.initContainers") {
        let asked = of(container);
        let mut meanwhile = sidecars.clone();
        meanwhile.add(&asked);
        if text(container, "restartPolicy") == "Always" {
            sidecars = meanwhile.clone();
        }
        starting.raise_to(&meanwhile);
    }
    sum.add(&sidecars);
    sum.raise_to(&starting);
    sum.add(&Amounts::parse(at(pod, "spec.overhead"), Rounding::Up));
    sum.pods = 1;
    sum
}

/// Whether a pod holds its node's resources.
pub fn holds_resources(pod: &Value) -> bool {
    !matches!(text(pod, "status.phase"), "Succeeded" | "Failed")
}

/// A node as the scheduler sees it.
#[derive(Clone, Debug)]
pub struct NodeState {
    pub allocatable: Amounts,
    pub used: Amounts,
    pub labels: Value,
    pub taints: Vec<Value>,
    pub unschedulable: bool,
    pub ready: bool,
}

impl NodeState {
    /// Reads a Node object, with nothing used yet.
    pub fn parse(node: &Value) -> Self {
        Self {
            allocatable: Amounts::parse(at(node, "status.allocatable"), Rounding::Down),
            used: Amounts::default(),
            labels: at(node, "metadata.labels").cloned().unwrap_or_else(|| json!({})),
            taints: list(node, "spec.taints").to_vec(),
            unschedulable: flag(node, "spec.unschedulable"),
            ready: condition(node, "Ready") == "True",
        }
    }
}

/// What a pod needs, read once for a pass over the fleet.
#[derive(Debug)]
pub struct Wanted<'a> {
    pod: &'a Value,
    requests: Amounts,
    /// Node selector terms of the pod's bound volumes; each must match.
    volumes: Vec<Value>,
    /// How many pods of the same owner each node has.
    siblings: BTreeMap<String, u32>,
}

/// Why a node was passed over, in the scheduler's words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    Insufficient(String),
    TooManyPods,
    Affinity,
    Taint(String),
    Unschedulable,
    NotReady,
    VolumeAffinity,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Insufficient(resource) => write!(formatter, "Insufficient {resource}"),
            Self::TooManyPods => formatter.write_str("Too many pods"),
            Self::Affinity => formatter.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::Taint(taint) => write!(formatter, "node(s) had untolerated taint {{{taint}}}"),
            Self::Unschedulable => formatter.write_str("node(s) were unschedulable"),
            Self::NotReady => formatter.write_str("node(s) were not ready"),
            Self::VolumeAffinity => formatter.write_str("node(s) had volume node affinity conflict"),
        }
    }
}

impl<'a> Wanted<'a> {
    pub fn new(pod: &'a Value, volumes: Vec<Value>, siblings: BTreeMap<String, u32>) -> Self {
        Self {
            pod,
            requests: requests(pod),
            volumes,
            siblings,
        }
    }

    /// The node to take, or the sentence that says why there is none.
    pub fn place(&self, nodes: &BTreeMap<String, NodeState>) -> Result<String, String> {
        let mut best: Option<(f64, &str)> = None;
        let mut obstacles: BTreeMap<Obstacle, usize> = BTreeMap::new();
        for (name, node) in nodes {
            match self.obstacle(name, node) {
                Some(obstacle) => *obstacles.entry(obstacle).or_default() += 1,
                None => {
                    let load = self.load_after(name, node);
                    if best.is_none_or(|(lightest, _)| load < lightest) {
                        best = Some((load, name));
                    }
                }
            }
        }
        best.map(|(_, name)| name.to_owned()).ok_or_else(|| {
            let mut said: Vec<String> = obstacles
                .iter()
                .map(|(obstacle, count)| format!("{count} {obstacle}"))
                .collect();
            said.sort();
            let nodes = nodes.len();
            if said.is_empty() {
                return "no nodes available to schedule pods".to_owned();
            }
            format!("0/{nodes} nodes are available: {}.", said.join(", "))
        })
    }

    fn obstacle(&self, name: &str, node: &NodeState) -> Option<Obstacle> {
        if !node.ready {
            return Some(Obstacle::NotReady);
        }
        if let Some(obstacle) = self.lack(node) {
            return Some(obstacle);
        }
        let cordon = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
        if node.unschedulable && !tolerates(self.pod, &cordon) {
            return Some(Obstacle::Unschedulable);
        }
        if let Some(taint) = node.taints.iter().find(|taint| {
            matches!(text(taint, "effect"), "NoSchedule" | "NoExecute") && !tolerates(self.pod, taint)
        }) {
            return Some(Obstacle::Taint(format!(
                "{}: {}",
                text(taint, "key"),
                text(taint, "value")
            )));
        }
        if !self.wants_node(name, node) {
            return Some(Obstacle::Affinity);
        }
        let reachable = self
            .volumes
            .iter()
            .all(|terms| any_term(terms, name, &node.labels));
        (!reachable).then_some(Obstacle::VolumeAffinity)
    }

    fn lack(&self, node: &NodeState) -> Option<Obstacle> {
        let lacks = |asked: i64, has: i64, used: i64| asked > 0 && asked > has.saturating_sub(used);
        let (asked, has, used) = (&self.requests, &node.allocatable, &node.used);
        if lacks(1, has.pods, used.pods) {
            return Some(Obstacle::TooManyPods);
        }
        for (resource, lacking) in [
            ("cpu", lacks(asked.cpu, has.cpu, used.cpu)),
            ("memory", lacks(asked.memory, has.memory, used.memory)),
            (
                "ephemeral-storage",
                lacks(asked.ephemeral, has.ephemeral, used.ephemeral),
            ),
        ] {
            if lacking {
                return Some(Obstacle::Insufficient(resource.into()));
            }
        }
        let amount = |of: &Amounts, resource: &str| of.extended.get(resource).copied().unwrap_or(0);
        asked
            .extended
            .iter()
            .find(|(resource, asked)| lacks(**asked, amount(has, resource), amount(used, resource)))
            .map(|(resource, _)| Obstacle::Insufficient(resource.clone()))
    }

    fn wants_node(&self, name: &str, node: &NodeState) -> bool {
        let selected =
            fields(self.pod, "spec.nodeSelector").all(|(key, value)| node.labels.get(key) == Some(value));
        let terms = at(
            self.pod,
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        );
        selected && terms.is_none_or(|terms| any_term(terms, name, &node.labels))
    }

    /// How full the node would be, and how little it is preferred: the smaller the better.
    fn load_after(&self, name: &str, node: &NodeState) -> f64 {
        let share = |asked: i64, has: i64, used: i64| {
            if has <= 0 {
                0.0
            } else {
                (used.saturating_add(asked)) as f64 / has as f64
            }
        };
        let (asked, has, used) = (&self.requests, &node.allocatable, &node.used);
        let mut load = share(asked.cpu, has.cpu, used.cpu) + share(asked.memory, has.memory, used.memory);
        // Pods of one owner spread before anything else counts.
        load += 3.0 * f64::from(self.siblings.get(name).copied().unwrap_or(0));
        // Pods that ask for nothing still spread.
        load += share(1, has.pods, used.pods);
        // Plain pods leave nodes with cards to those that need them.
        if asked.extended.is_empty() {
            let cards = has
                .extended
                .iter()
                .filter(|(name, count)| name.ends_with("/gpu") && **count > 0);
            load += if cards.count() > 0 { 1.0 } else { 0.0 };
        }
        let preferred = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";
        for term in list(self.pod, preferred) {
            let weight = at(term, "weight").and_then(Value::as_i64).unwrap_or(1) as f64;
            if at(term, "preference").is_some_and(|term| term_matches(term, "", &node.labels)) {
                load -= weight;
            }
        }
        let soft = node
            .taints
            .iter()
            .filter(|taint| text(taint, "effect") == "PreferNoSchedule" && !tolerates(self.pod, taint));
        load + 20.0 * soft.count() as f64
    }
}

/// Whether one of the node selector terms matches.
fn any_term(terms: &Value, name: &str, labels: &Value) -> bool {
    terms
        .as_array()
        .is_some_and(|terms| terms.iter().any(|term| term_matches(term, name, labels)))
}

fn term_matches(term: &Value, name: &str, labels: &Value) -> bool {
    let (expressions, by_field) = (list(term, "matchExpressions"), list(term, "matchFields"));
    if expressions.is_empty() && by_field.is_empty() {
        return false;
    }
    let node = json!({"metadata.name": name});
    expressions.iter().all(|expression| meets(expression, labels))
        && by_field.iter().all(|expression| meets(expression, &node))
}

/// Whether a pod tolerates a taint.
pub fn tolerates(pod: &Value, taint: &Value) -> bool {
    toleration(pod, taint).is_some()
}

/// The toleration that covers a taint.
pub fn toleration<'a>(pod: &'a Value, taint: &Value) -> Option<&'a Value> {
    list(pod, "spec.tolerations").iter().find(|toleration| {
        let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
        let exists = text(toleration, "operator") == "Exists";
        (effect.is_empty() || effect == text(taint, "effect"))
            && ((key.is_empty() && exists) || key == text(taint, "key"))
            && (exists || text(toleration, "value") == text(taint, "value"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(cpu: i64, labels: Value) -> NodeState {
        NodeState::parse(&json!({
            "metadata": {"labels": labels},
            "status": {"allocatable": {"cpu": cpu.to_string(), "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}]},
        }))
    }

    fn pod(cpu: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    fn place(pod: &Value, nodes: &[(&str, NodeState)]) -> Result<String, String> {
        let nodes = nodes
            .iter()
            .map(|(name, node)| ((*name).to_owned(), node.clone()))
            .collect();
        Wanted::new(pod, Vec::new(), BTreeMap::new()).place(&nodes)
    }

    #[test]
    fn requests_count_init_containers_sidecars_and_overhead() {
        let pod = json!({"spec": {
            "initContainers": [
                {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"name": "big", "resources": {"requests": {"cpu": "5"}}}],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "2"}}},
                {"name": "b", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "500m"}}}],
            "overhead": {"cpu": "250m"}}});
        let asked = requests(&pod);
        assert_eq!(
            asked.cpu, 6250,
            "sidecar 1 + big 5 is more than 1 + 2 + 0.5; overhead on top"
        );
        assert_eq!(asked.extended.get("nvidia.com/gpu"), Some(&2));
    }

    #[test]
    fn the_least_allocated_node_wins_and_ties_go_by_name() {
        let mut busy = node(4, json!({}));
        busy.used.cpu = 2000;
        assert_eq!(
            place(&pod("1"), &[("a", busy.clone()), ("b", node(4, json!({})))]).unwrap(),
            "b"
        );
        assert_eq!(
            place(&pod("1"), &[("b", node(4, json!({}))), ("a", node(4, json!({})))]).unwrap(),
            "a"
        );
    }

    #[test]
    fn taints_affinity_and_cordons_keep_pods_away_and_the_sentence_says_so() {
        let mut tainted = node(4, json!({}));
        tainted.taints = vec![json!({"key": "gold", "value": "yes", "effect": "NoSchedule"})];
        let mut cordoned = node(4, json!({}));
        cordoned.unschedulable = true;
        let nodes = [
            ("a", tainted),
            ("b", cordoned),
            ("c", node(1, json!({"zone": "x"}))),
        ];
        let said = place(&pod("2"), &nodes).unwrap_err();
        assert_eq!(
            said,
            "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {gold: yes}, \
             1 node(s) were unschedulable."
        );
        let mut tolerant = pod("2");
        tolerant["spec"]["tolerations"] = json!([{"key": "gold", "operator": "Exists"}]);
        assert_eq!(place(&tolerant, &nodes).unwrap(), "a");
        let mut pinned = pod("1");
        pinned["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}]}}});
        assert_eq!(place(&pinned, &nodes).unwrap(), "c");
        let mut choosy = pod("1");
        choosy["spec"]["nodeSelector"] = json!({"zone": "y"});
        assert!(
            place(&choosy, &nodes)
                .unwrap_err()
                .contains("didn't match Pod's node affinity")
        );
    }

    #[test]
    fn extended_resources_and_the_pod_limit_are_never_oversold() {
        let mut gpu = node(4, json!({}));
        gpu.allocatable.extended.insert("nvidia.com/gpu".into(), 1);
        let mut wanted = pod("1");
        wanted["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 1}});
        assert_eq!(
            place(&wanted, &[("plain", node(4, json!({}))), ("gpu", gpu.clone())]).unwrap(),
            "gpu"
        );
        gpu.used.extended.insert("nvidia.com/gpu".into(), 1);
        assert!(
            place(&wanted, &[("gpu", gpu)])
                .unwrap_err()
                .contains("Insufficient nvidia.com/gpu")
        );
        let mut full = node(4, json!({}));
        full.used.pods = 10;
        assert!(
            place(&pod("1"), &[("full", full)])
                .unwrap_err()
                .contains("Too many pods")
        );
    }
}
