//! What Freehold knows and how it decides: pure types and functions, no clock, no I/O, no randomness.

pub mod access;
pub mod actor;
pub mod api_fault;
pub mod event;
pub mod human;
pub mod inventory;
pub mod node;
pub mod quantity;
pub mod secret;
pub mod status;
pub mod store_report;
