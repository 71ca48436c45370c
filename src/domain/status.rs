//! The status document (INTERFACE §3), the same over gRPC, HTTP and the command line.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the provider is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// The commit it was built from.
    pub revision: String,
    /// When this run began.
    pub started_at: Timestamp,
    /// Whether it answers for real.
    pub ready: bool,
    /// Why not.
    pub reasons: Vec<StatusReason>,
    /// `manage` or `observe`.
    pub mode: String,
    /// Whether new reservations are refused on the operator's word.
    pub maintenance: bool,
    /// The cluster it works on.
    pub cluster: ClusterIdentity,
    /// The hardware in one line.
    pub inventory: InventorySummary,
    /// Promises that stand.
    pub reservations: u64,
    /// Leases known.
    pub leases: u64,
    /// The store.
    pub store: StoreSummary,
    /// What this start found.
    pub recovered: Recovery,
}

/// One thing that keeps the provider from being ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReason {
    /// Which part: `cluster`, `inventory`, `store` …
    pub part: String,
    /// For programs.
    pub code: String,
    /// For people, with what to do.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
}

/// Which cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterIdentity {
    /// `embedded` or `kubernetes`.
    pub kind: String,
    /// The UID of its `kube-system` namespace; unknown until it has answered.
    pub uid: Option<String>,
    /// Its API server.
    pub server: String,
}

/// The hardware in one line. Unknown is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventorySummary {
    /// Goes up with every change.
    pub revision: u64,
    /// How old the picture is.
    pub age_ms: Option<u64>,
    /// How many nodes there are.
    pub nodes: Option<u64>,
}

/// The store in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSummary {
    /// Where it is.
    pub path: String,
    /// What it takes on disk.
    pub bytes: u64,
    /// Whether it can be written.
    pub healthy: bool,
}

/// What this start found of the run before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Whether the last run ended without a clean stop.
    pub unclean: bool,
    /// Promises read back.
    pub reservations: u64,
    /// Leases read back.
    pub leases: u64,
    /// Hostnames read back.
    pub hostnames: u64,
    /// Records that were never acknowledged and are gone.
    pub dropped_records: u64,
    /// How long it took.
    pub took_ms: u64,
}

/// How the source of node facts is: the node watch of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// The UID of the cluster's `kube-system` namespace, once it has answered.
    pub cluster_uid: Option<String>,
    /// How many nodes the last complete list and the changes since it hold; absent before the first one.
    pub nodes: Option<u64>,
    /// When the cluster was last heard.
    pub heard_at: Option<Timestamp>,
    /// The same on the monotonic clock, from which ages are counted.
    #[serde(skip)]
    pub heard: Option<Duration>,
    /// What is wrong with it now.
    pub trouble: Option<Trouble>,
}

/// What is wrong with a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
}

/// Everything that readiness hangs on.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// The node watch.
    pub source: Option<&'a SourceState>,
    /// Nodes whose actors have reported, and the revision of the last report.
    pub reported: (u64, u64),
    /// `inventory.max-age`.
    pub max_age: Duration,
    /// Whether the store takes writes.
    pub store_healthy: bool,
    /// Monotonic now.
    pub now: Duration,
}

impl Parts<'_> {
    /// What keeps the provider from being ready: part, code and message.
    #[must_use]
    pub fn troubles(&self) -> Vec<(&'static str, Trouble)> {
        let mut troubles = Vec::new();
        let mut add = |part, code: &str, message: String| {
            troubles.push((
                part,
                Trouble {
                    code: code.to_owned(),
                    message,
                },
            ));
        };
        if !self.store_healthy {
            add(
                "store",
                "unhealthy",
                "the store is being reopened after a failed write; see the log".to_owned(),
            );
        }
        let trouble = self.source.and_then(|source| source.trouble.as_ref());
        let summary = self.inventory();
        match (summary.nodes, summary.age_ms) {
            (None, _) | (_, None) => match trouble {
                Some(trouble) => add("cluster", &trouble.code, trouble.message.clone()),
                None => add(
                    "inventory",
                    "not_listed",
                    "the nodes have not been listed completely yet".to_owned(),
                ),
            },
            (Some(_), Some(age_ms)) if u128::from(age_ms) > self.max_age.as_millis() => {
                if let Some(trouble) = trouble {
                    add("cluster", &trouble.code, trouble.message.clone());
                }
                let message = format!(
                    "the cluster was last heard {} s ago, which is more than inventory.max-age",
                    age_ms / 1000
                );
                add("inventory", "stale", message);
            }
            (Some(_), Some(_)) => {}
        }
        troubles
    }

    /// The hardware in one line. Nodes are known when every one that was listed has been reported.
    #[must_use]
    pub fn inventory(&self) -> InventorySummary {
        let (reported, revision) = self.reported;
        let expected = self.source.and_then(|source| source.nodes);
        let age = self
            .source
            .and_then(|source| source.heard)
            .map(|heard| self.now.saturating_sub(heard));
        InventorySummary {
            revision,
            age_ms: age.and_then(|age| u64::try_from(age.as_millis()).ok()),
            nodes: expected
                .filter(|expected| reported >= *expected)
                .map(|_| reported),
        }
    }
}

