//! `kill -9` at any moment: it starts again, and says what it found.

use std::time::Duration;

use crate::process::{Serving, freehold, scaled};

#[test]
fn kill_nine_at_any_moment_and_it_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    let kills = scaled(20, 200);
    let mut chance = 0x2545_F491_4F6C_DD1D_u64;
    for round in 0..kills {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        if round % 2 == 0 {
            // Somewhere in the start.
            let mut process = freehold(directory.path(), &["--set", "api.grpc.listen=127.0.0.1:0"])
                .args([
                    "--set",
                    "api.http.listen=127.0.0.1:0",
                    "--set",
                    "embedded.listen=",
                ])
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(chance % 250));
            process.kill().unwrap();
            process.wait().unwrap();
        } else {
            let mut serving = Serving::start(directory.path(), &[]);
            let status = serving.document(&["status"]);
            assert_eq!(status["ready"], true, "{status}");
            assert_eq!(status["recovered"]["dropped_records"], 0, "{status}");
            serving.client(&[
                "token",
                "create",
                "--name",
                &format!("t{round}"),
                "--role",
                "operator",
            ]);
            serving.process.kill().unwrap();
            serving.process.wait().unwrap();
        }
    }
    let serving = Serving::start(directory.path(), &[]);
    let status = serving.document(&["status"]);
    assert_eq!(status["recovered"]["unclean"], true, "{status}");
    let tokens = serving.document(&["token", "list"]);
    assert_eq!(
        tokens.as_array().map(Vec::len),
        Some(kills / 2),
        "every token that was given out: {tokens}"
    );
    assert_eq!(serving.terminate(), 0);
    let serving = Serving::start(directory.path(), &[]);
    assert_eq!(
        serving.document(&["status"])["recovered"]["unclean"],
        false,
        "after a clean stop"
    );
    assert_eq!(serving.terminate(), 0);
}
