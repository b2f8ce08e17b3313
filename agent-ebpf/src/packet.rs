//! Reads the headers of a packet: in, something to read bytes from; out, who talks to whom. IPv6 extension headers are not
//! followed: such packets are not read.

use flowskew_agent_ebpf::{Address, PROTOCOL_TCP, PROTOCOL_UDP, WatchedKey};

use crate::sock::mapped;

/// The ends of a packet, and what kind it is.
pub struct Packet {
    pub source: Address,
    pub source_port: u16,
    pub destination: Address,
    pub destination_port: u16,
    /// IP protocol number: TCP or UDP.
    pub protocol: u8,
    /// Where the transport header begins.
    pub transport: u32,
}

impl Packet {
    /// Where it goes.
    #[inline(always)]
    pub fn dialled(&self) -> WatchedKey {
        WatchedKey {
            address: self.destination,
            port: self.destination_port,
            protocol: self.protocol,
            padding: 0,
        }
    }
}

/// Where a packet's bytes come from, counted from its network header.
pub trait Bytes {
    /// Reads at an offset; `None` beyond the end.
    fn read<T: Copy>(&self, offset: u32) -> Option<T>;
}

/// Reads a packet of TCP or UDP.
#[inline(always)]
pub fn read(bytes: &impl Bytes) -> Option<Packet> {
    let first: u8 = bytes.read(0)?;
    let (protocol, transport, source, destination) = match first >> 4 {
        4 => {
            let fragment: u16 = bytes.read(6)?;
            // Only the first fragment has a transport header.
            if u16::from_be(fragment) & 0x1fff != 0 {
                return None;
            }
            let length = u32::from(first & 0xf) * 4;
            (bytes.read(9)?, length, mapped(bytes.read(12)?), mapped(bytes.read(16)?))
        }
        6 => (bytes.read(6)?, 40, bytes.read(8)?, bytes.read(24)?),
        _ => return None,
    };
    if protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP {
        return None;
    }
    let ports: [u16; 2] = bytes.read(transport)?;
    Some(Packet {
        source,
        source_port: u16::from_be(ports[0]),
        destination,
        destination_port: u16::from_be(ports[1]),
        protocol,
        transport,
    })
}
