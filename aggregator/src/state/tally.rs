//! Ledgers of single keys enter; the flows of one endpoint leave: over all windows, by class and by front door.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

use super::index::Index;
use crate::cluster::PortName;
use crate::flow::{ByClass, CloseCause, Counts, EndpointKey, SourceClass};
use crate::ledger::{Buckets, DoorCounts, DoorKey, Flows, KeyLedger, Tick};
use crate::report::DoorKind;

const EXTERNAL: usize = SourceClass::External.index();

/// Flows through one front door.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DoorTally {
    /// Flows opened, one figure a window.
    pub opened: Vec<u64>,
    /// Counters of the epoch.
    pub counts: DoorCounts,
}

/// Flows of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Flows opened, one figure a window and class.
    pub opened: Vec<ByClass<u64>>,
    /// External flows closed, one figure a window.
    pub closed: Vec<u64>,
    /// External flow-milliseconds: the flows open at each moment, summed over the window; one figure a window.
    pub open_ms: Vec<u128>,
    /// Counters of the epoch, by class.
    pub counts: ByClass<Counts>,
    /// External flows by front door.
    pub doors: BTreeMap<(DoorKind, Ipv6Addr, u16), DoorTally>,
    /// External flows whose front door is not known.
    pub unknown: DoorTally,
    /// All external flows of the pod at its target port, whichever Service's, one figure a window.
    pub of_pod: Vec<u64>,
    /// External flows that may be another Service's, one figure a window.
    pub unattributed: Vec<u64>,
    /// The same of flows open now.
    pub unattributed_established: u64,
}

/// Whose flows are counted, and from when.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    pub(super) port: &'a PortName,
    pub(super) index: &'a Index,
    /// The Service ports that have endpoints in common with this one: then only flows through the port's own doors count.
    pub(super) shared_with: Vec<&'a Arc<PortName>>,
    /// First bucket of each window.
    pub(super) windows: Vec<Tick>,
    pub(super) buckets: Buckets,
}

impl Scope<'_> {
    pub(super) fn tally(&self) -> Tally {
        Tally {
            opened: vec![ByClass::default(); self.windows.len()],
            closed: vec![0; self.windows.len()],
            open_ms: vec![0; self.windows.len()],
            unknown: self.door(),
            of_pod: vec![0; self.windows.len()],
            unattributed: vec![0; self.windows.len()],
            ..Tally::default()
        }
    }

    fn door(&self) -> DoorTally {
        DoorTally {
            opened: vec![0; self.windows.len()],
            ..DoorTally::default()
        }
    }

    /// The kind of a door, by whose it is.
    fn kind(&self, door: &DoorKey, endpoint: &EndpointKey) -> Door {
        let at = EndpointKey {
            address: door.address,
            port: door.port,
            protocol: endpoint.protocol,
        };
        match self.index.door(&at) {
            Some((port, kind)) if port == self.port => Door::Own(kind),
            Some((port, _)) if self.shared_with.iter().any(|other| ***other == *port) => Door::OfAnother,
            None if at == *endpoint => Door::Nobodys(DoorKind::Direct),
            Some(_) | None => Door::Nobodys(DoorKind::Other),
        }
    }
}

/// What part of a key's flows counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Flows that opened up to this bucket.
    pub(super) until: Tick,
    /// Also the counters of the epoch, and the flows open now.
    pub(super) counters: bool,
}

impl Extent {
    pub(super) const ALL: Self = Self {
        until: Tick::MAX,
        counters: true,
    };
}

enum Door {
    Own(DoorKind),
    /// Of a Service port that shares the endpoint.
    OfAnother,
    Nobodys(DoorKind),
}

