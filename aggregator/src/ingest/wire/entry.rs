//! One entry of a node's ledger: checked, and made of plain types.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use flowskew_proto::ages::MAX_BUCKET;
use flowskew_proto::v1;

use crate::flow::{ByClass, CloseCause, Counts, EndpointKey, Protocol, SourceClass};
use crate::ledger::{DoorCounts, DoorKey, Entry, FlowAges, LedgerKey, pod_uid};

/// Front doors of one entry that are read. The flows of others have no known door.
const MAX_DOORS: usize = 256;

/// `None` for an entry that makes no sense. A pod id or a door that makes none is left out of it: then it is not known.
pub(super) fn entry(entry: v1::LedgerEntry) -> Option<Entry> {
    let endpoint = place(&entry.address, entry.port, entry.protocol)?;
    let mut classes = ByClass::<Counts>::default();
    for counts in entry.classes {
        let mut plain = Counts {
            opened: counts.opened,
            established: counts.established,
            seeded: counts.seeded,
            ..Default::default()
        };
        for closed in counts.closed {
            let cause = match v1::CloseCause::try_from(closed.cause) {
                Ok(v1::CloseCause::ClientFin) => CloseCause::ClientFin,
                Ok(v1::CloseCause::ServerFin) => CloseCause::ServerFin,
                Ok(v1::CloseCause::ClientRst) => CloseCause::ClientRst,
                Ok(v1::CloseCause::ServerRst) => CloseCause::ServerRst,
                Ok(v1::CloseCause::Timeout) => CloseCause::Timeout,
                Ok(v1::CloseCause::Unspecified) | Err(_) => CloseCause::Other,
            };
            let sum = &mut plain.closed[cause.index()];
            *sum = sum.saturating_add(closed.count);
        }
        classes[class(counts.source_class).index()].add(&plain);
    }
    Some(Entry {
        key: LedgerKey {
            endpoint,
            cgroup_id: entry.cgroup_id,
        },
        pod_uid: pod_uid(&entry.pod_uid),
        classes,
        doors: super::once(entry.doors.iter().take(MAX_DOORS).filter_map(door), |(key, _)| *key),
        ages: entry.ages.as_ref().and_then(ages),
    })
}

/// `None` for ages that make no sense: then they are not known.
fn ages(ages: &v1::FlowAges) -> Option<FlowAges> {
    if ages.buckets.len() != ages.flows.len() {
        return None;
    }
    let mut by_bucket: BTreeMap<u8, u64> = BTreeMap::new();
    for (&bucket, &flows) in ages.buckets.iter().zip(&ages.flows).filter(|(_, flows)| **flows > 0) {
        let bucket = u8::try_from(bucket)
            .ok()
            .filter(|&bucket| u32::from(bucket) <= MAX_BUCKET)?;
        let sum = by_bucket.entry(bucket).or_default();
        *sum = sum.saturating_add(flows);
    }
    Some(FlowAges {
        read_at_ms: ages.read_at_ms,
        buckets: by_bucket.into_iter().collect(),
        unknown: ages.unknown,
    })
}

fn door(door: &v1::DoorCounts) -> Option<(DoorKey, DoorCounts)> {
    let key = DoorKey {
        address: address(&door.address)?,
        port: port(door.port)?,
        class: class(door.source_class).index(),
    };
    let counts = DoorCounts {
        opened: door.opened,
        established: door.established,
        closed: door.closed,
    };
    Some((key, counts))
}

/// An address, port and protocol.
pub(super) fn place(address: &[u8], port: u32, protocol: i32) -> Option<EndpointKey> {
    Some(EndpointKey {
        address: self::address(address)?,
        port: self::port(port)?,
        protocol: match v1::Protocol::try_from(protocol).ok()? {
            v1::Protocol::Tcp => Protocol::Tcp,
            v1::Protocol::Udp => Protocol::Udp,
            v1::Protocol::Unspecified => return None,
        },
    })
}

/// A class that a newer agent knows is one that we cannot tell.
fn class(class: i32) -> SourceClass {
    match v1::SourceClass::try_from(class) {
        Ok(v1::SourceClass::External) => SourceClass::External,
        Ok(v1::SourceClass::Pod) => SourceClass::Pod,
        Ok(v1::SourceClass::Node) => SourceClass::Node,
        Ok(v1::SourceClass::Unspecified) | Err(_) => SourceClass::Unclassified,
    }
}

pub(super) fn address(bytes: &[u8]) -> Option<Ipv6Addr> {
    <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from)
}

fn port(port: u32) -> Option<u16> {
    u16::try_from(port).ok().filter(|&port| port != 0)
}
