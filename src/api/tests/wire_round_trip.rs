//! What goes over the wire comes back the same, so that the command line prints what HTTP prints.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::json;

use super::fakes::{sample_actor, sample_status};
use crate::{
    api::{
        proto::{private_v1, v1},
        wire,
    },
    domain::{
        access::{Role, TokenReport},
        actor::{ActorFault, ActorReport, ActorState, FaultClass, ProvokedFault},
        api_fault::{ApiFault, ApiFaultKind},
        event::{BusEvent, Change},
        inventory::{Amount, Inventory, NodeReason, NodeReport, Quantity},
        node::Taint,
        store_report::{StoreReport, StoreVerification},
    },
};

#[test]
fn a_status_comes_back_the_same() {
    for ready in [true, false] {
        let status = sample_status(ready);
        assert_eq!(
            wire::status::parse(wire::status::render(status.clone())),
            Ok(status)
        );
    }
    assert!(wire::status::parse(crate::api::proto::v1::Status::default()).is_err());
}

#[test]
fn an_inventory_comes_back_the_same_and_unknown_stays_unknown() {
    let known = Quantity {
        allocatable: Some(-1),
        allocated: Some(0),
        reserved: None,
    };
    let inventory = Inventory {
        revision: u64::MAX,
        observed_at: Some(Timestamp::UNIX_EPOCH),
        age_ms: Some(0),
        ready: true,
        nodes: vec![
            NodeReport::default(),
            NodeReport {
                name: "n1".into(),
                uid: "u".into(),
                sellable: true,
                reasons: vec![NodeReason {
                    code: "tainted".into(),
                    message: "m".into(),
                }],
                taints: vec![Taint {
                    key: "k".into(),
                    value: "v".into(),
                    effect: "NoSchedule".into(),
                }],
                cpu: Amount { quantity: known },
                labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
                ..NodeReport::default()
            },
        ],
    };
    let back = wire::inventory::parse(wire::inventory::render(inventory.clone()));
    assert_eq!(back, Ok(inventory));
}

#[test]
fn the_cards_of_a_node_come_back_the_same() {
    let cards = v1::Quantity {
        allocatable: Some(8),
        allocated: None,
        reserved: Some(0),
    };
    let node = v1::Node {
        name: "n1".into(),
        cpu: Some(v1::Quantity::default()),
        memory: Some(v1::Quantity::default()),
        ephemeral_storage: Some(cards),
        gpu: [
            ("nvidia.com/gpu".to_owned(), cards),
            ("amd.com/gpu".to_owned(), cards),
        ]
        .into(),
        gpu_total: Some(cards),
        ..v1::Node::default()
    };
    let inventory = v1::Inventory {
        nodes: vec![node],
        ..v1::Inventory::default()
    };
    let parsed = wire::inventory::parse(inventory.clone()).unwrap();
    assert_eq!(wire::inventory::render(parsed), inventory);
}

#[test]
fn every_kind_of_event_comes_back_the_same() {
    for change in [
        Change::Value(json!({"a": [1, null, "x"]})),
        Change::Value(json!(null)),
        Change::Deleted,
        Change::Missed(7),
        Change::Reset,
    ] {
        let event = BusEvent {
            topic: "t".into(),
            key: "k".into(),
            sequence: 3,
            at: Timestamp::UNIX_EPOCH,
            change,
        };
        assert_eq!(wire::event::parse(wire::event::render(event.clone())), Ok(event));
    }
}

#[test]
fn a_tree_of_actors_comes_back_the_same() {
    let states = [
        ActorState::Starting,
        ActorState::Running,
        ActorState::Backoff,
        ActorState::Stopping,
        ActorState::Failed,
    ];
    let classes = [
        FaultClass::Panic,
        FaultClass::Invariant,
        FaultClass::Effect,
        FaultClass::Heartbeat,
        FaultClass::Panic,
    ];
    let children = states
        .into_iter()
        .zip(classes)
        .map(|(state, class)| ActorReport {
            state,
            last_fault: Some(ActorFault {
                at: Timestamp::UNIX_EPOCH,
                class,
                message: "m".into(),
            }),
            ..sample_actor()
        })
        .collect();
    let tree = ActorReport {
        children,
        ..sample_actor()
    };
    assert_eq!(wire::actor::parse(wire::actor::render(tree.clone())), Ok(tree));
    assert_eq!(wire::actor::parse_provoked("freeze"), Ok(ProvokedFault::Freeze));
    assert!(wire::actor::parse_provoked("explode").is_err());
}

#[test]
fn every_kind_of_fault_comes_back_the_same() {
    for kind in ApiFaultKind::ALL {
        let fault = ApiFault {
            verb: "list".into(),
            resource: "nodes".into(),
            namespace: String::new(),
            kind,
            status: (kind == ApiFaultKind::Error).then_some(503),
            retry_after: Some(Duration::from_secs(2)),
            delay: Some(Duration::from_millis(250)),
            probability: 0.25,
            count: Some(0),
        };
        assert_eq!(wire::fault::parse(wire::fault::render(fault.clone())), Ok(fault));
    }
    let odd = |fault: private_v1::Fault| wire::fault::parse(fault).unwrap_err().field();
    assert_eq!(odd(private_v1::Fault::default()), "kind");
    let fault = private_v1::Fault {
        kind: "drop".into(),
        probability: f64::NAN,
        ..private_v1::Fault::default()
    };
    assert_eq!(odd(fault), "probability");
    let fault = private_v1::Fault {
        kind: "error".into(),
        status: 99_999,
        ..private_v1::Fault::default()
    };
    assert_eq!(odd(fault), "status");
}

#[test]
fn store_reports_and_tokens_come_back_the_same() {
    let report = StoreReport {
        path: "./data".into(),
        format: 3,
        bytes: 1,
        free_bytes: None,
        records: 2,
        records_by_kind: BTreeMap::from([("token".to_owned(), 2)]),
        healthy: true,
        cluster_uid: Some("u".into()),
        epoch: 4,
    };
    assert_eq!(wire::store::parse(wire::store::render(report.clone())), report);
    let found = StoreVerification {
        records: 9,
        problems: vec!["p".into()],
    };
    assert_eq!(
        wire::store::parse_verification(wire::store::render_verification(found.clone())),
        found
    );
    let token = TokenReport {
        id: "i".into(),
        name: "n".into(),
        role: Role::Node,
        subject: "s".into(),
        created_at: Timestamp::UNIX_EPOCH,
        expires_at: None,
    };
    assert_eq!(wire::token::parse(wire::token::render(token.clone())), Ok(token));
}