impl Tally {
    /// Adds what one key has counted.
    pub(super) fn add(&mut self, scope: &Scope, endpoint: &EndpointKey, key: &KeyLedger, extent: Extent) {
        let counts = if extent.counters {
            key.counts()
        } else {
            Default::default()
        };
        let opened: Vec<ByClass<u64>> = scope
            .windows
            .iter()
            .map(|&from| key.opened(from, extent.until))
            .collect();
        let shared = !scope.shared_with.is_empty();
        if !shared {
            self.add_all(&opened, &counts);
            if extent.counters {
                self.add_open(scope, key.external(), counts[EXTERNAL].established);
            }
        }
        // What no door accounts for, external.
        let mut rest: Vec<u64> = opened.iter().map(|opened| opened[EXTERNAL]).collect();
        add(&mut self.of_pod, &rest);
        let mut rest_counts = DoorCounts {
            opened: counts[EXTERNAL].opened,
            established: counts[EXTERNAL].established,
            closed: counts[EXTERNAL].closed_total(),
        };
        let mut nobodys = (vec![0; rest.len()], 0u64);
        for (door, found, flows) in key.doors() {
            let found = if extent.counters { found } else { DoorCounts::default() };
            let found_opened: Vec<u64> = scope
                .windows
                .iter()
                .map(|&from| flows.opened.sum(from, extent.until))
                .collect();
            let whose = scope.kind(door, endpoint);
            if shared && matches!(whose, Door::Own(_)) {
                self.add_own(door.class, &found_opened, &found);
                if door.is_external() && extent.counters {
                    self.add_open(scope, flows, found.established);
                }
            }
            if !door.is_external() {
                continue;
            }
            subtract(&mut rest, &found_opened);
            rest_counts.opened = rest_counts.opened.saturating_sub(found.opened);
            rest_counts.established = rest_counts.established.saturating_sub(found.established);
            rest_counts.closed = rest_counts.closed.saturating_sub(found.closed);
            let kind = match whose {
                Door::Own(kind) => kind,
                Door::Nobodys(kind) if !shared => kind,
                Door::Nobodys(_) => {
                    add(&mut nobodys.0, &found_opened);
                    nobodys.1 = nobodys.1.saturating_add(found.established);
                    continue;
                }
                Door::OfAnother => continue,
            };
            let row = self
                .doors
                .entry((kind, door.address, door.port))
                .or_insert_with(|| scope.door());
            row.add(&found_opened, &found);
        }
        if shared {
            add(&mut self.unattributed, &rest);
            add(&mut self.unattributed, &nobodys.0);
            for more in [rest_counts.established, nobodys.1] {
                self.unattributed_established = self.unattributed_established.saturating_add(more);
            }
        } else {
            self.unknown.add(&rest, &rest_counts);
        }
    }

    /// Adds what opened at a key while it was this pod's, before it was another's.
    pub(super) fn add_before(&mut self, scope: &Scope, key: &KeyLedger, pod: &str) {
        for (position, &from) in scope.windows.iter().enumerate() {
            let opened = key.opened_before(pod, from, Tick::MAX);
            self.of_pod[position] += opened[EXTERNAL];
            if scope.shared_with.is_empty() {
                self.opened[position]
                    .iter_mut()
                    .zip(opened)
                    .for_each(|(sum, more)| *sum += more);
                self.unknown.opened[position] += opened[EXTERNAL];
            } else {
                self.unattributed[position] += opened[EXTERNAL];
            }
        }
    }

    fn add_all(&mut self, opened: &[ByClass<u64>], counts: &ByClass<Counts>) {
        for (sums, more) in self.opened.iter_mut().zip(opened) {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        self.counts.iter_mut().zip(counts).for_each(|(sum, more)| sum.add(more));
    }

    fn add_open(&mut self, scope: &Scope, flows: &Flows, open_now: u64) {
        for (position, &from) in scope.windows.iter().enumerate() {
            self.closed[position] = self.closed[position].saturating_add(flows.closed.sum(from, Tick::MAX));
            let open_ms = flows.open_ms(open_now, from, scope.buckets);
            self.open_ms[position] = self.open_ms[position].saturating_add(open_ms);
        }
    }

    /// Doors know nothing of causes, nor of what was found open: that is what opened and closed do not account for.
    fn add_own(&mut self, class: usize, opened: &[u64], found: &DoorCounts) {
        for (sums, more) in self.opened.iter_mut().zip(opened) {
            sums[class] += more;
        }
        let mut counts = Counts {
            opened: found.opened,
            established: found.established,
            seeded: found
                .established
                .saturating_add(found.closed)
                .saturating_sub(found.opened),
            ..Counts::default()
        };
        counts.closed[CloseCause::Other.index()] = found.closed;
        self.counts[class].add(&counts);
    }
}

impl DoorTally {
    fn add(&mut self, opened: &[u64], counts: &DoorCounts) {
        add(&mut self.opened, opened);
        self.counts.opened = self.counts.opened.saturating_add(counts.opened);
        self.counts.established = self.counts.established.saturating_add(counts.established);
        self.counts.closed = self.counts.closed.saturating_add(counts.closed);
    }
}

fn add(sums: &mut [u64], more: &[u64]) {
    sums.iter_mut()
        .zip(more)
        .for_each(|(sum, more)| *sum = sum.saturating_add(*more));
}

fn subtract(sums: &mut [u64], less: &[u64]) {
    sums.iter_mut()
        .zip(less)
        .for_each(|(sum, less)| *sum = sum.saturating_sub(*less));
}