/// Reasons with their beginnings: one that stood before keeps its time.
#[must_use]
pub fn reasons(
    troubles: Vec<(&'static str, Trouble)>,
    before: &[StatusReason],
    now: Timestamp,
) -> Vec<StatusReason> {
    let since = |part: &str, code: &str| {
        let same = before
            .iter()
            .find(|reason| reason.part == part && reason.code == code);
        same.map_or(now, |reason| reason.since)
    };
    let reason = |(part, trouble): (&str, Trouble)| StatusReason {
        since: since(part, &trouble.code),
        part: part.to_owned(),
        code: trouble.code,
        message: trouble.message,
    };
    troubles.into_iter().map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(nodes: Option<u64>, heard: Option<u64>) -> SourceState {
        let heard = heard.map(Duration::from_secs);
        SourceState {
            cluster_uid: None,
            nodes,
            heard_at: None,
            heard,
            trouble: None,
        }
    }

    fn codes(source: &SourceState, reported: u64, now: u64, store_healthy: bool) -> Vec<String> {
        let parts = Parts {
            source: Some(source),
            reported: (reported, 1),
            max_age: Duration::from_secs(120),
            store_healthy,
            now: Duration::from_secs(now),
        };
        parts
            .troubles()
            .into_iter()
            .map(|(part, trouble)| format!("{part}/{}", trouble.code))
            .collect()
    }

    #[test]
    fn it_is_ready_when_every_listed_node_is_reported_and_the_picture_is_fresh() {
        assert_eq!(codes(&source(Some(2), Some(10)), 2, 60, true), [""; 0]);
        assert_eq!(
            codes(&source(Some(0), Some(10)), 0, 60, true),
            [""; 0],
            "a fleet of none is known, too"
        );
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(codes(&source(None, None), 0, 0, true), ["inventory/not_listed"]);
        assert_eq!(
            codes(&source(Some(2), Some(1)), 1, 1, true),
            ["inventory/not_listed"]
        );
        assert_eq!(
            codes(&source(Some(2), Some(1)), 2, 122, true),
            ["inventory/stale"]
        );
        assert_eq!(codes(&source(Some(2), Some(1)), 2, 1, false), ["store/unhealthy"]);
        let mut away = source(None, None);
        away.trouble = Some(Trouble {
            code: "unreachable".into(),
            message: "refused".into(),
        });
        assert_eq!(codes(&away, 0, 1, true), ["cluster/unreachable"]);
        let mut lost = source(Some(2), Some(1));
        lost.trouble = away.trouble;
        assert_eq!(
            codes(&lost, 2, 60, true),
            [""; 0],
            "a picture that is fresh enough still answers"
        );
        assert_eq!(
            codes(&lost, 2, 200, true),
            ["cluster/unreachable", "inventory/stale"]
        );
    }

    #[test]
    fn a_reason_that_stood_before_keeps_its_time() {
        let then: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let trouble = |code: &str| {
            (
                "store",
                Trouble {
                    code: code.into(),
                    message: String::new(),
                },
            )
        };
        let first = reasons(vec![trouble("a")], &[], then);
        let second = reasons(vec![trouble("a"), trouble("b")], &first, now);
        assert_eq!(
            second.iter().map(|reason| reason.since).collect::<Vec<_>>(),
            [then, now]
        );
    }
}
