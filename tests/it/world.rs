//! One current-thread runtime on a paused clock, in which a day takes an instant.

use std::{future::Future, sync::Arc, time::Duration};

use freehold::ports::clock::{Clock, SimulatedClock};

/// Runs a test inside an actix system whose clock stands still unless everything waits.
pub fn paused<F: Future<Output = ()>>(test: F) {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime")
    };
    actix_rt::System::with_tokio_rt(runtime).block_on(test);
}

/// A clock that starts on the same day in every run.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(SimulatedClock::starting_at(
        "2026-01-01T00:00:00Z".parse().expect("a timestamp"),
    ))
}

/// Waits until something holds; fails when it does not within a simulated quarter of an hour.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..90_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}
