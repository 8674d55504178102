//! An address at which nobody answers, for as long as it is held.

use std::net::{SocketAddr, TcpListener, TcpStream};

/// A port of the loopback interface that refuses every connection.
///
/// A port that was listened at and is free again may be the next one that another test, or another program, is given.
/// This one is taken by a connection's own end, at which nothing listens, so nobody else gets it.
#[derive(Debug)]
pub struct NobodyThere {
    address: SocketAddr,
    _ends: (TcpListener, TcpStream),
}

impl NobodyThere {
    /// Takes one.
    ///
    /// # Panics
    /// If no port of the loopback interface can be had.
    #[allow(clippy::new_without_default)] // it takes something of the system's
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback interface");
        let there = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(there).expect("a connection of the loopback interface");
        let address = stream.local_addr().expect("an address");
        Self { address, _ends: (listener, stream) }
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_refuses_and_cannot_be_taken() {
        let nobody = NobodyThere::new();
        for _ in 0..3 {
            let refused = TcpStream::connect(nobody.address()).expect_err("nobody is there");
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        assert!(TcpListener::bind(nobody.address()).is_err());
    }
}
