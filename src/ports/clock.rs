//! Time, as a thing that can be controlled.

use std::{fmt, time::Duration};

use jiff::Timestamp;

/// Wall time for what people and records see, monotonic time for every wait and deadline.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time of day. It can jump.
    fn wall(&self) -> Timestamp;

    /// Time since this clock was made. It never goes back.
    fn monotonic(&self) -> Duration;
}

/// The machine's clock. Its monotonic time is tokio's, which tests can pause.
#[derive(Debug)]
pub struct SystemClock {
    origin: tokio::time::Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the machine's clock"
    )]
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// A clock whose wall time is a fixed start plus tokio's time: on a paused runtime a day passes in an
/// instant, and every run reads the same hours.
#[derive(Debug)]
pub struct SimulatedClock {
    origin: tokio::time::Instant,
    start: Timestamp,
}

impl SimulatedClock {
    /// A clock that reads `start` now.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self {
            origin: tokio::time::Instant::now(),
            start,
        }
    }
}

impl Clock for SimulatedClock {
    fn wall(&self) -> Timestamp {
        self.start
            .saturating_add(self.monotonic())
            .unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}
