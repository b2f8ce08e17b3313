//! The external load balancer: in, the nodes that pass its health check; out, input for `nft -f` in its own namespace.
//!
//! It picks one node for each new flow and rewrites only the destination, so that the node sees the client's address.

use std::net::{IpAddr, SocketAddr};

use super::{
    addresses::Family,
    plan::{Balancer, ServicePlan},
};

const TABLE: &str = "flowskew-balancer";

/// A node that passes the health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address of the node.
    pub address: IpAddr,
    /// Ready endpoints on the node: its weight, at least 1.
    pub endpoints: usize,
}

/// Replaces the balancer's rules at once. Without targets the address is not routed, and clients are told so.
#[must_use]
pub fn rules(balancer: Balancer, family: Family, service: &ServicePlan, targets: &[Target]) -> String {
    let ip = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    let mut lines = vec![
        format!("add table {ip} {TABLE}"),
        format!("add chain {ip} {TABLE} pick {{ type nat hook prerouting priority dstnat; }}"),
        format!("flush chain {ip} {TABLE} pick"),
    ];
    let targets = match balancer {
        Balancer::SingleLeader => &targets[..targets.len().min(1)],
        _ => targets,
    };
    for (index, target) in targets.iter().enumerate() {
        let node = SocketAddr::new(target.address, service.node_port);
        lines.push(format!("add chain {ip} {TABLE} node-{index}"));
        lines.push(format!("flush chain {ip} {TABLE} node-{index}"));
        lines.push(format!(
            "add rule {ip} {TABLE} node-{index} meta l4proto tcp dnat to {node}"
        ));
    }
    if !targets.is_empty() {
        let weight = |target: &Target| {
            if balancer == Balancer::Weighted {
                target.endpoints
            } else {
                1
            }
        };
        let total: usize = targets.iter().map(weight).sum();
        let number = match balancer {
            Balancer::SourceHash => format!("jhash {ip} saddr mod {total} seed 0x5eed"),
            _ => format!("numgen random mod {total}"),
        };
        let mut first = 0;
        let choices: Vec<_> = targets
            .iter()
            .enumerate()
            .flat_map(|(index, target)| {
                let numbers = first..first + weight(target);
                first = numbers.end;
                numbers.map(move |number| format!("{number} : goto node-{index}"))
            })
            .collect();
        let (address, port) = (service.load_balancer_ip, service.port);
        lines.push(format!(
            "add rule {ip} {TABLE} pick {ip} daddr {address} tcp dport {port} {number} vmap {{ {} }}",
            choices.join(", ")
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(balancer: Balancer, family: Family, weights: &[usize]) -> Option<String> {
        let targets: Vec<_> = weights
            .iter()
            .enumerate()
            .map(|(index, &endpoints)| Target {
                address: family.node_address(index),
                endpoints,
            })
            .collect();
        let text = rules(balancer, family, &ServicePlan::example(family), &targets);
        text.lines()
            .find_map(|line| line.split_once("dport 8883 ").map(|(_, choice)| choice.to_owned()))
    }

    #[test]
    fn each_kind_picks_its_own_way() {
        let check = |balancer, expected: &str| {
            assert_eq!(pick(balancer, Family::V4, &[3, 1]).as_deref(), Some(expected));
        };
        check(
            Balancer::Equal,
            "numgen random mod 2 vmap { 0 : goto node-0, 1 : goto node-1 }",
        );
        check(
            Balancer::Weighted,
            "numgen random mod 4 vmap { 0 : goto node-0, 1 : goto node-0, 2 : goto node-0, 3 : goto node-1 }",
        );
        check(Balancer::SingleLeader, "numgen random mod 1 vmap { 0 : goto node-0 }");
        check(
            Balancer::SourceHash,
            "jhash ip saddr mod 2 seed 0x5eed vmap { 0 : goto node-0, 1 : goto node-1 }",
        );
    }

    #[test]
    fn nothing_is_picked_when_no_node_is_healthy() {
        for balancer in [
            Balancer::Equal,
            Balancer::Weighted,
            Balancer::SingleLeader,
            Balancer::SourceHash,
        ] {
            assert_eq!(pick(balancer, Family::V6, &[]), None);
        }
    }

    #[test]
    fn the_destination_is_the_node_port() {
        let targets = [Target {
            address: Family::V6.node_address(0),
            endpoints: 1,
        }];
        let text = rules(Balancer::Equal, Family::V6, &ServicePlan::example(Family::V6), &targets);
        assert!(
            text.contains("node-0 meta l4proto tcp dnat to [fd00:20::a]:30883\n"),
            "{text}"
        );
    }
}
