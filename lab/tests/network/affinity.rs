//! How many clients the rules of kube-proxy remember.

use std::collections::{BTreeMap, BTreeSet};

use flowskew_lab::{
    clients::{Lifetime, OpenFlows, Pick},
    net::{Door, Family, Origin, ProxyMode},
};

use crate::support::*;

/// A list of iptables mode holds so many addresses.
const LIST: usize = 100;

#[tokio::test]
async fn network_lists_of_iptables_mode_forget_and_sets_of_nftables_mode_do_not() {
    let Some(_turn) = turn() else { return };
    for (mode, family) in [
        (ProxyMode::Iptables, Family::V4),
        (ProxyMode::Iptables, Family::V6),
        (ProxyMode::Nftables, Family::V4),
        (ProxyMode::Nftables, Family::V6),
    ] {
        let mut plan = plan(mode, family);
        plan.services[0].affinity_timeout_seconds = Some(600);
        let (mut network, _) = start(plan).await;
        let door = Door::NodePort("node-0".to_owned());
        let clients = network.clients_through(0, &Origin::External, &door).await.unwrap();
        // Few enough at one time that all others come between two flows of a client.
        let round = |sources: u32| OpenFlows {
            lifetime: Lifetime::Fixed { ms: 0 },
            concurrency: 8,
            pick: Pick::Shuffled { seed: 1 },
            ..request(family, u64::from(sources) * 4, sources)
        };
        let strays = |by_source: &BTreeMap<_, BTreeMap<String, u64>>| {
            let on_both = |pods: &&BTreeMap<String, u64>| pods.contains_key("a") && pods.contains_key("b");
            by_source.values().filter(on_both).count()
        };
        // About half of a list for each pod.
        open(&clients, round(LIST as u32)).await;
        assert_eq!(strays(&clients.by_source().await.unwrap()), 0, "{mode:?} {family}");
        // Three lists for each pod.
        open(&clients, round(6 * LIST as u32)).await;
        let by_source = clients.by_source().await.unwrap();
        match mode {
            // Of three returns hardly one is remembered; of the others half go astray.
            ProxyMode::Iptables => assert!(strays(&by_source) > 300, "{} of 600", strays(&by_source)),
            ProxyMode::Nftables => {
                assert_eq!(strays(&by_source), 0);
                let pods: BTreeSet<_> = by_source.values().flat_map(BTreeMap::keys).collect();
                assert_eq!(pods.len(), 2);
            }
        }
        network.destroy().await.unwrap();
    }
}
