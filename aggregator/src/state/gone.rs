//! Two successive cluster views enter; the endpoints that a Service port has lost within the retention leave, so that
//! flows on them are told instead of forgotten.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::cluster::{ClusterView, ObjectName, ServicePort};
use crate::flow::{EndpointKey, Protocol};
use crate::ledger::RETENTION_MS;

/// Lost endpoints kept for one Service port. The oldest go first.
const MAX_PER_PORT: usize = 1024;

/// A Service port.
type PortKey = (ObjectName, u16, Protocol);

/// An endpoint that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GoneEndpoint {
    pub(super) node: String,
    pub(super) key: EndpointKey,
    /// When it was seen to be gone, milliseconds since 1970.
    pub(super) gone_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct GoneEndpoints {
    /// Oldest first.
    ports: HashMap<PortKey, Vec<GoneEndpoint>>,
}

impl GoneEndpoints {
    pub(super) fn compare(&mut self, before: &ClusterView, after: &ClusterView, now_ms: u64) {
        for (name, service) in &before.services {
            let ports_after = after
                .services
                .get(name)
                .map(|service| service.ports.as_slice())
                .unwrap_or_default();
            if ports_after == service.ports {
                continue;
            }
            let after: BTreeMap<(u16, Protocol), &ServicePort> = ports_after
                .iter()
                .map(|port| ((port.port, port.protocol), port))
                .collect();
            for port in &service.ports {
                let now: HashSet<(&str, EndpointKey)> = after
                    .get(&(port.port, port.protocol))
                    .into_iter()
                    .flat_map(|port| keys(port))
                    .collect();
                let known = self.ports.entry((name.clone(), port.port, port.protocol)).or_default();
                // One that is back is not gone.
                known.retain(|gone| !now.contains(&(gone.node.as_str(), gone.key)));
                let lost = keys(port).filter(|key| !now.contains(key));
                known.extend(lost.map(|(node, key)| GoneEndpoint {
                    node: node.to_owned(),
                    key,
                    gone_ms: now_ms,
                }));
                known.drain(..known.len().saturating_sub(MAX_PER_PORT));
            }
        }
        self.ports.retain(|_, gone| !gone.is_empty());
    }

    pub(super) fn of(&self, service: &ObjectName, port: &ServicePort) -> &[GoneEndpoint] {
        self.ports
            .get(&(service.clone(), port.port, port.protocol))
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    pub(super) fn expire(&mut self, now_ms: u64) {
        self.ports.retain(|_, gone| {
            gone.retain(|gone| now_ms.saturating_sub(gone.gone_ms) < RETENTION_MS);
            !gone.is_empty()
        });
    }
}

fn keys(port: &ServicePort) -> impl Iterator<Item = (&str, EndpointKey)> {
    port.endpoints
        .iter()
        .flat_map(|e| e.keys(port.protocol).map(|key| (e.node.as_str(), key)))
}
