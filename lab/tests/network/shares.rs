//! Which pod a flow lands on.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    os::unix::fs::MetadataExt as _,
    time::Duration,
};

use flowskew_lab::{
    clients::{Lifetime, OpenFlows},
    net::{Balancer, Family, NetworkPlan, ProxyMode, TrafficPolicy},
};
use tokio::time::sleep;

use crate::support::*;

#[tokio::test]
async fn network_shares_follow_both_tiers_and_sources_are_kept() {
    let Some(_turn) = turn() else { return };
    for (mode, family) in MODES.into_iter().flat_map(|mode| FAMILIES.map(|family| (mode, family))) {
        let (mut network, clients) = start(plan(mode, family)).await;
        let opened = open(&clients, request(family, 3000, 1000)).await;
        for (pod, share) in [("a", 0.25), ("b", 0.25), ("c", 0.5)] {
            assert_share(&opened, pod, share);
        }
        let counts = clients.counts().await.unwrap();
        assert_eq!(counts.opened, opened);
        assert_established(&network, &counts, &["a", "b", "c"]).await;

        let peers = ss(&network, "c", &["state", "established"]);
        let expected: BTreeSet<IpAddr> = (0..1000).map(|n| family.client_source(n)).collect();
        for line in peers.lines() {
            let (peer, _) = line.split_whitespace().nth(3).unwrap().rsplit_once(':').unwrap();
            let peer: IpAddr = peer.trim_matches(['[', ']']).parse().unwrap();
            assert!(expected.contains(&peer), "{peer} is not a client: {line}");
        }

        // The listener, and so every flow, belongs to the pod's control group. `ss` names it by path or by number.
        let listener = ss(&network, "c", &["--cgroup", "state", "listening"]);
        let path = format!("/flowskew-lab/{}/pod-c", network.id());
        let number = cgroup_of_run(network.id()).join("pod-c").metadata().unwrap().ino();
        let named = listener.contains(&path) || listener.contains(&format!("cgroup:unreachable:{number:x}"));
        assert!(named, "neither {path} nor {number:x}: {listener}");
        network.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn network_balancers_pick_nodes_their_own_way() {
    let Some(_turn) = turn() else { return };
    let family = Family::V4;
    for balancer in [Balancer::Weighted, Balancer::SingleLeader, Balancer::SourceHash] {
        let (mut network, clients) = start(NetworkPlan {
            balancer,
            ..plan(ProxyMode::Nftables, family)
        })
        .await;
        let opened = open(&clients, request(family, 2000, 200)).await;
        match balancer {
            Balancer::SingleLeader => {
                assert_eq!(opened.get("c"), None, "{opened:?}");
                assert_share(&opened, "a", 0.5);
            }
            Balancer::SourceHash => {
                let by_source = clients.by_source().await.unwrap();
                assert_eq!(by_source.len(), 200);
                let on_node_1 = |pods: &BTreeMap<String, u64>| pods.contains_key("c");
                assert!(
                    by_source.values().all(|pods| !on_node_1(pods) || pods.len() == 1),
                    "{by_source:?}"
                );
                let share = by_source.values().filter(|pods| on_node_1(pods)).count() as f64 / 200.0;
                assert!((0.3..0.7).contains(&share), "{share} of the sources are on node-1");
            }
            _ => ["a", "b", "c"]
                .iter()
                .for_each(|pod| assert_share(&opened, pod, 1.0 / 3.0)),
        }
        network.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn network_affinity_pins_a_source_on_each_node_until_it_times_out() {
    let Some(_turn) = turn() else { return };
    for (mode, family) in MODES.into_iter().zip(FAMILIES) {
        let mut plan = plan(mode, family);
        plan.services[0].affinity_timeout_seconds = Some(3);
        let (mut network, clients) = start(plan).await;
        let flows = || OpenFlows {
            lifetime: Lifetime::Fixed { ms: 0 },
            ..request(family, 1000, 50)
        };
        // The pods of node-0 that each source has met.
        let pins = async || -> Vec<BTreeSet<String>> {
            let by_source = clients.by_source().await.unwrap().into_values();
            by_source
                .map(|pods| pods.into_keys().filter(|pod| pod != "c").collect())
                .collect()
        };
        open(&clients, flows()).await;
        // Endpoints are written anew, and everybody stays where they were.
        network.set_endpoints(&names(&["a", "b", "c"])).await.unwrap();
        open(&clients, flows()).await;
        let pinned = pins().await;
        assert!(
            pinned.iter().all(|pods| pods.len() <= 1),
            "{mode:?}: a source met both pods of node-0: {pinned:?}"
        );
        let distinct: BTreeSet<_> = pinned.iter().collect();
        assert!(distinct.len() > 1, "all sources are on one pod: {pinned:?}");

        sleep(Duration::from_millis(4500)).await;
        open(&clients, flows()).await;
        let moved = pins().await.iter().filter(|pods| pods.len() == 2).count();
        assert!(
            moved > 10,
            "{mode:?}: only {moved} of 50 sources moved after the timeout"
        );
        network.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn network_under_cluster_policy_hides_sources_and_uses_every_node() {
    let Some(_turn) = turn() else { return };
    for (mode, family) in MODES.into_iter().zip(FAMILIES) {
        let mut plan = plan(mode, family);
        plan.services[0].policy = TrafficPolicy::Cluster;
        let (mut network, clients) = start(plan).await;
        let opened = open(&clients, request(family, 1500, 100)).await;
        ["a", "b", "c"]
            .iter()
            .for_each(|pod| assert_share(&opened, pod, 1.0 / 3.0));
        let peers = ss(&network, "c", &["state", "established"]);
        for node in ["node-0", "node-1", "node-2"] {
            let address = network.node_address(node).unwrap();
            assert!(
                peers.contains(&address.to_string()),
                "no flow came through {node}: {peers:.500}"
            );
        }
        assert!(!peers.contains(&family.client_source(0).to_string()), "{peers:.500}");
        network.destroy().await.unwrap();
    }
}
