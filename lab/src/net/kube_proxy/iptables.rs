//! iptables mode: in, a node's view; out, input for `iptables-restore --noflush`.
//!
//! A flow to the node port goes KUBE-SERVICES, KUBE-NODEPORTS, KUBE-EXT, then KUBE-SVL (local endpoints) or KUBE-SVC
//! (all endpoints), and ends in the KUBE-SEP chain of one endpoint, which rewrites the destination.

use std::{collections::BTreeSet, net::SocketAddr};

use super::{MASQUERADE_MARK as MARK, NodeView, Rules, ServiceView, names};
use crate::net::{addresses::Family, service::TrafficPolicy};

/// Jumps from the kernel's chains. Written once: a second time would append them again.
pub fn setup() -> String {
    let services = r#"-m comment --comment "kubernetes service portals" -j KUBE-SERVICES"#;
    let external = r#"-m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES"#;
    let new = "-m conntrack --ctstate NEW";
    let known =
        r#"-m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED"#;
    format!(
        r#"*filter
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
-A INPUT {new} {external}
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD {new} {services}
-A FORWARD {new} {external}
-A OUTPUT {new} {services}
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark {MARK}/{MARK} -j ACCEPT
-A KUBE-FORWARD {known} -j ACCEPT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING {services}
-A OUTPUT {services}
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark {MARK}/{MARK} -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark {MARK}
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --or-mark {MARK}
COMMIT
"#
    )
}

/// See [`super::sync`]. A chain that is declared is emptied first.
pub fn sync(view: &NodeView, previous: &BTreeSet<String>) -> Rules {
    let mut tables = Tables::default();
    for service in &view.services {
        Writer::new(view.family, service, &mut tables).write();
    }
    let owned: BTreeSet<String> = tables.chains.iter().cloned().collect();
    let stale: Vec<&String> = previous.difference(&owned).collect();
    let declare = |chains: &[&str]| {
        chains
            .iter()
            .map(|chain| format!(":{chain} - [0:0]"))
            .collect::<Vec<_>>()
    };

    let mut lines = vec!["*filter".into()];
    lines.extend(declare(&["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"]));
    lines.extend(tables.filter);
    lines.extend(["COMMIT".into(), "*nat".into()]);
    lines.extend(declare(&["KUBE-SERVICES", "KUBE-NODEPORTS"]));
    lines.extend(
        owned
            .iter()
            .chain(stale.iter().copied())
            .map(|chain| format!(":{chain} - [0:0]")),
    );
    lines.extend(tables.nat);
    lines.push(
        "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in \
         this chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS"
            .into(),
    );
    lines.extend(stale.iter().map(|chain| format!("-X {chain}")));
    lines.push("COMMIT\n".into());
    Rules {
        text: lines.join("\n"),
        owned,
    }
}

/// The rules of both tables while they are collected.
#[derive(Default)]
struct Tables {
    filter: Vec<String>,
    nat: Vec<String>,
    chains: Vec<String>,
}

/// Writes the rules of one Service.
struct Writer<'a> {
    family: Family,
    view: &'a ServiceView<'a>,
    /// `namespace/name:port`.
    name: String,
    /// The matches of its protocol.
    protocol: String,
    tables: &'a mut Tables,
}

impl<'a> Writer<'a> {
    fn new(family: Family, view: &'a ServiceView<'a>, tables: &'a mut Tables) -> Self {
        let word = view.service.protocol;
        Self {
            family,
            view,
            name: names::service_port(view.service),
            protocol: format!("-m {word} -p {word}"),
            tables,
        }
    }

    fn write(&mut self) {
        let view = self.view;
        let (service, name, protocol) = (view.service, self.name.clone(), self.protocol.clone());
        let (port, node_port) = (service.port, service.node_port);
        let (cluster_ip, balancer_ip) = (service.cluster_ip, service.load_balancer_ip);
        let at_balancer = format!("{protocol} -d {balancer_ip} --dport {port}");
        let at_node = format!("-m addrtype --dst-type LOCAL {protocol} --dport {node_port}");
        let at_cluster = format!("{protocol} -d {cluster_ip} --dport {port}");

        if view.all.is_empty() {
            let reason = format!("-m comment --comment \"{name} has no endpoints\"");
            self.tables
                .filter
                .push(format!("-A KUBE-SERVICES {reason} {at_cluster} -j REJECT"));
            for destination in [at_balancer, at_node] {
                self.tables
                    .filter
                    .push(format!("-A KUBE-EXTERNAL-SERVICES {reason} {destination} -j REJECT"));
            }
            return;
        }

        let svc = self.chain("KUBE-SVC-");
        let ext = self.chain("KUBE-EXT-");
        self.tables.nat.extend([
            format!("-A KUBE-SERVICES -m comment --comment \"{name} cluster IP\" {at_cluster} -j {svc}"),
            format!("-A KUBE-SERVICES -m comment --comment \"{name} loadbalancer IP\" {at_balancer} -j {ext}"),
            format!("-A KUBE-NODEPORTS -m comment --comment {name} {protocol} --dport {node_port} -j {ext}"),
        ]);

        let pods = self.family.cluster_cidr();
        let destinations = format!("{name} external destinations");
        let comment = |text: &str| format!("-m comment --comment \"{text}\"");
        let from_node = "-m addrtype --src-type LOCAL";
        match service.policy {
            TrafficPolicy::Cluster => self.tables.nat.extend([
                format!(
                    "-A {ext} {} -j KUBE-MARK-MASQ",
                    comment(&format!("masquerade traffic for {destinations}"))
                ),
                format!("-A {ext} -j {svc}"),
            ]),
            TrafficPolicy::Local => {
                let from_pods = comment(&format!("pod traffic for {destinations}"));
                let masquerade = comment(&format!("masquerade LOCAL traffic for {destinations}"));
                let route = comment(&format!("route LOCAL traffic for {destinations}"));
                self.tables.nat.extend([
                    format!("-A {ext} {from_pods} -s {pods} -j {svc}"),
                    format!("-A {ext} {masquerade} {from_node} -j KUBE-MARK-MASQ"),
                    format!("-A {ext} {route} {from_node} -j {svc}"),
                ]);
                if view.local.is_empty() {
                    let reason = format!("-m comment --comment \"{name} has no local endpoints\"");
                    for destination in [at_balancer, at_node] {
                        self.tables
                            .filter
                            .push(format!("-A KUBE-EXTERNAL-SERVICES {reason} {destination} -j DROP"));
                    }
                } else {
                    let svl = self.chain("KUBE-SVL-");
                    self.tables.nat.push(format!("-A {ext} -j {svl}"));
                    self.choose(&svl, &view.local);
                }
            }
        }

        self.tables.nat.push(format!(
            "-A {svc} -m comment --comment \"{name} cluster IP\" {at_cluster} ! -s {pods} -j KUBE-MARK-MASQ"
        ));
        self.choose(&svc, &view.all);
        view.all.iter().for_each(|&endpoint| self.endpoint(endpoint));
    }

