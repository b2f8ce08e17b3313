//! Between the contract and the agent's own types: the only file of the agent that knows the wire format of each.

use std::collections::{HashMap, HashSet};

use flowskew_agent_ebpf::{ClassCounts, LedgerKey, LedgerValue, PROTOCOL_TCP, WatchedKey, close_cause, source_class};
use flowskew_proto::v1;

use crate::{
    assignment::{Assignment, MAX_ENDPOINTS, MAX_PREFIXES},
    kernel::{KernelLosses, Origin},
};

/// A ledger entry as the contract has it. Classes that have never counted are left out.
pub fn ledger_entry(key: &LedgerKey, value: &LedgerValue) -> v1::LedgerEntry {
    let mut classes = Vec::new();
    for (class, counts) in (0..).zip(&value.classes) {
        if counts == &ClassCounts::default() {
            continue;
        }
        classes.push(v1::ClassCounts {
            source_class: source_class_to_proto(class).into(),
            opened: counts.opened,
            // A flow that closes on one CPU while it opens on another can be seen as below zero for a moment.
            established: u64::try_from(counts.established).unwrap_or(0),
            seeded: counts.seeded,
            closed: (0..)
                .zip(counts.closed)
                .filter(|&(_, count)| count > 0)
                .map(|(cause, count)| v1::CauseCount {
                    cause: close_cause_to_proto(cause).into(),
                    count,
                })
                .collect(),
        });
    }
    v1::LedgerEntry {
        address: key.address.to_vec(),
        port: key.port.into(),
        protocol: protocol_to_proto(key.protocol).into(),
        cgroup_id: key.cgroup_id,
        classes,
        ..Default::default()
    }
}

/// Losses as the contract has them.
pub fn losses(kernel: KernelLosses, reports_dropped: u64) -> v1::Losses {
    v1::Losses {
        ring_full: kernel.ring_full,
        flows_full: kernel.flows_full,
        ledger_full: kernel.ledger_full,
        orphan_close: kernel.orphan_close,
        orphan_flow: kernel.orphan_flow,
        reports_dropped,
        ..Default::default()
    }
}

/// How the counters began, as the contract has it.
pub fn origin(origin: Origin) -> v1::Origin {
    match origin {
        Origin::Fresh => v1::Origin::Fresh,
        Origin::Adopted => v1::Origin::Adopted,
        Origin::Upgraded => v1::Origin::Upgraded,
        Origin::Migrated => v1::Origin::Migrated,
    }
}

/// An assignment from the contract. What is malformed or too much is left out and counted in `ignored`.
pub fn assignment(proto: v1::Assignment) -> Assignment {
    let mut ignored = 0;
    let mut endpoints = HashSet::new();
    // UDP has no programs yet: nothing would ever be told.
    for endpoint in proto
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.protocol() != v1::Protocol::Udp)
    {
        match watched_key(endpoint) {
            Some(key) if endpoints.len() < MAX_ENDPOINTS => {
                endpoints.insert(key);
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
    Assignment {
        version: proto.version,
        endpoints,
        prefixes,
        report_interval_ms: (proto.report_interval_ms > 0).then_some(u64::from(proto.report_interval_ms)),
        ignored,
    }
}

fn watched_key(endpoint: &v1::AssignedEndpoint) -> Option<WatchedKey> {
    let protocol = match endpoint.protocol() {
        v1::Protocol::Tcp => PROTOCOL_TCP,
        v1::Protocol::Udp | v1::Protocol::Unspecified => return None,
    };
    Some(WatchedKey {
        address: endpoint.address.as_slice().try_into().ok()?,
        port: u16::try_from(endpoint.port).ok().filter(|&port| port > 0)?,
        protocol,
        padding: 0,
    })
}

fn source_class_to_proto(class: u8) -> v1::SourceClass {
    match class {
        source_class::EXTERNAL => v1::SourceClass::External,
        source_class::POD => v1::SourceClass::Pod,
        source_class::NODE => v1::SourceClass::Node,
        _ => v1::SourceClass::Unspecified,
    }
}

fn close_cause_to_proto(cause: u8) -> v1::CloseCause {
    match cause {
        close_cause::CLIENT_FIN => v1::CloseCause::ClientFin,
        close_cause::SERVER_FIN => v1::CloseCause::ServerFin,
        close_cause::CLIENT_RST => v1::CloseCause::ClientRst,
        close_cause::SERVER_RST => v1::CloseCause::ServerRst,
        close_cause::TIMEOUT => v1::CloseCause::Timeout,
        _ => v1::CloseCause::Unspecified,
    }
}

fn protocol_to_proto(protocol: u8) -> v1::Protocol {
    if protocol == PROTOCOL_TCP {
        v1::Protocol::Tcp
    } else {
        v1::Protocol::Unspecified
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];

    #[test]
    fn a_ledger_entry_carries_each_class_and_cause() {
        let key = LedgerKey {
            address: ADDRESS,
            cgroup_id: 7,
            port: 8883,
            protocol: PROTOCOL_TCP,
            padding: [0; 5],
        };
        let mut value = LedgerValue::default();
        value.classes[1] = ClassCounts {
            opened: 5,
            established: 3,
            seeded: 1,
            closed: [0, 2, 0, 1, 0, 0],
        };
        value.classes[3] = ClassCounts {
            opened: 1,
            established: -1,
            seeded: 0,
            closed: [1, 0, 0, 0, 0, 0],
        };
        let entry = ledger_entry(&key, &value);
        assert_eq!(
            (entry.address.as_slice(), entry.port, entry.cgroup_id),
            (ADDRESS.as_slice(), 8883, 7)
        );
        assert_eq!(entry.protocol(), v1::Protocol::Tcp);
        let [external, node] = entry.classes.as_slice() else {
            panic!("two classes: {:?}", entry.classes)
        };
        assert_eq!(external.source_class(), v1::SourceClass::External);
        assert_eq!((external.opened, external.established, external.seeded), (5, 3, 1));
        let closed: Vec<_> = external
            .closed
            .iter()
            .map(|closed| (closed.cause(), closed.count))
            .collect();
        assert_eq!(closed, [(v1::CloseCause::ClientFin, 2), (v1::CloseCause::ClientRst, 1)]);
        assert_eq!(node.source_class(), v1::SourceClass::Node);
        assert_eq!(node.established, 0, "a gauge is never negative");
    }

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
            report_interval_ms: 0,
            ..Default::default()
        });
        assert_eq!(taken.endpoints.len(), 1);
        assert_eq!(taken.prefixes, HashMap::from([((ADDRESS, 128), source_class::POD)]));
        assert_eq!((taken.ignored, taken.report_interval_ms), (7, None));
    }
}
