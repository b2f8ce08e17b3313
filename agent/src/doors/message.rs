//! The words of connection tracking: in, one direction of a flow; out, the request that asks for its entry. In, the
//! kernel's answer; out, the front door.

use std::{
    io,
    net::{IpAddr, Ipv6Addr},
};

use flowskew_agent_ebpf::{Address, Flow};
use netlink_bindings::{
    builtin::Nlmsghdr,
    conntrack::{IterableTupleAttrs, Nfgenmsg, OpGetDo},
    consts::NLM_F_REQUEST,
    traits::NetlinkRequest,
};

/// Subsystem 1 of netfilter, message 0: an entry of connection tracking.
const ENTRY: u16 = 1 << 8;
/// Subsystem 1 of netfilter, message 1: asks for one.
const GET: u16 = 1 << 8 | 1;
/// An error, or success where nothing else is answered.
const ERROR: u16 = 2;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// An address and port that a client dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrontDoor {
    /// The address.
    pub address: Address,
    /// The port, host order.
    pub port: u16,
}

/// Where packets of one direction come from and go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    protocol: u8,
}

impl Tuple {
    /// The direction in which a flow's endpoint answers its client, as the endpoint sees both.
    pub fn answering(flow: &Flow) -> Self {
        Self {
            source: (ip(flow.key.address), flow.key.port),
            destination: (ip(flow.client), flow.client_port),
            protocol: flow.key.protocol,
        }
    }

    fn parse(attributes: &IterableTupleAttrs<'_>) -> Option<Self> {
        let ip = attributes.get_tuple_ip().ok()?;
        let protocol = attributes.get_tuple_proto().ok()?;
        let v4 = || Some((ip.get_ip_v4_src().ok()?.into(), ip.get_ip_v4_dst().ok()?.into()));
        let v6 = || Some((ip.get_ip_v6_src().ok()?.into(), ip.get_ip_v6_dst().ok()?.into()));
        let (source, destination) = v4().or_else(v6)?;
        Some(Self {
            source: (source, protocol.get_proto_src_port().ok()?),
            destination: (destination, protocol.get_proto_dst_port().ok()?),
            protocol: protocol.get_proto_num().ok()?,
        })
    }
}

fn ip(address: Address) -> IpAddr {
    Ipv6Addr::from(address).to_canonical()
}

fn bytes(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The request for the entry with this answering direction; `None` if its addresses are of two families, which no
/// entry's are.
pub fn request(answering: &Tuple, sequence: u32) -> Option<Vec<u8>> {
    let mut message = vec![0; Nlmsghdr::len()];
    let header = |family| Nfgenmsg {
        nfgen_family: family,
        ..Nfgenmsg::new()
    };
    let tuple = match (answering.source.0, answering.destination.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => OpGetDo::encode_request(&mut message, &header(AF_INET))
            .nested_tuple_reply()
            .nested_tuple_ip()
            .push_ip_v4_src(source)
            .push_ip_v4_dst(destination)
            .end_nested(),
        (IpAddr::V6(source), IpAddr::V6(destination)) => OpGetDo::encode_request(&mut message, &header(AF_INET6))
            .nested_tuple_reply()
            .nested_tuple_ip()
            .push_ip_v6_src(source)
            .push_ip_v6_dst(destination)
            .end_nested(),
        _ => return None,
    };
    tuple
        .nested_tuple_proto()
        .push_proto_num(answering.protocol)
        .push_proto_src_port(answering.source.1)
        .push_proto_dst_port(answering.destination.1)
        .end_nested()
        .end_nested();
    let header = Nlmsghdr {
        len: u32::try_from(message.len()).ok()?,
        r#type: GET,
        flags: NLM_F_REQUEST as u16,
        seq: sequence,
        pid: 0,
    };
    message.get_mut(..Nlmsghdr::len())?.copy_from_slice(header.as_slice());
    Some(message)
}

/// What the kernel knows of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It came through this door.
    Door(FrontDoor),
    /// Nothing, or only the other way round: it was not seen to begin.
    Unknown,
}

