//! The Services of a scenario as the network is asked for them. A scenario enters; plans leave, the main Service first.

use crate::net::{Family, ServicePlan, TrafficPolicy};
use crate::scenario::Scenario;

/// Port of the nodes for external flows to the main Service, any of the range that Kubernetes uses; others follow.
const NODE_PORT: u16 = 31_883;

/// The Services of the scenario.
pub fn plans(scenario: &Scenario, family: Family) -> Vec<ServicePlan> {
    let main = &scenario.service;
    let target_port = number(main.port.get());
    let others = scenario
        .other_services
        .iter()
        .map(|other| (&other.name, other.port, None));
    let all = [(&main.name, main.port, main.affinity_timeout())]
        .into_iter()
        .chain(others);
    let numbered = (NODE_PORT..).zip(0..).zip(all);
    numbered
        .map(|((node_port, index), (name, port, affinity_timeout_seconds))| {
            let (cluster_ip, load_balancer_ip) = family.service_addresses(index);
            ServicePlan {
                namespace: main.namespace.value.clone(),
                name: name.value.clone(),
                port_name: String::new(),
                protocol: main.protocol,
                port: number(port.get()),
                target_port,
                node_port,
                cluster_ip,
                load_balancer_ip,
                policy: TrafficPolicy::Local,
                affinity_timeout_seconds,
            }
        })
        .collect()
}

/// The bound of a port in a file is that of a port.
fn number(port: u64) -> u16 {
    u16::try_from(port).unwrap_or(u16::MAX)
}
