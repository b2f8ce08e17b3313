//! The rules kube-proxy writes on one node: in, the Services and their ready endpoints as that node sees them; out, the
//! text for `iptables-restore` or `nft`. Pure functions; the chain names, matches and their order are kube-proxy's.
//!
//! Left out, because nothing in the lab uses them: source ranges, health check ports, internal traffic policy.

mod iptables;
mod names;
mod nftables;

use std::{collections::BTreeSet, net::SocketAddr};

use super::{addresses::Family, plan::ProxyMode, service::ServicePlan};

/// The mark of packets whose source address must be hidden behind the node's.
const MASQUERADE_MARK: &str = "0x4000";

/// What kube-proxy on one node knows.
#[derive(Clone, Debug)]
pub struct NodeView<'a> {
    /// Address family of the rules.
    pub family: Family,
    /// The Services.
    pub services: Vec<ServiceView<'a>>,
}

/// What kube-proxy on one node knows of one Service.
#[derive(Clone, Debug)]
pub struct ServiceView<'a> {
    /// The Service.
    pub service: &'a ServicePlan,
    /// Ready endpoints in the cluster.
    pub all: Vec<SocketAddr>,
    /// Those of them that run on this node.
    pub local: Vec<SocketAddr>,
}

/// One update of a node's rules.
#[derive(Debug, PartialEq, Eq)]
pub struct Rules {
    /// Input of the restore command; it takes effect at once and as a whole.
    pub text: String,
    /// Chains and sets of the Services and their endpoints that are in use after this update.
    pub owned: BTreeSet<String>,
}

/// The chains every node has before it knows any Service.
#[must_use]
pub fn setup(mode: ProxyMode, family: Family) -> String {
    match mode {
        ProxyMode::Iptables => iptables::setup(),
        ProxyMode::Nftables => nftables::setup(family),
    }
}

