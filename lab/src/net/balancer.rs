//! The external load balancer: in, the nodes that pass its health check, for each Service; out, input for `nft -f` in its
//! own namespace.
//!
//! It picks one node for each new flow. The source address is kept; the destination becomes the node port, or is kept too,
//! and a mark says by which node's routes the flow goes.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use super::{
    addresses::Family,
    plan::{Balancer, Delivery},
    service::ServicePlan,
};

const TABLE: &str = "flowskew-balancer";

/// A node that passes the health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Index of the node.
    pub node: usize,
    /// Address of the node.
    pub address: IpAddr,
    /// Ready endpoints on the node: its weight, at least 1.
    pub endpoints: usize,
    /// Its zone, empty without one.
    pub zone: String,
}

/// A Service and the nodes that take its flows.
#[derive(Clone, Debug)]
pub struct Pool<'a> {
    /// The Service.
    pub service: &'a ServicePlan,
    /// The nodes, in the order of the plan.
    pub targets: Vec<Target>,
}

/// The mark of packets that go to a node as they are. 0 is no mark.
#[must_use]
pub fn mark(node: usize) -> usize {
    node.saturating_add(1)
}

/// Replaces the balancer's rules at once. Without targets the address of a Service is not routed, and clients are told so.
#[must_use]
pub fn rules(balancer: Balancer, delivery: Delivery, family: Family, pools: &[Pool]) -> String {
    let ip = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    let mut lines = vec![
        format!("add table {ip} {TABLE}"),
        format!("add chain {ip} {TABLE} pick {{ type nat hook prerouting priority dstnat; }}"),
        format!("add chain {ip} {TABLE} steer {{ type filter hook prerouting priority mangle; }}"),
        format!("flush chain {ip} {TABLE} pick"),
        format!("flush chain {ip} {TABLE} steer"),
    ];
    for (index, pool) in pools.iter().enumerate() {
        let targets = match balancer {
            Balancer::SingleLeader => &pool.targets[..pool.targets.len().min(1)],
            _ => &pool.targets,
        };
        if targets.is_empty() {
            continue;
        }
        let service = pool.service;
        let at_balancer = format!(
            "{ip} daddr {} {} dport {}",
            service.load_balancer_ip, service.protocol, service.port
        );
        let tickets = tickets(balancer, targets);
        let number = match balancer {
            Balancer::SourceHash => format!("jhash {ip} saddr mod {} seed 0x5eed", tickets.len()),
            _ => format!("numgen random mod {}", tickets.len()),
        };
        let choices = |choice: &dyn Fn(usize) -> String| {
            let choices: Vec<_> = tickets
                .iter()
                .enumerate()
                .map(|(number, &node)| format!("{number} : {}", choice(node)))
                .collect();
            choices.join(", ")
        };
        match delivery {
            Delivery::NodePort => {
                let chain = |node| format!("service-{index}-node-{node}");
                for target in targets {
                    let (chain, to) = (chain(target.node), SocketAddr::new(target.address, service.node_port));
                    lines.push(format!("add chain {ip} {TABLE} {chain}"));
                    lines.push(format!("flush chain {ip} {TABLE} {chain}"));
                    lines.push(format!(
                        "add rule {ip} {TABLE} {chain} meta l4proto {} dnat to {to}",
                        service.protocol
                    ));
                }
                lines.push(format!(
                    "add rule {ip} {TABLE} pick {at_balancer} {number} vmap {{ {} }}",
                    choices(&|node| format!("goto {}", chain(node)))
                ));
            }
            // A flow that has its mark keeps it, so datagrams before the first answer go the same way too.
            Delivery::Address => lines.push(format!(
                "add rule {ip} {TABLE} steer {at_balancer} ct mark 0 ct mark set {number} map {{ {} }}",
                choices(&|node| mark(node).to_string())
            )),
        }
    }
    if delivery == Delivery::Address {
        for Pool { service, .. } in pools {
            // Also flows to nodes that take no new ones.
            lines.push(format!(
                "add rule {ip} {TABLE} steer {ip} daddr {} {} dport {} meta mark set ct mark",
                service.load_balancer_ip, service.protocol, service.port
            ));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// The nodes among which a number picks: each once, or once for each endpoint, or so often that zones are equal.
fn tickets(balancer: Balancer, targets: &[Target]) -> Vec<usize> {
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for target in targets {
        *zones.entry(&target.zone).or_default() += 1;
    }
    let of_a_zone = zones.values().copied().fold(1, least_common_multiple);
    let tickets = |target: &Target| match balancer {
        Balancer::Weighted => target.endpoints,
        Balancer::ZoneEqual => of_a_zone / zones[target.zone.as_str()],
        Balancer::Equal | Balancer::SingleLeader | Balancer::SourceHash => 1,
    };
    targets
        .iter()
        .flat_map(|target| std::iter::repeat_n(target.node, tickets(target)))
        .collect()
}

/// Of two numbers that are not 0.
fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut common, mut rest) = (a, b);
    while rest > 0 {
        (common, rest) = (rest, common % rest);
    }
    a / common * b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(family: Family, weights: &[usize]) -> Vec<Target> {
        let target = |(node, &endpoints)| Target {
            node,
            address: family.node_address(node),
            endpoints,
            zone: String::new(),
        };
        weights.iter().enumerate().map(target).collect()
    }

    fn text(balancer: Balancer, delivery: Delivery, family: Family, weights: &[usize]) -> String {
        let service = ServicePlan::example(family);
        let targets = targets(family, weights);
        let pool = Pool {
            service: &service,
            targets,
        };
        rules(balancer, delivery, family, &[pool])
    }

    fn pick(balancer: Balancer, family: Family, weights: &[usize]) -> Option<String> {
        let text = text(balancer, Delivery::NodePort, family, weights);
        text.lines()
            .find_map(|line| line.split_once("dport 8883 ").map(|(_, choice)| choice.to_owned()))
    }

    #[test]
    fn each_kind_picks_its_own_way() {
        let check = |balancer, expected: &str| {
            let found = pick(balancer, Family::V4, &[3, 1]);
            assert_eq!(
                found.map(|rule| rule.replace("service-0-", "")).as_deref(),
                Some(expected)
            );
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
    fn zones_get_the_same_and_so_do_the_nodes_of_a_zone() {
        let check = |zones: &[&str], expected: &[usize]| {
            let mut targets = targets(Family::V4, &vec![1; zones.len()]);
            for (target, zone) in targets.iter_mut().zip(zones) {
                target.zone = (*zone).to_owned();
            }
            assert_eq!(tickets(Balancer::ZoneEqual, &targets), expected);
        };
        check(&["east", "east", "west"], &[0, 1, 2, 2]);
        check(
            &["a", "b", "b", "c", "c", "c"],
            &[0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5],
        );
        check(&["", ""], &[0, 1]);
        check(&[], &[]);
    }

    #[test]
    fn nothing_is_picked_when_no_node_is_healthy() {
        for balancer in [
            Balancer::Equal,
            Balancer::Weighted,
            Balancer::SingleLeader,
            Balancer::SourceHash,
            Balancer::ZoneEqual,
        ] {
            assert_eq!(pick(balancer, Family::V6, &[]), None);
            let text = text(balancer, Delivery::Address, Family::V6, &[]);
            assert!(!text.contains("ct mark set"), "{text}");
        }
    }

    #[test]
    fn the_destination_is_the_node_port() {
        let text = text(Balancer::Equal, Delivery::NodePort, Family::V6, &[1]);
        assert!(
            text.contains("node-0 meta l4proto tcp dnat to [fd00:20::a]:30883\n"),
            "{text}"
        );
    }

    #[test]
    fn the_destination_is_kept_and_a_mark_says_the_node() {
        let text = text(Balancer::Weighted, Delivery::Address, Family::V4, &[1, 2]);
        assert!(!text.contains("dnat to"), "{text}");
        let steer = "steer ip daddr 203.0.113.10 tcp dport 8883";
        assert!(
            text.contains(&format!(
                "{steer} ct mark 0 ct mark set numgen random mod 3 map {{ 0 : 1, 1 : 2, 2 : 2 }}\n"
            )),
            "{text}"
        );
        assert!(text.ends_with(&format!("{steer} meta mark set ct mark\n")), "{text}");
    }

    #[test]
    fn each_service_has_its_own_nodes() {
        let family = Family::V4;
        let first = ServicePlan::example(family);
        let second = ServicePlan {
            protocol: crate::net::service::Protocol::Udp,
            node_port: 30568,
            load_balancer_ip: family.service_addresses(1).1,
            ..first.clone()
        };
        let [one, two] = <[Target; 2]>::try_from(targets(family, &[1, 1])).unwrap();
        let pools = [(&first, one), (&second, two)].map(|(service, target)| Pool {
            service,
            targets: vec![target],
        });
        let text = rules(Balancer::Equal, Delivery::NodePort, family, &pools);
        for rule in [
            "203.0.113.10 tcp dport 8883 numgen random mod 1 vmap { 0 : goto service-0-node-0 }",
            "203.0.113.11 udp dport 8883 numgen random mod 1 vmap { 0 : goto service-1-node-1 }",
            "service-1-node-1 meta l4proto udp dnat to 172.20.0.11:30568",
        ] {
            assert!(text.contains(rule), "{rule} is not in {text}");
        }
    }
}
