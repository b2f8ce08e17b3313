//! nftables mode: in, a node's view; out, input for `nft -f`.
//!
//! A flow to the node port goes nat-prerouting, services, by the map `service-nodeports` to the Service's external-
//! chain, then local- (local endpoints) or service- (all endpoints), and ends in the endpoint- chain of one endpoint.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use super::{MASQUERADE_MARK as MARK, NodeView, Rules, ServiceView, names};
use crate::net::{addresses::Family, service::TrafficPolicy};

const AFFINITY: &str = "affinity-";

/// What is filled anew in every update.
const CONTAINERS: [(&str, &str); 5] = [
    ("set", "cluster-ips"),
    ("map", "no-endpoint-services"),
    ("map", "no-endpoint-nodeports"),
    ("map", "service-ips"),
    ("map", "service-nodeports"),
];

/// Keyword of the table and of address matches: `ip` or `ip6`.
fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// Type of addresses in sets and maps.
fn address_type(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4_addr",
        Family::V6 => "ipv6_addr",
    }
}

/// The table with its base chains, sets and maps.
pub fn setup(family: Family) -> String {
    let (ip, address) = (keyword(family), address_type(family));
    let no_localhost = match family {
        Family::V4 => "ip daddr != 127.0.0.0/8",
        Family::V6 => "ip6 daddr != ::1",
    };
    format!(
        r#"table {ip} kube-proxy {{
    comment "rules for kube-proxy"
    set cluster-ips {{ type {address}; comment "Active ClusterIPs"; }}
    map no-endpoint-services {{ type {address} . inet_proto . inet_service : verdict; comment "vmap to drop or reject packets to services with no endpoints"; }}
    map no-endpoint-nodeports {{ type inet_proto . inet_service : verdict; comment "vmap to drop or reject packets to service nodeports with no endpoints"; }}
    map service-ips {{ type {address} . inet_proto . inet_service : verdict; comment "ClusterIP, ExternalIP and LoadBalancer IP traffic"; }}
    map service-nodeports {{ type inet_proto . inet_service : verdict; comment "NodePort traffic"; }}
    chain reject-chain {{ reject; }}
    chain mark-for-masquerade {{ mark set mark or {MARK}; }}
    chain masquerading {{
        mark and {MARK} == 0 return
        mark set mark xor {MARK}
        masquerade fully-random
    }}
    chain nodeport-endpoints-check {{ {no_localhost} meta l4proto . th dport vmap @no-endpoint-nodeports; }}
    chain service-endpoints-check {{ {ip} daddr . meta l4proto . th dport vmap @no-endpoint-services; }}
    chain cluster-ips-check {{ {ip} daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"; }}
    chain services {{
        {ip} daddr . meta l4proto . th dport vmap @service-ips
        fib daddr type local {no_localhost} meta l4proto . th dport vmap @service-nodeports
    }}
    chain filter-input {{
        type filter hook input priority -110;
        ct state new jump nodeport-endpoints-check
        ct state new jump service-endpoints-check
    }}
    chain filter-forward {{
        type filter hook forward priority -110;
        ct state new jump service-endpoints-check
        ct state new jump cluster-ips-check
    }}
    chain filter-output {{
        type filter hook output priority -110;
        ct state new jump service-endpoints-check
    }}
    chain filter-output-post-dnat {{
        type filter hook output priority -90;
        ct state new jump cluster-ips-check
    }}
    chain nat-prerouting {{ type nat hook prerouting priority -100; jump services; }}
    chain nat-output {{ type nat hook output priority -100; jump services; }}
    chain nat-postrouting {{ type nat hook postrouting priority 100; jump masquerading; }}
}}
"#
    )
}

/// See [`super::sync`]. Chains that are no longer used are emptied and left: before kernel 6.2 a chain cannot be
/// deleted in the transaction that deletes the last map element pointing to it.
pub fn sync(view: &NodeView, previous: &BTreeSet<String>) -> Rules {
    let ip = keyword(view.family);
    let mut transaction = Transaction::default();
    for service in &view.services {
        Writer {
            family: view.family,
            ip,
            view: service,
            transaction: &mut transaction,
        }
        .write();
    }
    let Transaction {
        lines: collected,
        chains,
        sets,
    } = transaction;
    let owned: BTreeSet<String> = chains.into_iter().chain(sets.keys().cloned()).collect();

    let mut lines: Vec<String> = CONTAINERS
        .iter()
        .map(|(kind, name)| format!("flush {kind} {ip} kube-proxy {name}"))
        .collect();
    for chain in owned.union(previous).filter(|name| !name.starts_with(AFFINITY)) {
        lines.push(format!("add chain {ip} kube-proxy {chain}"));
        lines.push(format!("flush chain {ip} kube-proxy {chain}"));
    }
    let kind = address_type(view.family);
    lines.extend(sets.iter().map(|(set, seconds)| {
        format!("add set {ip} kube-proxy {set} {{ type {kind}; flags dynamic,timeout; timeout {seconds}s; }}")
    }));
    lines.extend(collected);
    lines.extend(
        previous
            .difference(&owned)
            .filter(|name| name.starts_with(AFFINITY))
            .map(|set| format!("delete set {ip} kube-proxy {set}")),
    );
    lines.push(String::new());
    Rules {
        text: lines.join("\n"),
        owned,
    }
}

/// Rules and elements while they are collected.
#[derive(Default)]
struct Transaction {
    lines: Vec<String>,
    chains: BTreeSet<String>,
    /// Affinity sets, with their timeout in seconds.
    sets: BTreeMap<String, u32>,
}

