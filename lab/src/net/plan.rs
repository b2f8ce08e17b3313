//! What a network is asked to be: in, the fields of a scenario; out, the checked plan everything else is built from.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{
    addresses::{Family, MAX_NODES, MAX_SERVICES},
    service::{ServicePlan, check_name},
};

/// The mode kube-proxy runs in on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyMode {
    /// Rules in the iptables `nat` and `filter` tables.
    Iptables,
    /// Rules in one nftables table named `kube-proxy`.
    Nftables,
}

/// How the external load balancer picks a node for a new flow. It only considers nodes that pass its health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balancer {
    /// Every node equally often.
    Equal,
    /// Every node in proportion to its ready local endpoints.
    Weighted,
    /// The first healthy node takes every flow.
    SingleLeader,
    /// A hash of the source address picks the node: one client always meets the same node.
    SourceHash,
    /// Every zone equally often, and every node of a zone.
    ZoneEqual,
}

/// How the external load balancer hands a flow to the node it has picked. The source address is kept either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// To the node port: the node sees its own address as the destination.
    #[default]
    NodePort,
    /// As it is: the node sees the load balancer's address as the destination.
    Address,
}

/// The whole network: one external load balancer, some nodes, some Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPlan {
    /// Executable that has the `pod` and `clients` subcommands.
    pub program: PathBuf,
    /// Address family of everything.
    pub family: Family,
    /// Rules on the nodes.
    pub mode: ProxyMode,
    /// Rules in front of the nodes.
    pub balancer: Balancer,
    /// What nodes see of the load balancer.
    pub delivery: Delivery,
    /// Node names, each `[a-z0-9.-]{1,63}`.
    pub nodes: Vec<String>,
    /// Zones of nodes, by name. Nodes without one are together in a zone of their own.
    pub zones: BTreeMap<String, String>,
    /// The Services, each with addresses and a node port of its own. Several may select the same pods.
    pub services: Vec<ServicePlan>,
}

impl NetworkPlan {
    /// Refuses a plan that cannot be built, and names the field.
    ///
    /// # Errors
    /// No nodes, too many, a bad or repeated name, an address of the other family, a port or timeout of zero.
    pub fn check(&self) -> Result<()> {
        let count = self.nodes.len();
        ensure!(
            (1..=MAX_NODES).contains(&count),
            "the network needs 1 to {MAX_NODES} nodes, not {count}"
        );
        self.nodes.iter().try_for_each(|node| check_name("node", node))?;
        let distinct: BTreeSet<_> = self.nodes.iter().collect();
        ensure!(
            distinct.len() == count,
            "two nodes have the same name: {}",
            self.nodes.join(", ")
        );

        for node in self.zones.keys() {
            ensure!(distinct.contains(node), "there is no node {node}, and it has a zone");
        }

        let count = self.services.len();
        ensure!(
            (1..=MAX_SERVICES).contains(&count),
            "the network needs 1 to {MAX_SERVICES} services, not {count}"
        );
        self.services
            .iter()
            .try_for_each(|service| service.check(self.family))?;
        self.distinct("name", |service| {
            format!("{}/{}:{}", service.namespace, service.name, service.port_name)
        })?;
        self.distinct("cluster address and port", |service| {
            format!("{}/{}", service.cluster_target(), service.protocol)
        })?;
        self.distinct("load balancer address and port", |service| {
            format!("{}/{}", service.load_balancer_target(), service.protocol)
        })?;
        self.distinct("node port", |service| {
            format!("{}/{}", service.node_port, service.protocol)
        })
    }

    fn distinct(&self, field: &str, value: impl Fn(&ServicePlan) -> String) -> Result<()> {
        let mut seen = BTreeSet::new();
        self.services.iter().map(value).try_for_each(|value| {
            ensure!(!seen.contains(&value), "two services have the same {field}: {value}");
            seen.insert(value);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_plan_names_its_field() {
        let check = |change: fn(&mut NetworkPlan), says: &str| {
            let mut plan = NetworkPlan {
                program: "flowskew-lab".into(),
                family: Family::V4,
                mode: ProxyMode::Nftables,
                balancer: Balancer::Equal,
                delivery: Delivery::NodePort,
                nodes: vec!["node-0".into(), "node-1".into()],
                zones: BTreeMap::new(),
                services: vec![ServicePlan::example(Family::V4)],
            };
            assert!(plan.check().is_ok());
            change(&mut plan);
            let error = plan.check().expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        };
        check(|plan| plan.nodes.clear(), "1 to 250 nodes, not 0");
        check(|plan| plan.nodes = vec!["n".into(), "n".into()], "same name: n, n");
        check(|plan| plan.nodes[0] = "N".into(), "node name \"N\"");
        check(
            |plan| plan.zones = [("node-9".into(), "east".into())].into(),
            "no node node-9",
        );
        check(
            |plan| plan.services[0].node_port = 0,
            "node port of service gateway is 0",
        );
        check(
            |plan| plan.services[0].cluster_ip = "fd00::1".parse().unwrap(),
            "cluster address fd00::1 of service gateway is not IPv4",
        );
        check(
            |plan| plan.services[0].affinity_timeout_seconds = Some(0),
            "affinity timeout",
        );
        check(|plan| plan.services.clear(), "1 to 64 services, not 0");
        check(
            |plan| plan.services.push(ServicePlan::example(Family::V4)),
            "two services have the same name: telemetry/gateway:mqtts",
        );
        check(
            |plan| {
                let (cluster_ip, load_balancer_ip) = Family::V4.service_addresses(1);
                plan.services.push(ServicePlan {
                    name: "other".into(),
                    cluster_ip,
                    load_balancer_ip,
                    ..ServicePlan::example(Family::V4)
                });
            },
            "two services have the same node port: 30883/tcp",
        );
    }
}