/// Reads the answer to [`request`]; `None` if it answers another. An error is what the kernel refused the request with,
/// or that the answer was not understood.
pub fn answer(message: &[u8], answering: &Tuple, sequence: u32) -> io::Result<Option<Answer>> {
    let malformed = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "connection tracking answered something unknown",
        )
    };
    let (header, rest) = message
        .split_at_checked(Nlmsghdr::len())
        .and_then(|(header, rest)| Some((Nlmsghdr::new_from_slice(header)?, rest)))
        .ok_or_else(malformed)?;
    if header.seq != sequence {
        return Ok(None);
    }
    let length = (header.len as usize).saturating_sub(Nlmsghdr::len());
    let body = rest.get(..length).ok_or_else(malformed)?;
    match header.r#type {
        ENTRY => {
            let (_, entry) = OpGetDo::decode_reply(body);
            let tuple = |attributes: Option<IterableTupleAttrs<'_>>| attributes.as_ref().and_then(Tuple::parse);
            let dialled = tuple(entry.get_tuple_orig().ok()).ok_or_else(malformed)?;
            let reply = tuple(entry.get_tuple_reply().ok()).ok_or_else(malformed)?;
            if reply != *answering {
                return Ok(Some(Answer::Unknown));
            }
            Ok(Some(Answer::Door(FrontDoor {
                address: bytes(dialled.destination.0),
                port: dialled.destination.1,
            })))
        }
        ERROR => {
            let code = body
                .first_chunk()
                .copied()
                .map(i32::from_ne_bytes)
                .ok_or_else(malformed)?;
            let error = io::Error::from_raw_os_error(code.saturating_neg());
            match error.kind() {
                io::ErrorKind::NotFound => Ok(Some(Answer::Unknown)),
                _ => Err(error),
            }
        }
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use netlink_bindings::conntrack::PushTupleAttrs;

    use super::*;

    const SEQUENCE: u32 = 41;

    fn tuple(source: &str, destination: &str) -> Tuple {
        let parse = |text: &str| text.parse::<std::net::SocketAddr>().expect("address and port");
        let (source, destination) = (parse(source), parse(destination));
        Tuple {
            source: (source.ip(), source.port()),
            destination: (destination.ip(), destination.port()),
            protocol: 6,
        }
    }

    fn push<P: netlink_bindings::traits::Pusher>(into: PushTupleAttrs<P>, tuple: &Tuple) -> P {
        let ip = into.nested_tuple_ip();
        let ip = match (tuple.source.0, tuple.destination.0) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => ip.push_ip_v4_src(source).push_ip_v4_dst(destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => ip.push_ip_v6_src(source).push_ip_v6_dst(destination),
            _ => panic!("two families"),
        };
        ip.end_nested()
            .nested_tuple_proto()
            .push_proto_num(tuple.protocol)
            .push_proto_src_port(tuple.source.1)
            .push_proto_dst_port(tuple.destination.1)
            .end_nested()
            .end_nested()
    }

    /// A message of the kernel with this body.
    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let header = Nlmsghdr {
            len: (Nlmsghdr::len() + body.len()) as u32,
            r#type: kind,
            flags: 0,
            seq: SEQUENCE,
            pid: 77,
        };
        [header.as_slice(), body].concat()
    }

    fn entry(dialled: &Tuple, reply: &Tuple) -> Vec<u8> {
        let mut body = Vec::new();
        let attributes = OpGetDo::encode_request(&mut body, &Nfgenmsg::new());
        let attributes = push(attributes.nested_tuple_orig(), dialled);
        push(attributes.nested_tuple_reply(), reply)
            .push_status(0x1ae)
            .push_mark(0);
        message(ENTRY, &body)
    }

    #[test]
    fn the_request_is_what_the_kernel_reads() {
        let message = request(&tuple("10.1.0.5:8080", "192.0.2.7:40000"), 0x0102_0304).expect("one family");
        let mut expected = vec![];
        expected.extend(72_u32.to_ne_bytes()); // length
        expected.extend(0x101_u16.to_ne_bytes());
        expected.extend(1_u16.to_ne_bytes()); // a request
        expected.extend(0x0102_0304_u32.to_ne_bytes());
        expected.extend([0; 4]);
        expected.extend([2, 0, 0, 0]); // IPv4
        let attribute = |kind: u16, length: u16| [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        const NESTED: u16 = 0x8000;
        expected.extend(attribute(NESTED | 2, 52)); // answering direction
        expected.extend(attribute(NESTED | 1, 20)); // its addresses
        expected.extend(attribute(1, 8));
        expected.extend([10, 1, 0, 5]);
        expected.extend(attribute(2, 8));
        expected.extend([192, 0, 2, 7]);
        expected.extend(attribute(NESTED | 2, 28)); // its protocol and ports
        expected.extend(attribute(1, 5));
        expected.extend([6, 0, 0, 0]);
        expected.extend(attribute(2, 6));
        expected.extend([0x1f, 0x90, 0, 0]);
        expected.extend(attribute(3, 6));
        expected.extend([0x9c, 0x40, 0, 0]);
        assert_eq!(message, expected);
    }

    #[test]
    fn addresses_of_two_families_are_not_asked_for() {
        assert_eq!(request(&tuple("10.1.0.5:8080", "[2001:db8::7]:40000"), 1), None);
    }

    #[test]
    fn the_door_is_what_was_dialled() {
        for (reply, dialled, address, port) in [
            (
                tuple("10.1.0.5:8080", "192.0.2.7:40000"),
                tuple("192.0.2.7:40000", "203.0.113.1:443"),
                "203.0.113.1",
                443,
            ),
            (
                tuple("[fd00::5]:8080", "[2001:db8::7]:40000"),
                tuple("[2001:db8::7]:40000", "[2001:db8::1]:443"),
                "2001:db8::1",
                443,
            ),
            // Masqueraded: the endpoint answers the node, and the client has another address and port.
            (
                tuple("10.1.0.5:8080", "10.1.0.1:1025"),
                tuple("192.0.2.7:40000", "198.51.100.3:30080"),
                "198.51.100.3",
                30_080,
            ),
        ] {
            let door = FrontDoor {
                address: bytes(address.parse().expect("an address")),
                port,
            };
            let answer = answer(&entry(&dialled, &reply), &reply, SEQUENCE).expect("understood");
            assert_eq!(answer, Some(Answer::Door(door)));
        }
    }

    #[test]
    fn an_entry_that_began_at_the_endpoint_tells_no_door() {
        let (there, back) = (
            tuple("10.1.0.5:8080", "192.0.2.7:40000"),
            tuple("192.0.2.7:40000", "10.1.0.5:8080"),
        );
        // The kernel finds it by either direction.
        assert_eq!(
            answer(&entry(&there, &back), &there, SEQUENCE).expect("understood"),
            Some(Answer::Unknown)
        );
    }

    #[test]
    fn errors_are_told_apart() {
        let asked = tuple("10.1.0.5:8080", "192.0.2.7:40000");
        let error = |code: i32| answer(&message(ERROR, &code.to_ne_bytes()), &asked, SEQUENCE);
        assert_eq!(error(-2).expect("understood"), Some(Answer::Unknown));
        assert_eq!(error(-1).expect_err("refused").raw_os_error(), Some(1));
        assert!(error(i32::MIN).is_err());
        assert_eq!(
            answer(&entry(&asked, &asked), &asked, SEQUENCE + 1).expect("of another"),
            None
        );
    }

    #[test]
    fn what_is_cut_off_or_wrong_is_not_understood() {
        let (reply, dialled) = (
            tuple("10.1.0.5:8080", "192.0.2.7:40000"),
            tuple("192.0.2.7:40000", "203.0.113.1:443"),
        );
        let whole = entry(&dialled, &reply);
        for length in 0..whole.len() {
            assert!(answer(&whole[..length], &reply, SEQUENCE).is_err(), "{length} bytes");
        }
        for place in 0..whole.len() {
            for value in [0, 1, 4, 0x7f, 0xff] {
                let mut wrong = whole.clone();
                wrong[place] = value;
                // Whatever it is taken for, it must be read within its bounds.
                let _ = answer(&wrong, &reply, SEQUENCE);
            }
        }
    }
}
