//! What one caller, and all callers together, may take.

use std::time::Duration;

/// Every bound of the listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of one request.
    pub message_bytes: usize,
    /// Most bytes of a request's headers.
    pub header_bytes: u32,
    /// Most connections to each listener.
    pub connections: usize,
    /// Most streams on one connection.
    pub streams_per_connection: u32,
    /// Most calls at once, over all connections.
    pub calls: usize,
    /// Most open response streams, over all connections.
    pub open_streams: usize,
    /// Calls per second of one identity, or of one peer that has none; 0 means without limit.
    pub calls_per_second: u32,
    /// How many of them may come at once.
    pub burst: u32,
    /// How long a TLS handshake, and then the first request, may take.
    pub handshake: Duration,
    /// How long a call may take, a stream until it begins.
    pub call: Duration,
    /// How long a connection may do nothing.
    pub idle: Duration,
    /// How often a silent peer is asked whether it is there, and how long it may take to answer.
    pub keepalive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 1024 * 1024,
            header_bytes: 16 * 1024,
            connections: 1024,
            streams_per_connection: 128,
            calls: 512,
            open_streams: 1024,
            calls_per_second: 200,
            burst: 400,
            handshake: Duration::from_secs(10),
            call: Duration::from_secs(30),
            idle: Duration::from_secs(300),
            keepalive: Duration::from_secs(20),
        }
    }
}
