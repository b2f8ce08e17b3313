//! The rules kube-proxy writes on one node: in, the Service and its ready endpoints as that node sees them; out, the
//! text for `iptables-restore` or `nft`. Pure functions; the chain names, matches and their order are kube-proxy's.
//!
//! Left out, because nothing in the lab uses them: source ranges, health check ports, UDP, internal traffic policy.

mod iptables;
mod names;
mod nftables;

use std::{collections::BTreeSet, net::SocketAddr};

use super::{
    addresses::Family,
    plan::{ProxyMode, ServicePlan},
};

/// The mark of packets whose source address must be hidden behind the node's.
const MASQUERADE_MARK: &str = "0x4000";

/// What kube-proxy on one node knows.
#[derive(Clone, Debug)]
pub struct NodeView<'a> {
    /// Address family of the rules.
    pub family: Family,
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
    /// Chains and sets of the Service and its endpoints that are in use after this update.
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
    use crate::net::plan::TrafficPolicy;

    /// A node that runs the first two of three endpoints.
    pub(super) fn view(service: &ServicePlan, family: Family) -> NodeView<'_> {
        let all: Vec<_> = [(0, 0), (0, 1), (1, 0)]
            .map(|(node, pod)| SocketAddr::new(family.pod_address(node, pod), service.target_port))
            .into();
        NodeView {
            family,
            service,
            local: all[..2].into(),
            all,
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
        let away = NodeView {
            local: vec![],
            ..view(&service, Family::V4)
        };
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
        let none = NodeView {
            local: vec![],
            all: vec![],
            ..view(&service, Family::V4)
        };
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
            let before = view(&service, Family::V4);
            let first = sync(mode, &before, &BTreeSet::new());
            let after = NodeView {
                all: before.all[1..].into(),
                local: before.local[1..].into(),
                ..before
            };
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
}
