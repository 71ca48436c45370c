//! Ports that cannot be lost to others: we bind each with SO_REUSEPORT and never listen; the server shares it.

use std::{io, net::SocketAddr};

use tokio::net::TcpSocket;

/// A loopback port that nobody else can get while this lives.
#[derive(Debug)]
pub struct ReservedPort {
    pub address: SocketAddr,
    _bound: TcpSocket,
}

impl ReservedPort {
    pub fn new() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseport(true)?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        Ok(Self {
            address: socket.local_addr()?,
            _bound: socket,
        })
    }
}
