//! In, an assignment as the contract has it; out, one in the agent's own types.

use std::collections::{HashMap, HashSet};

use flowskew_agent_ebpf::{PROTOCOL_TCP, PROTOCOL_UDP, WatchedKey, source_class};
use flowskew_proto::v1;

use crate::{
    assignment::{Assignment, MAX_ENDPOINTS, MAX_FRONT_DOORS, MAX_PREFIXES},
    clients::keys::{ClientKey, MAX_KEYS},
};

/// An assignment from the contract. What is malformed or too much is left out and counted in `ignored`.
pub fn assignment(proto: v1::Assignment) -> Assignment {
    let mut ignored = 0;
    let mut endpoints = HashSet::new();
    for endpoint in &proto.endpoints {
        match watched_key(&endpoint.address, endpoint.port, endpoint.protocol()) {
            Some(key) if endpoints.len() < MAX_ENDPOINTS => {
                endpoints.insert(key);
            }
            _ => ignored += 1,
        }
    }
    let mut front_doors = HashSet::new();
    for door in &proto.front_doors {
        match watched_key(&door.address, door.port, door.protocol()) {
            Some(key) if front_doors.len() < MAX_FRONT_DOORS => {
                front_doors.insert(key);
            }
            _ => ignored += 1,
        }
    }
    let mut prefixes = HashMap::new();
    for prefix in &proto.prefixes {
        let class = match prefix.source_class() {
            v1::SourceClass::Pod => Some(source_class::POD),
            v1::SourceClass::Node => Some(source_class::NODE),
            v1::SourceClass::External | v1::SourceClass::Unspecified => None,
        };
        match (<[u8; 16]>::try_from(prefix.address.as_slice()), class) {
            (Ok(address), Some(class))
                if (1..=128).contains(&prefix.prefix_length) && prefixes.len() < MAX_PREFIXES =>
            {
                prefixes.insert((address, prefix.prefix_length), class);
            }
            _ => ignored += 1,
        }
    }
    let mut client_keys: Vec<ClientKey> = Vec::new();
    for key in &proto.client_keys {
        let is_new = client_keys.iter().all(|known| known.id != key.id);
        match <[u8; 16]>::try_from(key.key.as_slice()) {
            Ok(secret) if is_new && client_keys.len() < MAX_KEYS => client_keys.push(ClientKey {
                id: key.id,
                key: secret,
            }),
            _ => ignored += 1,
        }
    }
    Assignment {
        version: proto.version,
        endpoints,
        front_doors,
        prefixes,
        client_keys,
        report_interval_ms: (proto.report_interval_ms > 0).then_some(u64::from(proto.report_interval_ms)),
        ignored,
    }
}

fn watched_key(address: &[u8], port: u32, protocol: v1::Protocol) -> Option<WatchedKey> {
    let protocol = match protocol {
        v1::Protocol::Tcp => PROTOCOL_TCP,
        v1::Protocol::Udp => PROTOCOL_UDP,
        v1::Protocol::Unspecified => return None,
    };
    Some(WatchedKey {
        address: address.try_into().ok()?,
        port: u16::try_from(port).ok().filter(|&port| port > 0)?,
        protocol,
        padding: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];

    #[test]
    fn a_malformed_assignment_is_taken_as_far_as_it_goes() {
        let endpoint = |address: &[u8], port, protocol: v1::Protocol| v1::AssignedEndpoint {
            address: address.to_vec(),
            port,
            protocol: protocol.into(),
        };
        let prefix = |address: &[u8], prefix_length, class: v1::SourceClass| v1::ClassPrefix {
            address: address.to_vec(),
            prefix_length,
            source_class: class.into(),
        };
        let taken = assignment(v1::Assignment {
            version: 9,
            endpoints: vec![
                endpoint(&ADDRESS, 8883, v1::Protocol::Tcp),
                endpoint(&[1, 2, 3], 8883, v1::Protocol::Tcp),
                endpoint(&ADDRESS, 0, v1::Protocol::Tcp),
                endpoint(&ADDRESS, 70_000, v1::Protocol::Tcp),
                endpoint(&ADDRESS, 53, v1::Protocol::Udp),
            ],
            prefixes: vec![
                prefix(&ADDRESS, 128, v1::SourceClass::Pod),
                prefix(&ADDRESS, 0, v1::SourceClass::Pod),
                prefix(&ADDRESS, 129, v1::SourceClass::Node),
                prefix(&ADDRESS, 96, v1::SourceClass::External),
                prefix(&[], 96, v1::SourceClass::Node),
            ],
            front_doors: vec![
                v1::FrontDoor {
                    address: ADDRESS.to_vec(),
                    port: 443,
                    protocol: v1::Protocol::Tcp.into(),
                },
                v1::FrontDoor::default(),
            ],
            report_interval_ms: 0,
            client_keys: [(5, 16), (5, 16), (6, 15), (7, 16), (8, 16)]
                .map(|(id, length)| v1::ClientKey {
                    id,
                    key: vec![id as u8; length],
                })
                .to_vec(),
        });
        assert_eq!(taken.endpoints.len(), 2);
        assert_eq!(taken.prefixes, HashMap::from([((ADDRESS, 128), source_class::POD)]));
        assert_eq!(taken.front_doors.len(), 1);
        let keys = [5, 7].map(|id| ClientKey {
            id,
            key: [id as u8; 16],
        });
        assert_eq!(taken.client_keys, keys, "two, each of 16 bytes, each once");
        assert_eq!((taken.ignored, taken.report_interval_ms), (11, None));
    }
}
