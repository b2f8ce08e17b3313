//! The address plan: in, an address family and indexes; out, the addresses of nodes, pods, clients and the Service.
//!
//! All of them live only in namespaces the lab makes. Pods use the ranges that clusters usually use, clients the ranges
//! set aside for benchmarks, the load balancer those for documentation.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Most nodes of one network: each has its own /24 of pods.
pub const MAX_NODES: usize = 250;
/// Most addresses that one node can give to pods during a run: it gives none of them twice by itself.
pub const MAX_PODS_PER_NODE: usize = 250;
/// Most Services of one network.
pub const MAX_SERVICES: usize = 64;
/// Number of client source addresses.
pub const MAX_SOURCES: u32 = (1 << 17) - 2;

const FIRST_NODE: u32 = 10;
const FIRST_POD: u32 = 2;
const FIRST_SERVICE: u32 = 10;

const NODES_V4: Ipv4Addr = Ipv4Addr::new(172, 20, 0, 0);
const PODS_V4: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 0);
const CLUSTER_IPS_V4: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const BALANCER_IPS_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
const CLIENTS_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const NODES_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 0);
const PODS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x244, 0, 0, 0, 0, 0, 0);
const CLUSTER_IPS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 0);
const BALANCER_IPS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0);
const CLIENTS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0);

/// Address family of a whole network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Whether `address` belongs to this family.
    #[must_use]
    pub fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }

    /// Address of the first Service inside the cluster.
    #[must_use]
    pub fn cluster_ip(self) -> IpAddr {
        self.service_addresses(0).0
    }

    /// Address at which clients reach the first Service.
    #[must_use]
    pub fn load_balancer_ip(self) -> IpAddr {
        self.service_addresses(0).1
    }

    /// Addresses of the Service with this index, below [`MAX_SERVICES`]: inside the cluster, and at the load balancer.
    #[must_use]
    pub fn service_addresses(self, index: usize) -> (IpAddr, IpAddr) {
        let number = FIRST_SERVICE.wrapping_add(index as u32);
        (
            self.offset(CLUSTER_IPS_V4, CLUSTER_IPS_V6, number),
            self.offset(BALANCER_IPS_V4, BALANCER_IPS_V6, number),
        )
    }

    /// Address of the router that joins clients and nodes.
    #[must_use]
    pub fn router_address(self) -> IpAddr {
        self.offset(NODES_V4, NODES_V6, 1)
    }

    /// Address of the node with this index, below [`MAX_NODES`].
    #[must_use]
    pub fn node_address(self, index: usize) -> IpAddr {
        self.offset(NODES_V4, NODES_V6, FIRST_NODE.wrapping_add(index as u32))
    }

    /// The range all pods of all nodes share.
    #[must_use]
    pub fn cluster_cidr(self) -> IpNet {
        self.range(PODS_V4, 16, PODS_V6, 48)
    }

    /// The range of the pods on one node.
    #[must_use]
    pub fn pod_cidr(self, node_index: usize) -> IpNet {
        let (v4, v6) = pod_network(node_index);
        self.range(v4, 24, v6, 64)
    }

    /// Address of the pod that was the `pod_index`-th to start on this node, below [`MAX_PODS_PER_NODE`].
    #[must_use]
    pub fn pod_address(self, node_index: usize, pod_index: usize) -> IpAddr {
        let (v4, v6) = pod_network(node_index);
        self.offset(v4, v6, FIRST_POD.wrapping_add(pod_index as u32))
    }

    /// The range clients connect from.
    #[must_use]
    pub fn client_cidr(self) -> IpNet {
        self.range(CLIENTS_V4, 15, CLIENTS_V6, 48)
    }

    /// Source address number `n` of the clients, below [`MAX_SOURCES`].
    #[must_use]
    pub fn client_source(self, n: u32) -> IpAddr {
        self.offset(CLIENTS_V4, CLIENTS_V6, n.wrapping_add(1))
    }

    fn offset(self, v4: Ipv4Addr, v6: Ipv6Addr, by: u32) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::from(u32::from(v4).wrapping_add(by)).into(),
            Self::V6 => Ipv6Addr::from(u128::from(v6).wrapping_add(by.into())).into(),
        }
    }

    fn range(self, v4: Ipv4Addr, v4_bits: u8, v6: Ipv6Addr, v6_bits: u8) -> IpNet {
        match self {
            Self::V4 => Ipv4Net::new_assert(v4, v4_bits).into(),
            Self::V6 => Ipv6Net::new_assert(v6, v6_bits).into(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

fn pod_network(node_index: usize) -> (Ipv4Addr, Ipv6Addr) {
    let index = node_index as u32;
    let v4 = u32::from(PODS_V4).wrapping_add(index.wrapping_mul(1 << 8));
    let v6 = u128::from(PODS_V6).wrapping_add(u128::from(index) << 64);
    (v4.into(), v6.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families() {
        let check = |family: Family, expected: [&str; 8]| {
            let (cluster, balancer) = family.service_addresses(MAX_SERVICES - 1);
            let found = [
                cluster.to_string(),
                balancer.to_string(),
                family.node_address(1).to_string(),
                family.pod_cidr(3).to_string(),
                family.pod_address(3, 0).to_string(),
                family.pod_address(249, 249).to_string(),
                family.client_source(0).to_string(),
                family.client_source(MAX_SOURCES - 1).to_string(),
            ];
            assert_eq!(found, expected);
        };
        check(
            Family::V4,
            [
                "10.96.0.73",
                "203.0.113.73",
                "172.20.0.11",
                "10.244.3.0/24",
                "10.244.3.2",
                "10.244.249.251",
                "198.18.0.1",
                "198.19.255.254",
            ],
        );
        check(
            Family::V6,
            [
                "fd00:96::49",
                "2001:db8::49",
                "fd00:20::b",
                "fd00:244:0:3::/64",
                "fd00:244:0:3::2",
                "fd00:244:0:f9::fb",
                "2001:2::1",
                "2001:2::1:fffe",
            ],
        );
    }

    #[test]
    fn ranges_hold_their_addresses_and_do_not_overlap() {
        for family in [Family::V4, Family::V6] {
            assert!(family.client_cidr().contains(&family.client_source(MAX_SOURCES - 1)));
            for node in [0, MAX_NODES - 1] {
                assert!(family.cluster_cidr().contains(&family.pod_cidr(node)));
                assert!(
                    family
                        .pod_cidr(node)
                        .contains(&family.pod_address(node, MAX_PODS_PER_NODE - 1))
                );
            }
            for outside in [
                family.cluster_ip(),
                family.load_balancer_ip(),
                family.node_address(MAX_NODES - 1),
            ] {
                assert!(family.has(outside));
                assert!(!family.cluster_cidr().contains(&outside) && !family.client_cidr().contains(&outside));
            }
        }
    }
}
