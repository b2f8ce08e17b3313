//! Figures of a Service port enter; the metrics of what stands beside its skew leave: how busy its pods are, which front
//! doors are used, and what reached no pod.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;

use super::labels::{Door, Endpoint, Port, Unserved};
use super::services::{Counters, Ratios, VERDICT_WINDOW, Whole, whole};
use crate::ledger::DoorCounts;
use crate::report::DoorKind;
use crate::state::{EndpointFigures, PortFigures};

#[derive(Default)]
pub(super) struct Evidence {
    cpu_cores: Ratios<Endpoint>,
    cpu_throttled_share: Ratios<Endpoint>,
    listen_overflows: Counters<Endpoint>,
    listen_drops: Counters<Endpoint>,
    syn_cookies: Counters<Endpoint>,
    door_opened: Counters<Door>,
    door_established: Whole<Door>,
    unserved: Counters<Unserved>,
}

impl Evidence {
    pub(super) fn add(&self, labels: &Port, port: &PortFigures, with_endpoints: bool) {
        if with_endpoints {
            port.endpoints
                .iter()
                .for_each(|endpoint| self.add_load(labels, port, endpoint));
        }
        self.add_doors(labels, port);
        for unserved in &port.unserved {
            let labels = Unserved {
                port: labels.clone(),
                node: unserved.node.clone(),
                reason: unserved.reason.code(),
            };
            self.unserved.get_or_create_owned(&labels).inc_by(unserved.total);
        }
    }

    /// A figure that is not known has no series.
    fn add_load(&self, port: &Port, figures: &PortFigures, endpoint: &EndpointFigures) {
        let labels = Endpoint {
            port: port.clone(),
            node: figures.nodes[endpoint.node].name.clone(),
            pod: endpoint.pod.clone(),
        };
        let rates = endpoint.load_rates.get(VERDICT_WINDOW).copied().flatten();
        for (family, value) in [
            (&self.cpu_cores, rates.and_then(|rates| rates.cpu_cores)),
            (&self.cpu_throttled_share, rates.and_then(|rates| rates.throttled_share)),
        ] {
            if let Some(value) = value {
                family.get_or_create_owned(&labels).set(value);
            }
        }
        let load = endpoint.load.unwrap_or_default();
        for (family, count) in [
            (&self.listen_overflows, load.listen_overflows),
            (&self.listen_drops, load.listen_drops),
            (&self.syn_cookies, load.syn_cookies),
        ] {
            if let Some(count) = count {
                family.get_or_create_owned(&labels).inc_by(count);
            }
        }
    }

    fn add_doors(&self, port: &Port, figures: &PortFigures) {
        let mut doors: BTreeMap<DoorKind, DoorCounts> = BTreeMap::new();
        for tally in figures.endpoints.iter().map(|endpoint| &endpoint.tally) {
            let known = tally.doors.iter().map(|(&(kind, ..), door)| (kind, door));
            for (kind, door) in known.chain([(DoorKind::Unknown, &tally.unknown)]) {
                let sum = doors.entry(kind).or_default();
                sum.opened = sum.opened.saturating_add(door.counts.opened);
                sum.established = sum.established.saturating_add(door.counts.established);
            }
        }
        for (kind, counts) in doors {
            let labels = Door {
                port: port.clone(),
                door: kind.code(),
            };
            self.door_opened.get_or_create_owned(&labels).inc_by(counts.opened);
            self.door_established
                .get_or_create_owned(&labels)
                .set(whole(counts.established));
        }
    }

    pub(super) fn register(self, registry: &mut Registry) {
        registry.register(
            "flowskew_endpoint_cpu_cores",
            "CPUs that the pod used, on average over 5 minutes",
            self.cpu_cores,
        );
        registry.register(
            "flowskew_endpoint_cpu_throttled_share",
            "Part of the last 5 minutes in which its CPU limit kept the pod waiting",
            self.cpu_throttled_share,
        );
        registry.register(
            "flowskew_endpoint_listen_overflows",
            "Connections that found an accept queue of the pod full; of its node with the host network",
            self.listen_overflows,
        );
        registry.register(
            "flowskew_endpoint_listen_drops",
            "Connections dropped at a listener of the pod; of its node with the host network",
            self.listen_drops,
        );
        registry.register(
            "flowskew_endpoint_syn_cookies",
            "SYN cookies that the pod sent; its node with the host network",
            self.syn_cookies,
        );
        registry.register(
            "flowskew_service_door_opened",
            "External flows opened by kind of front door, since the nodes' epochs began",
            self.door_opened,
        );
        registry.register(
            "flowskew_service_door_established",
            "External flows open now by kind of front door",
            self.door_established,
        );
        registry.register(
            "flowskew_unserved_attempts",
            "Attempts that reached no pod, since the node's epoch began",
            self.unserved,
        );
    }
}
