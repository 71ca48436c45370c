//! The embedded world: a simulated Kubernetes cluster for newcomers, tests and demos.

pub mod api;
pub mod embedded;
pub mod faults;
pub mod fleet;
pub mod journal;
pub mod objects;
pub mod serve;
pub mod world;
