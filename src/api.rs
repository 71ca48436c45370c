//! What is exposed: gRPC, HTTP, and who may call what.
//!
//! A call comes in through `connection` (bounded, TLS), passes the `gate` (table, identity, rate, room),
//! reaches a handler in `grpc` or `http`, which parses, asks (`ask`), and renders with `wire` or serde. What
//! the program must offer for that is the `provider` trait.

pub mod access;
mod ask;
mod connection;
pub mod errors;
mod gate;
mod grpc;
mod http;
pub mod limits;
pub mod proto;
pub mod provider;
pub mod server;
pub mod tls;
pub mod wire;

#[cfg(test)]
mod tests;
