//! What the cluster of a scenario file must be in itself: zones, Services, ports, processes. Part of `check`.

use std::collections::BTreeSet;

use serde_saphyr::{Location, Spanned};

use super::Process;
use super::check::Player;
use super::service::Affinity;
use super::spec::{MAX_WORK, Spec};
use crate::net::{Balancer, Protocol};

impl Player {
    pub(super) fn zones(&mut self, spec: &Spec) {
        for (node, zone) in &spec.zones.0 {
            self.name("zones", zone.referenced, &zone.value);
            if self.node("zones", zone.referenced, node) {
                self.zones.insert(node.clone(), zone.value.clone());
            }
        }
        let without = self.nodes.iter().find(|node| !self.zones.contains_key(*node));
        if spec.balancer.value == Balancer::ZoneEqual
            && let Some(node) = without.cloned()
        {
            self.problem(
                spec.balancer.referenced,
                format!("balancer: `zone-equal` needs a zone for each node; '{node}' has none in `zones`"),
            );
        }
    }

    pub(super) fn work(&mut self, spec: &Spec) {
        let Some(work) = &spec.work else { return };
        let at = work.referenced;
        if work.value.per_flow.get() > MAX_WORK {
            self.problem(at, format!("work.per_flow: at most {MAX_WORK:?}"));
        }
        if self.protocol != Protocol::Tcp {
            self.problem(at, "work.per_flow: needs a Service with `protocol: TCP`");
        }
    }

    pub(super) fn services(&mut self, spec: &Spec) {
        self.protocol = spec.service.protocol;
        self.services.insert(spec.service.name.value.clone());
        for Spanned { value, referenced, .. } in spec.other_services.iter().map(|other| &other.name) {
            self.name("other_services.name", *referenced, value);
            if !self.services.insert(value.clone()) {
                self.problem(*referenced, format!("other_services: '{value}' is there twice"));
            }
        }
        if let Some(timeout) = &spec.service.affinity_timeout_seconds
            && spec.service.affinity == Affinity::None
        {
            self.problem(
                timeout.referenced,
                "service.affinity_timeout_seconds: needs `affinity: ClientIP`",
            );
        }
    }

    pub(super) fn host_network(&mut self, spec: &Spec) {
        for (pod, port) in &spec.host_network.0 {
            let pod = Spanned::new(pod.clone(), port.referenced, port.defined);
            if self.pod("host_network", &pod) {
                self.host_network.insert(pod.value, port_number(port.value.get()));
            }
        }
    }

    pub(super) fn processes(&mut self, spec: &Spec) {
        for (name, process) in &spec.processes.0 {
            let (at, node) = (process.referenced, &process.value.node);
            self.name("processes", at, name);
            self.node("processes.node", node.referenced, &node.value);
            if self.services.contains(name) || self.pods.node_of(name).is_some() {
                self.problem(at, format!("processes: '{name}' is taken"));
            }
            let process = Process {
                node: node.value.clone(),
                port: port_number(process.value.port.get()),
            };
            self.processes.insert(name.clone(), process);
        }
    }

    /// What shares the address of a node differs in its port.
    pub(super) fn host_ports_differ(&mut self, at: Location) {
        let pods = self.host_network.iter().filter_map(|(pod, port)| {
            let node = self.pods.node_of(pod)?;
            Some((node.to_owned(), *port))
        });
        let processes = self
            .processes
            .values()
            .map(|process| (process.node.clone(), process.port));
        let mut taken = BTreeSet::new();
        let twice: Vec<_> = pods
            .chain(processes)
            .filter(|place| !taken.insert(place.clone()))
            .collect();
        for (node, port) in twice {
            self.problem(at, format!("host_network: port {port} of node '{node}' is taken twice"));
        }
    }
}

/// The bound of a port in a file is that of a port.
fn port_number(port: u64) -> u16 {
    u16::try_from(port).unwrap_or(u16::MAX)
}
