//! The network side of a client: in, a source address and a target; out, a flow that has got the name of its pod.

use std::{
    collections::HashMap,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt as _,
    net::{TcpSocket, TcpStream, UdpSocket},
    time::timeout,
};

use super::Target;
use crate::net::Protocol;

/// A pod answers at once; this is for a machine that is very busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_NAME: usize = 64;
/// Ports that are in use are skipped, but not for ever.
const MOST_TRIES: u32 = 256;

/// The first port that clients use, and how many.
pub const FIRST_PORT: u16 = 1024;
/// Ports of one source address.
pub const PORTS: u16 = u16::MAX - FIRST_PORT + 1;

/// Ports of each source address in turn: none comes again before all others have come.
#[derive(Debug)]
pub struct Ports {
    /// Where each address begins, from 0.
    start: u16,
    /// How many an address has used.
    used: Mutex<HashMap<IpAddr, u32>>,
}

impl Ports {
    /// Each address begins with port number `start` of [`PORTS`].
    pub fn new(start: u16) -> Self {
        Self {
            start,
            used: Mutex::default(),
        }
    }

    fn next(&self, source: IpAddr) -> SocketAddr {
        let mut all = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let used = all.entry(source).or_default();
        let number = (u32::from(self.start) + *used) % u32::from(PORTS);
        *used = (*used + 1) % u32::from(PORTS);
        // Below PORTS, so the sum is a port.
        SocketAddr::new(source, FIRST_PORT.saturating_add(number as u16))
    }
}

/// A flow.
#[derive(Debug)]
pub enum Connection {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// Opens a flow: returns it with the pod's name, or a short and countable word for why there is none.
///
/// `limit` is how long the handshake may take; over UDP, how long the answer may.
pub async fn open(
    ports: &Ports,
    source: IpAddr,
    target: Target,
    limit: Duration,
) -> Result<(Connection, String), String> {
    match target.protocol {
        Protocol::Tcp => {
            let connected = timeout(limit, connect(ports, source, target.address)).await;
            let mut stream = connected
                .map_err(|_| word("timeout"))?
                .map_err(|error| reason(&error))?;
            match timeout(ANSWER_TIMEOUT, name(&mut stream)).await {
                Ok(Ok(pod)) => Ok((Connection::Tcp(stream), pod)),
                _ => Err(word("no-name")),
            }
        }
        Protocol::Udp => {
            let socket = bind_udp(ports, source, target.address)
                .await
                .map_err(|error| reason(&error))?;
            let asked = timeout(limit, async {
                ask(&socket).await?;
                answer(&socket).await
            });
            match asked.await {
                Ok(Ok(pod)) => Ok((Connection::Udp(socket), pod)),
                Ok(Err(error)) => Err(reason(&error)),
                Err(_) => Err(word("timeout")),
            }
        }
    }
}

async fn connect(ports: &Ports, source: IpAddr, target: SocketAddr) -> io::Result<TcpStream> {
    let mut tries = 0;
    loop {
        let socket = if source.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        // A port whose flow to another target is open, or whose last flow has just closed, can be used.
        socket.set_reuseaddr(true)?;
        let connected = match socket.bind(ports.next(source)) {
            Ok(()) => socket.connect(target).await,
            Err(error) => Err(error),
        };
        tries += 1;
        match connected {
            Err(error) if in_use(&error) && tries < MOST_TRIES => {}
            result => return result,
        }
    }
}

async fn bind_udp(ports: &Ports, source: IpAddr, target: SocketAddr) -> io::Result<UdpSocket> {
    let mut tries = 0;
    let socket = loop {
        tries += 1;
        match UdpSocket::bind(ports.next(source)).await {
            Err(error) if in_use(&error) && tries < MOST_TRIES => {}
            result => break result?,
        }
    };
    socket.connect(target).await?;
    Ok(socket)
}

fn in_use(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable)
}

/// Sends one datagram.
///
/// # Errors
/// The system has heard that nobody is there.
pub async fn ask(socket: &UdpSocket) -> io::Result<()> {
    socket.send(b"?").await.map(drop)
}

/// The pod's name in the next datagram.
///
/// # Errors
/// The system has heard that nobody is there, or the datagram is no name.
pub async fn answer(socket: &UdpSocket) -> io::Result<String> {
    let mut bytes = [0; LONGEST_NAME];
    let length = socket.recv(&mut bytes).await?;
    match bytes[..length].split_last() {
        Some((b'\n', name)) => String::from_utf8(name.to_vec()).map_err(|_| ErrorKind::InvalidData.into()),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// Reads the pod's name and the newline after it.
async fn name(stream: &mut TcpStream) -> io::Result<String> {
    let mut bytes = [0; LONGEST_NAME];
    let mut length = 0;
    while length == 0 || bytes[length - 1] != b'\n' {
        match stream.read(&mut bytes[length..]).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
    }
    String::from_utf8(bytes[..length - 1].to_vec()).map_err(|_| ErrorKind::InvalidData.into())
}

fn word(word: &str) -> String {
    word.to_owned()
}

/// Short and countable word for why a flow did not open.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => word("refused"),
        ErrorKind::ConnectionReset => word("reset"),
        ErrorKind::TimedOut => word("timeout"),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => word("unreachable"),
        _ if in_use(error) => word("no-port"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_comes_again_before_all_others() {
        let ports = Ports::new(60_000);
        let [one, other] = ["198.18.0.1", "198.18.0.2"].map(|address| address.parse::<IpAddr>().unwrap());
        let seen: BTreeSet<u16> = (0..PORTS).map(|_| ports.next(one).port()).collect();
        assert_eq!(seen.len(), usize::from(PORTS));
        assert_eq!((seen.first(), seen.last()), (Some(&1024), Some(&65535)));
        assert_eq!(
            ports.next(one),
            ports
                .next(other)
                .ip()
                .is_ipv4()
                .then(|| SocketAddr::new(one, 61_024))
                .unwrap()
        );
    }
}
