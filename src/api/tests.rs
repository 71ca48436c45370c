//! The API from outside: real sockets on loopback (or an in-memory duplex on a paused clock), a
//! provider that is a fake.

mod fakes;
mod http_routes;
mod lifecycle;
mod limits;
mod roles;
mod tamper;
mod tls;
mod tokens;
mod wire_round_trip;