/// The update that makes a node's rules follow `view`. `previous` is [`Rules::owned`] of the update before: what is no
/// longer in use goes away. Affinity records of endpoints that stay are kept.
#[must_use]
pub fn sync(mode: ProxyMode, view: &NodeView, previous: &BTreeSet<String>) -> Rules {
    match mode {
        ProxyMode::Iptables => iptables::sync(view, previous),
        ProxyMode::Nftables => nftables::sync(view, previous),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::service::{Protocol, TrafficPolicy};

    /// A node that runs the first two of three endpoints of one Service.
    pub(super) fn view(service: &ServicePlan, family: Family) -> NodeView<'_> {
        NodeView {
            family,
            services: vec![service_view(service, family)],
        }
    }

    fn service_view(service: &ServicePlan, family: Family) -> ServiceView<'_> {
        let all: Vec<_> = [(0, 0), (0, 1), (1, 0)]
            .map(|(node, pod)| SocketAddr::new(family.pod_address(node, pod), service.target_port))
            .into();
        ServiceView {
            service,
            local: all[..2].into(),
            all,
        }
    }

    /// The view of one Service with other endpoints.
    fn with<'a>(service: &'a ServicePlan, all: &[SocketAddr], local: &[SocketAddr]) -> NodeView<'a> {
        NodeView {
            family: Family::V4,
            services: vec![ServiceView {
                service,
                all: all.into(),
                local: local.into(),
            }],
        }
    }

    fn update(mode: ProxyMode, change: impl Fn(&mut ServicePlan)) -> String {
        let mut service = ServicePlan::example(Family::V4);
        change(&mut service);
        sync(mode, &view(&service, Family::V4), &BTreeSet::new()).text
    }

    #[test]
    fn without_local_endpoints_external_flows_are_dropped_and_pods_still_served() {
        let service = ServicePlan::example(Family::V4);
        let away = with(&service, &service_view(&service, Family::V4).all, &[]);
        let text = sync(ProxyMode::Iptables, &away, &BTreeSet::new()).text;
        assert_eq!(
            text.matches("has no local endpoints").count(),
            2,
            "load balancer and node port: {text}"
        );
        assert!(
            !text.contains("KUBE-SVL-") && text.contains("-s 10.244.0.0/16 -j KUBE-SVC-"),
            "{text}"
        );

        let text = sync(ProxyMode::Nftables, &away, &BTreeSet::new()).text;
        assert!(text.contains("no-endpoint-nodeports { tcp . 30883 : drop }"), "{text}");
        assert!(
            text.contains("no-endpoint-services { 203.0.113.10 . tcp . 8883 : drop }"),
            "{text}"
        );
        assert!(!text.contains("local-"), "{text}");
    }

    #[test]
    fn without_any_endpoint_everything_is_rejected() {
        let service = ServicePlan::example(Family::V4);
        let none = with(&service, &[], &[]);
        let rules = sync(ProxyMode::Iptables, &none, &BTreeSet::new());
        assert_eq!(rules.text.matches("-j REJECT").count(), 3, "{}", rules.text);
        assert!(rules.owned.is_empty(), "{:?}", rules.owned);
        let rules = sync(ProxyMode::Nftables, &none, &BTreeSet::new());
        assert_eq!(rules.text.matches(": goto reject-chain }").count(), 3, "{}", rules.text);
        assert!(rules.owned.is_empty(), "{:?}", rules.owned);
    }

    #[test]
    fn under_cluster_policy_external_flows_are_masqueraded_and_reach_every_endpoint() {
        for (mode, mark, local) in [
            (
                ProxyMode::Iptables,
                "external destinations\" -j KUBE-MARK-MASQ",
                "KUBE-SVL-",
            ),
            (ProxyMode::Nftables, "jump mark-for-masquerade\n", "local-"),
        ] {
            let text = update(mode, |service| service.policy = TrafficPolicy::Cluster);
            assert!(text.contains(mark) && !text.contains(local), "{text}");
        }
    }

    #[test]
    fn what_is_no_longer_used_goes_away_and_affinity_of_the_rest_stays() {
        let mut service = ServicePlan::example(Family::V4);
        service.affinity_timeout_seconds = Some(60);
        for mode in [ProxyMode::Iptables, ProxyMode::Nftables] {
            let first = sync(mode, &view(&service, Family::V4), &BTreeSet::new());
            let before = service_view(&service, Family::V4);
            let after = with(&service, &before.all[1..], &before.local[1..]);
            let second = sync(mode, &after, &first.owned);
            let gone: Vec<_> = first.owned.difference(&second.owned).collect();
            match mode {
                ProxyMode::Iptables => {
                    assert_eq!(gone.len(), 1);
                    assert!(second.text.contains(&format!("-X {}\n", gone[0])), "{}", second.text);
                    assert_eq!(second.text.matches("\n-X ").count(), 1, "{}", second.text);
                }
                ProxyMode::Nftables => {
                    assert_eq!(gone.len(), 2, "its chain and its affinity set: {gone:?}");
                    assert!(
                        second.text.contains(&format!("delete set ip kube-proxy {}\n", gone[0])),
                        "{}",
                        second.text
                    );
                    assert!(
                        second
                            .text
                            .contains(&format!("flush chain ip kube-proxy {}\n", gone[1])),
                        "{}",
                        second.text
                    );
                    assert_eq!(second.text.matches("delete ").count(), 1, "{}", second.text);
                }
            }
        }
    }

    /// One TCP Service with affinity and one UDP Service without, on the same pods.
    #[test]
    fn services_have_chains_of_their_own_also_on_the_same_pods() {
        let (cluster_ip, load_balancer_ip) = Family::V4.service_addresses(1);
        let first = ServicePlan {
            affinity_timeout_seconds: Some(60),
            ..ServicePlan::example(Family::V4)
        };
        let second = ServicePlan {
            name: "probe".into(),
            protocol: Protocol::Udp,
            port: 5683,
            node_port: 30568,
            cluster_ip,
            load_balancer_ip,
            ..ServicePlan::example(Family::V4)
        };
        let both = NodeView {
            family: Family::V4,
            services: [&first, &second]
                .map(|service| service_view(service, Family::V4))
                .into(),
        };
        for mode in [ProxyMode::Iptables, ProxyMode::Nftables] {
            let alone = |service| sync(mode, &view(service, Family::V4), &BTreeSet::new());
            let rules = sync(mode, &both, &BTreeSet::new());
            let owned: BTreeSet<_> = alone(&first).owned.union(&alone(&second).owned).cloned().collect();
            assert_eq!(rules.owned, owned);
            for service in [&first, &second] {
                for line in alone(service).text.lines() {
                    assert!(rules.text.contains(line), "{line} is not in {}", rules.text);
                }
            }
            assert!(rules.text.contains("10.244.0.2:8883") && rules.text.contains("30568"));
            // What only the second Service needs goes with it.
            let after = sync(mode, &view(&first, Family::V4), &rules.owned);
            let gone: Vec<_> = owned.difference(&after.owned).collect();
            assert_eq!(gone.len(), 6, "three of the Service, one of each endpoint: {gone:?}");
        }
        let text = sync(ProxyMode::Iptables, &both, &BTreeSet::new()).text;
        assert_eq!(text.matches("--dst-type LOCAL -j KUBE-NODEPORTS").count(), 1, "{text}");
        assert!(
            text.contains("-m udp -p udp -j DNAT --to-destination 10.244.1.2:8883"),
            "{text}"
        );
        let text = sync(ProxyMode::Nftables, &both, &BTreeSet::new()).text;
        assert!(text.contains("meta l4proto udp dnat to 10.244.1.2:8883"), "{text}");
        assert!(
            text.contains("service-nodeports { udp . 30568 : goto external-"),
            "{text}"
        );
        assert_eq!(
            text.matches("timeout 60s").count(),
            3,
            "affinity of the first only: {text}"
        );
    }
}
