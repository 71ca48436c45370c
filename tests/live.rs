//! Tests against a real Kubernetes control plane, built and started by ourselves (see `tests/testbed`).
//! `make test-live`, or `cargo test --features live --test live`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that fails panics, and processes live in real time"
)]

#[path = "live/accounts.rs"]
mod accounts;
#[path = "live/certificates.rs"]
mod certificates;
#[path = "live/contract.rs"]
mod contract;
#[path = "contract/suite.rs"]
mod contract_suite;
#[path = "live/control_plane.rs"]
mod control_plane;
#[path = "live/definitions.rs"]
mod definitions;
#[path = "live/etcd.rs"]
mod etcd;
#[path = "live/first_life.rs"]
mod first_life;
#[path = "live/fixture.rs"]
mod fixture;
#[path = "live/leash.rs"]
mod leash;
#[path = "live/nodes.rs"]
mod nodes;
#[path = "live/options.rs"]
mod options;
#[path = "it/process.rs"]
mod process;
#[path = "live/programs.rs"]
mod programs;
#[path = "live/proxy.rs"]
mod proxy;
#[path = "live/reserved_port.rs"]
mod reserved_port;
#[path = "live/waiting.rs"]
mod waiting;