    fn chain(&mut self, prefix: &str) -> String {
        let chain = names::iptables_service(prefix, self.view.service);
        self.tables.chains.push(chain.clone());
        chain
    }

    /// A source that is remembered goes where it went; else each of n endpoints is taken with probability 1/n: the
    /// first with 1/n, the next with 1/(n-1) of what is left, the last without condition.
    fn choose(&mut self, chain: &str, endpoints: &[SocketAddr]) {
        let (service, name) = (self.view.service, &self.name);
        if let Some(seconds) = service.affinity_timeout_seconds {
            self.tables.nat.extend(endpoints.iter().map(|&endpoint| {
                let sep = names::iptables_endpoint(service, endpoint);
                let remembered = format!("-m recent --name {sep} --rcheck --seconds {seconds} --reap");
                format!("-A {chain} -m comment --comment {name} {remembered} -j {sep}")
            }));
        }
        self.tables
            .nat
            .extend(endpoints.iter().enumerate().map(|(index, &endpoint)| {
                let sep = names::iptables_endpoint(service, endpoint);
                let left = endpoints.len() - index;
                let probability = match left {
                    1 => String::new(),
                    _ => format!(" -m statistic --mode random --probability {:.10}", 1.0 / left as f64),
                };
                format!("-A {chain} -m comment --comment \"{name} -> {endpoint}\"{probability} -j {sep}")
            }));
    }

    fn endpoint(&mut self, endpoint: SocketAddr) {
        let (service, name, protocol) = (self.view.service, &self.name, &self.protocol);
        let sep = names::iptables_endpoint(service, endpoint);
        let remember = match service.affinity_timeout_seconds {
            Some(_) => format!(" -m recent --name {sep} --set"),
            None => String::new(),
        };
        self.tables.nat.extend([
            format!(
                "-A {sep} -m comment --comment {name} -s {} -j KUBE-MARK-MASQ",
                endpoint.ip()
            ),
            format!("-A {sep} -m comment --comment {name}{remember} {protocol} -j DNAT --to-destination {endpoint}"),
        ]);
        self.tables.chains.push(sep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{kube_proxy::tests::view, service::ServicePlan};

    #[test]
    fn local_policy_with_affinity() {
        let mut service = ServicePlan::example(Family::V4);
        service.affinity_timeout_seconds = Some(10_800);
        let rules = sync(&view(&service, Family::V4), &BTreeSet::new());
        assert_eq!(rules.text, include_str!("golden/local_affinity.iptables"));
    }

    #[test]
    fn the_ladder_gives_every_endpoint_the_same_chance() {
        let service = ServicePlan::example(Family::V6);
        for count in 1..=9 {
            let mut view = view(&service, Family::V6);
            let endpoints: Vec<_> = (0..count)
                .map(|pod| SocketAddr::new(Family::V6.pod_address(0, pod), 8883))
                .collect();
            (view.services[0].all, view.services[0].local) = (endpoints.clone(), endpoints);
            let svl = names::iptables_service("KUBE-SVL-", &service);
            let text = sync(&view, &BTreeSet::new()).text;
            let mut left = 1.0;
            let mut shares = vec![];
            for rule in text.lines().filter(|line| line.starts_with(&format!("-A {svl} "))) {
                let taken = match rule.split_once("--probability ") {
                    Some((_, rest)) => left * rest.split(' ').next().unwrap().parse::<f64>().unwrap(),
                    None => left,
                };
                shares.push(taken);
                left -= taken;
            }
            assert_eq!(shares.len(), count);
            assert!(
                shares.iter().all(|share| (share - 1.0 / count as f64).abs() < 1e-9),
                "{shares:?}"
            );
        }
    }
}