/// Writes the rules of one Service.
struct Writer<'a> {
    family: Family,
    ip: &'static str,
    view: &'a ServiceView<'a>,
    transaction: &'a mut Transaction,
}

impl Writer<'_> {
    fn write(&mut self) {
        let (view, ip) = (self.view, self.ip);
        let service = view.service;
        let protocol = service.protocol;
        let at_cluster = format!("{} . {protocol} . {}", service.cluster_ip, service.port);
        let at_balancer = format!("{} . {protocol} . {}", service.load_balancer_ip, service.port);
        let at_node = format!("{protocol} . {}", service.node_port);

        self.element("cluster-ips", &service.cluster_ip.to_string());
        if view.all.is_empty() {
            self.element("no-endpoint-services", &format!("{at_cluster} : goto reject-chain"));
            self.element("no-endpoint-services", &format!("{at_balancer} : goto reject-chain"));
            self.element("no-endpoint-nodeports", &format!("{at_node} : goto reject-chain"));
            return;
        }

        let cluster = self.chain("service-");
        let external = self.chain("external-");
        self.element("service-ips", &format!("{at_cluster} : goto {cluster}"));
        self.element("service-ips", &format!("{at_balancer} : goto {external}"));
        self.element("service-nodeports", &format!("{at_node} : goto {external}"));

        let pods = self.family.cluster_cidr();
        let mask = "jump mark-for-masquerade";
        self.rule(
            &cluster,
            &format!(
                "{ip} daddr {} {protocol} dport {} {ip} saddr != {pods} {mask}",
                service.cluster_ip, service.port
            ),
        );
        match service.policy {
            TrafficPolicy::Cluster => {
                self.rule(&external, mask);
                self.rule(&external, &format!("goto {cluster}"));
            }
            TrafficPolicy::Local => {
                let local = "fib saddr type local";
                self.rule(
                    &external,
                    &format!("{ip} saddr {pods} goto {cluster} comment \"short-circuit pod traffic\""),
                );
                self.rule(
                    &external,
                    &format!("{local} {mask} comment \"masquerade local traffic\""),
                );
                self.rule(
                    &external,
                    &format!("{local} goto {cluster} comment \"short-circuit local traffic\""),
                );
                if view.local.is_empty() {
                    self.element("no-endpoint-services", &format!("{at_balancer} : drop"));
                    self.element("no-endpoint-nodeports", &format!("{at_node} : drop"));
                } else {
                    let chain = self.chain("local-");
                    self.rule(&external, &format!("goto {chain}"));
                    self.choose(&chain, &view.local);
                }
            }
        }
        self.choose(&cluster, &view.all);
        view.all.iter().for_each(|&endpoint| self.endpoint(endpoint));
    }

    fn rule(&mut self, chain: &str, rule: &str) {
        self.transaction
            .lines
            .push(format!("add rule {} kube-proxy {chain} {rule}", self.ip));
    }

    fn element(&mut self, container: &str, element: &str) {
        self.transaction.lines.push(format!(
            "add element {} kube-proxy {container} {{ {element} }}",
            self.ip
        ));
    }

    fn chain(&mut self, prefix: &str) -> String {
        let chain = names::nftables_service(prefix, self.view.service);
        self.transaction.chains.insert(chain.clone());
        chain
    }

    /// A source that is remembered goes where it went; else a random number picks one of the endpoints.
    fn choose(&mut self, chain: &str, endpoints: &[SocketAddr]) {
        let (service, ip) = (self.view.service, self.ip);
        if service.affinity_timeout_seconds.is_some() {
            for &endpoint in endpoints {
                let set = names::nftables_endpoint(AFFINITY, service, endpoint);
                let target = names::nftables_endpoint("endpoint-", service, endpoint);
                self.rule(chain, &format!("{ip} saddr @{set} goto {target}"));
            }
        }
        let targets: Vec<_> = endpoints
            .iter()
            .enumerate()
            .map(|(index, &endpoint)| {
                format!(
                    "{index} : goto {}",
                    names::nftables_endpoint("endpoint-", service, endpoint)
                )
            })
            .collect();
        self.rule(
            chain,
            &format!("numgen random mod {} vmap {{ {} }}", targets.len(), targets.join(" , ")),
        );
    }

    fn endpoint(&mut self, endpoint: SocketAddr) {
        let (service, ip) = (self.view.service, self.ip);
        let chain = names::nftables_endpoint("endpoint-", service, endpoint);
        self.rule(
            &chain,
            &format!("{ip} saddr {} jump mark-for-masquerade", endpoint.ip()),
        );
        if let Some(seconds) = service.affinity_timeout_seconds {
            let set = names::nftables_endpoint(AFFINITY, service, endpoint);
            self.rule(&chain, &format!("update @{set} {{ {ip} saddr }}"));
            self.transaction.sets.insert(set, seconds);
        }
        self.rule(&chain, &format!("meta l4proto {} dnat to {endpoint}", service.protocol));
        self.transaction.chains.insert(chain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{kube_proxy::tests::view, service::ServicePlan};

    #[test]
    fn local_policy_with_affinity() {
        let mut service = ServicePlan::example(Family::V6);
        service.affinity_timeout_seconds = Some(10_800);
        let rules = sync(&view(&service, Family::V6), &BTreeSet::new());
        assert_eq!(rules.text, include_str!("golden/local_affinity.nft"));
    }
}
