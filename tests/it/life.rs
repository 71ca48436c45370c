//! The program as people meet it: banner, documents, faults, size.

use std::{process::Command, time::Duration};

use serde_json::Value;

use crate::process::{Serving, scaled, wait_for};

#[test]
fn the_banner_names_the_addresses_and_commands_that_work_and_says_that_it_is_simulated() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &[]);
    assert!(serving.banner.contains("SIMULATED"), "{}", serving.banner);
    let commands: Vec<Vec<String>> = serving
        .banner
        .lines()
        .filter(|line| line.contains("--server"))
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect();
    assert_eq!(commands.len(), 3, "{}", serving.banner);
    for command in &commands[..2] {
        let output = Command::new(&command[0]).args(&command[1..]).output().unwrap();
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!output.stdout.is_empty());
    }
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn the_command_line_and_http_give_the_same_documents() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &[]);
    let without_ages = |mut document: Value| {
        document["age_ms"] = Value::Null;
        document["inventory"]["age_ms"] = Value::Null;
        document["store"]["bytes"] = Value::Null;
        document
    };
    for (command, path) in [("status", "/api/v1/status"), ("inventory", "/api/v1/inventory")] {
        let (status, body) = serving.http("GET", path, "");
        assert_eq!(status, 200, "{path}");
        let over_http: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            without_ages(serving.document(&[command])),
            without_ages(over_http),
            "{command}"
        );
    }
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn a_panic_and_a_freeze_in_a_node_actor_pass_and_the_others_never_notice() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &["--set", "debug.enabled=true"]);
    let actor = |name: &str| serving.document(&["actors", &format!("root/node-pool/{name}")]);
    for (name, kind, class) in [
        ("node-0003", "panic", "panic"),
        ("node-0004", "freeze", "heartbeat"),
    ] {
        let (status, body) = serving.http(
            "POST",
            &format!("/debug/actors/root/node-pool/{name}/fault"),
            &format!(r#"{{"kind":"{kind}"}}"#),
        );
        assert_eq!(status, 202, "{body}");
        wait_for("restart", || {
            actor(name)["restarts"] == 1 && actor(name)["state"] == "running"
        });
        assert_eq!(actor(name)["last_fault"]["class"], class);
    }
    assert_eq!(actor("node-0005")["restarts"], 0);
    let (_, metrics) = serving.http("GET", "/metrics", "");
    assert!(
        metrics.contains(r#"freehold_actor_restarts_total{kind="node",cause="heartbeat"} 1"#),
        "{metrics}"
    );
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn without_debug_nothing_can_be_provoked() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &[]);
    let (status, _) = serving.http(
        "POST",
        "/debug/actors/root/node-pool/node-0003/fault",
        r#"{"kind":"panic"}"#,
    );
    assert_eq!(status, 404);
    assert_eq!(serving.http("GET", "/debug/faults", "").0, 404);
    assert_eq!(serving.http("GET", "/debug/actors", "").0, 200);
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn a_thousand_nodes_are_ready_and_memory_stays() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = format!("embedded.nodes={}", scaled(1000, 5000));
    let serving = Serving::start(directory.path(), &["--set", &nodes]);
    wait_for("ready", || serving.document(&["status"])["ready"] == true);
    let resident = || {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", serving.process.id())).unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let first = resident();
    for _ in 0..scaled(5, 60) {
        std::thread::sleep(Duration::from_secs(1));
    }
    let second = resident();
    assert!(second <= first + first / 20, "{first} → {second} pages");
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn a_fault_that_makes_no_sense_is_refused_with_what_would() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &["--set", "debug.enabled=true"]);
    let (status, body) = serving.http("POST", "/debug/faults", r#"{"kind": "latency"}"#);
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("needs a delay"), "{body}");
    let (status, body) = serving.http(
        "POST",
        "/debug/faults",
        r#"{"kind": "latency", "delay": "5ms", "count": 3}"#,
    );
    assert!((200..300).contains(&status), "{body}");
    let (_, body) = serving.http("GET", "/debug/faults", "");
    assert!(body.contains("latency"), "{body}");
    assert!((200..300).contains(&serving.http("DELETE", "/debug/faults", "").0));
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn a_quiet_cluster_stays_fresh_also_when_the_picture_may_not_be_old() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &["--set", "inventory.max-age=4s"]);
    for _ in 0..60 {
        let status = serving.document(&["status"]);
        assert_eq!(status["ready"], true, "{status}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn a_quarantined_node_is_not_sold_and_is_tried_again_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &["--set", "debug.enabled=true"]);
    let path = "root/node-pool/node-0002";
    let actor = || serving.document(&["actors", path]);
    while actor()["state"] != "failed" {
        serving.http(
            "POST",
            &format!("/debug/actors/{path}/fault"),
            r#"{"kind":"panic"}"#,
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let node = || serving.document(&["inventory"])["nodes"][2].clone();
    wait_for("not sold", || node()["reasons"][0]["code"] == "quarantined");
    assert!(serving.client(&["debug", "retry", path]).status.success());
    wait_for("sold again", || {
        actor()["state"] == "running" && node()["sellable"] == true
    });
    assert_eq!(
        serving.client(&["debug", "retry", "root/nobody"]).status.code(),
        Some(4)
    );
    assert_eq!(serving.terminate(), 0);
}
