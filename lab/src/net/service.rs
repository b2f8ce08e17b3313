//! One Service: in, the fields of a scenario; out, what rules and clients are made from.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::addresses::Family;

/// `externalTrafficPolicy` of the Service, spelled as Kubernetes spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrafficPolicy {
    /// A node hands external flows only to its own pods, and the source address is kept.
    #[default]
    Local,
    /// A node hands external flows to any pod, and hides the source address behind its own.
    Cluster,
}

/// Transport protocol of a port, spelled as Kubernetes spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// The name as rules and tools spell it: `tcp` or `udp`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}

/// One Service of type LoadBalancer with one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePlan {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Name of the port; empty for an unnamed port.
    pub port_name: String,
    /// Protocol of all its ports.
    pub protocol: Protocol,
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

impl ServicePlan {
    /// Service telemetry/gateway of the documentation: port `mqtts` 8883, node port 30883, policy Local, no affinity.
    #[must_use]
    pub fn example(family: Family) -> Self {
        Self {
            namespace: "telemetry".into(),
            name: "gateway".into(),
            port_name: "mqtts".into(),
            protocol: Protocol::Tcp,
            port: 8883,
            target_port: 8883,
            node_port: 30883,
            cluster_ip: family.cluster_ip(),
            load_balancer_ip: family.load_balancer_ip(),
            policy: TrafficPolicy::Local,
            affinity_timeout_seconds: None,
        }
    }

    /// Where clients inside the cluster reach it.
    #[must_use]
    pub fn cluster_target(&self) -> SocketAddr {
        SocketAddr::new(self.cluster_ip, self.port)
    }

    /// Where clients outside reach it.
    #[must_use]
    pub fn load_balancer_target(&self) -> SocketAddr {
        SocketAddr::new(self.load_balancer_ip, self.port)
    }

    /// Refuses what cannot be built, and names the field.
    ///
    /// # Errors
    /// A bad name, an address of the other family, a port or timeout of zero.
    pub(super) fn check(&self, family: Family) -> Result<()> {
        check_name("namespace", &self.namespace)?;
        check_name("service", &self.name)?;
        if !self.port_name.is_empty() {
            check_name("port", &self.port_name)?;
        }
        for (field, port) in [
            ("port", self.port),
            ("target port", self.target_port),
            ("node port", self.node_port),
        ] {
            ensure!(
                port != 0,
                "the {field} of service {} is 0: choose 1 to 65535",
                self.name
            );
        }
        for (field, address) in [("cluster", self.cluster_ip), ("load balancer", self.load_balancer_ip)] {
            ensure!(
                family.has(address),
                "the {field} address {address} of service {} is not {family}",
                self.name
            );
        }
        ensure!(
            self.affinity_timeout_seconds != Some(0),
            "the affinity timeout of service {} is 0: choose 1 to 86400 seconds",
            self.name
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
}
