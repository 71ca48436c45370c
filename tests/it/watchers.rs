//! Readers of the bus from outside: a slow one never holds up a fast one, and both end with the same values.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;

use crate::process::{Serving, freehold, scaled, signal, wait_for};

/// A `freehold watch` whose last values are kept.
struct Reader {
    process: Child,
    last: Arc<Mutex<BTreeMap<String, Value>>>,
    lines: Arc<Mutex<u64>>,
}

impl Reader {
    fn start(serving: &Serving) -> Self {
        let server = format!("http://{}", serving.grpc);
        let mut process = freehold(
            Path::new("/"),
            &[
                "--server",
                &server,
                "watch",
                "actors",
                "inventory.nodes",
                "-o",
                "json",
            ],
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
        let (last, lines) = (Arc::new(Mutex::new(BTreeMap::new())), Arc::new(Mutex::new(0)));
        let (into, count) = (Arc::clone(&last), Arc::clone(&lines));
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap();
                if event["topic"] == "inventory.nodes" {
                    into.lock()
                        .unwrap()
                        .insert(event["key"].as_str().unwrap().to_owned(), event["value"].clone());
                }
                *count.lock().unwrap() += 1;
            }
        });
        Self { process, last, lines }
    }

    fn knows(&self, nodes: &BTreeMap<String, Value>) -> bool {
        *self.last.lock().unwrap() == *nodes
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_reader_that_is_stopped_holds_nobody_up_and_catches_up_in_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &["--set", "debug.enabled=true"]);
    let (slow, fast) = (Reader::start(&serving), Reader::start(&serving));
    let present = || -> BTreeMap<String, Value> {
        let inventory = serving.document(&["inventory"]);
        let nodes = inventory["nodes"].as_array().unwrap();
        nodes
            .iter()
            .map(|node| (node["name"].as_str().unwrap().to_owned(), node.clone()))
            .collect()
    };
    wait_for("both know the fleet", || {
        slow.knows(&present()) && fast.knows(&present())
    });
    signal(slow.process.id(), "STOP");
    // Restarts of node actors are what changes on the bus here: each gives a line to the fast reader.
    let before = *fast.lines.lock().unwrap();
    for round in 0..scaled(4, 30) {
        for node in 0..12 {
            let path = format!("/debug/actors/root/node-pool/node-{node:04}/fault");
            if round < 4 {
                serving.http("POST", &path, r#"{"kind":"panic"}"#);
            }
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    wait_for("the fast one goes on", || {
        *fast.lines.lock().unwrap() >= before + 48
    });
    signal(slow.process.id(), "CONT");
    wait_for("both end with equal last values", || {
        slow.knows(&present()) && fast.knows(&present())
    });
    assert_eq!(serving.terminate(), 0);
}
