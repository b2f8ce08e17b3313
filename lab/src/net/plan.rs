//! What a network is asked to be: in, the fields of a scenario; out, the checked plan everything else is built from.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::addresses::{Family, MAX_NODES};

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
}

/// `externalTrafficPolicy` of the Service, spelled as Kubernetes spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrafficPolicy {
    /// A node hands external flows only to its own pods, and the source address is kept.
    #[default]
    Local,
    /// A node hands external flows to any pod, and hides the source address behind its own.
    Cluster,
}

/// One Service of type LoadBalancer with one TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePlan {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Name of the port; empty for an unnamed port.
    pub port_name: String,
    /// Port at the cluster address and at the load balancer.
    pub port: u16,
    /// Port the pods listen on.
    pub target_port: u16,
    /// Port every node accepts external flows on.
    pub node_port: u16,
    /// Address of the Service inside the cluster.
    pub cluster_ip: IpAddr,
    /// Address clients connect to.
    pub load_balancer_ip: IpAddr,
    /// Where a node may send external flows.
    pub policy: TrafficPolicy,
    /// `sessionAffinity: ClientIP` with this timeout; `None` for no affinity.
    pub affinity_timeout_seconds: Option<u32>,
}

/// The whole network: one external load balancer, some nodes, one Service.
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
    /// Node names, each `[a-z0-9.-]{1,63}`.
    pub nodes: Vec<String>,
    /// The Service.
    pub service: ServicePlan,
}

impl ServicePlan {
    /// Service telemetry/gateway of the documentation: port `mqtts` 8883, node port 30883, policy Local, no affinity.
    #[must_use]
    pub fn example(family: Family) -> Self {
        Self {
            namespace: "telemetry".into(),
            name: "gateway".into(),
            port_name: "mqtts".into(),
            port: 8883,
            target_port: 8883,
            node_port: 30883,
            cluster_ip: family.cluster_ip(),
            load_balancer_ip: family.load_balancer_ip(),
            policy: TrafficPolicy::Local,
            affinity_timeout_seconds: None,
        }
    }
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

        let service = &self.service;
        check_name("namespace", &service.namespace)?;
        check_name("service", &service.name)?;
        if !service.port_name.is_empty() {
            check_name("port", &service.port_name)?;
        }
        for (field, port) in [
            ("port", service.port),
            ("target port", service.target_port),
            ("node port", service.node_port),
        ] {
            ensure!(
                port != 0,
                "the {field} of service {} is 0: choose 1 to 65535",
                service.name
            );
        }
        for (field, address) in [
            ("cluster", service.cluster_ip),
            ("load balancer", service.load_balancer_ip),
        ] {
            ensure!(
                self.family.has(address),
                "the {field} address {address} is not {}",
                self.family
            );
        }
        ensure!(
            service.affinity_timeout_seconds != Some(0),
            "the affinity timeout of service {} is 0: choose 1 to 86400 seconds",
            service.name
        );
        Ok(())
    }
}

/// Names end up in rule comments, chain names and file names, so they follow the rules for Kubernetes names.
///
/// # Errors
/// The name is empty, longer than 63 characters, or has a character outside `[a-z0-9.-]`.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    ensure!(
        (1..=63).contains(&name.len())
            && name.chars().all(|c| plain(c) || c == '-' || c == '.')
            && name.starts_with(plain)
            && name.ends_with(plain),
        "{what} name {name:?}: use 1 to 63 lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kubernetes() {
        for good in ["a", "node-1", "gateway-0.eu", "0"] {
            assert!(check_name("pod", good).is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "A", "-a", "a-", "..", "a/b", "a b", "a\"b", &long] {
            let error = check_name("pod", bad).expect_err(bad).to_string();
            assert!(error.starts_with("pod name"), "{error}");
        }
    }

    #[test]
    fn a_bad_plan_names_its_field() {
        let check = |change: fn(&mut NetworkPlan), says: &str| {
            let mut plan = NetworkPlan {
                program: "flowskew-lab".into(),
                family: Family::V4,
                mode: ProxyMode::Nftables,
                balancer: Balancer::Equal,
                nodes: vec!["node-0".into(), "node-1".into()],
                service: ServicePlan::example(Family::V4),
            };
            assert!(plan.check().is_ok());
            change(&mut plan);
            let error = plan.check().expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        };
        check(|plan| plan.nodes.clear(), "1 to 250 nodes, not 0");
        check(|plan| plan.nodes = vec!["n".into(), "n".into()], "same name: n, n");
        check(|plan| plan.nodes[0] = "N".into(), "node name \"N\"");
        check(|plan| plan.service.node_port = 0, "node port of service gateway is 0");
        check(
            |plan| plan.service.cluster_ip = "fd00::1".parse().unwrap(),
            "cluster address fd00::1 is not IPv4",
        );
        check(
            |plan| plan.service.affinity_timeout_seconds = Some(0),
            "affinity timeout",
        );
    }
}
