//! One trait for each thing outside the process, so that the same core runs against the real one,
//! the embedded one, and one with faults.

pub mod clock;
pub mod cluster;
pub mod store;
pub mod telemetry;
