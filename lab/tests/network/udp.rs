//! UDP Services: a flow is a client port, and goes where the rules send its datagrams.

use std::collections::{BTreeMap, BTreeSet};

use flowskew_lab::{
    clients::OpenFlows,
    net::{Delivery, Family, NetworkPlan, PodPlan, Protocol, ProxyMode, StopPod},
};

use crate::support::*;

fn udp(mode: ProxyMode, family: Family, delivery: Delivery, affinity: Option<u32>) -> NetworkPlan {
    let mut plan = plan(mode, family);
    plan.delivery = delivery;
    plan.services[0].protocol = Protocol::Udp;
    plan.services[0].affinity_timeout_seconds = affinity;
    plan
}

#[tokio::test]
async fn network_udp_flows_stay_until_their_endpoint_goes() {
    let Some(_turn) = turn() else { return };
    let deliveries = [Delivery::NodePort, Delivery::Address];
    for ((mode, family), delivery) in MODES.into_iter().zip(FAMILIES).zip(deliveries) {
        let (mut network, clients) = start(udp(mode, family, delivery, None)).await;
        let opened = open(
            &clients,
            OpenFlows {
                datagram_every_ms: Some(100),
                connect_timeout_ms: 5000,
                ..request(family, 900, 90)
            },
        )
        .await;
        for (pod, share) in [("a", 0.25), ("b", 0.25), ("c", 0.5)] {
            assert_share(&opened, pod, share);
        }
        let (on_b, on_c) = (opened["b"], opened["c"]);

        // The rules are written anew, and no flow moves.
        network.set_endpoints(&names(&["c", "b", "a"])).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
        assert_eq!(clients.counts().await.unwrap().open, opened);

        // The flows of b go to the other pod of its node, and no others move.
        network.set_endpoints(&names(&["a", "c"])).await.unwrap();
        network.stop_pod("b", StopPod::Terminate).await.unwrap();
        let counts = until(&clients, |counts| counts.open["b"] == 0).await;
        assert_eq!(counts.reconnected, on_b);
        assert_eq!(counts.server_closed, [("b".to_owned(), on_b)].into());
        assert_eq!(counts.open["a"], opened["a"] + on_b);
        assert_eq!(counts.opened["a"], opened["a"] + on_b);

        // When the last pod of a node goes, its flows go to another node.
        network.set_endpoints(&names(&["a"])).await.unwrap();
        network.stop_pod("c", StopPod::Kill).await.unwrap();
        let counts = until(&clients, |counts| counts.open["a"] == 900).await;
        assert_eq!(counts.reconnected, on_b + on_c);
        assert_eq!(clients.close(Default::default()).await.unwrap(), 900);
        assert_eq!(
            clients.counts().await.unwrap().client_closed,
            [("a".to_owned(), 900)].into()
        );
        network.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn network_udp_affinity_and_failures_are_as_over_tcp() {
    let Some(_turn) = turn() else { return };
    let family = Family::V4;
    for mode in MODES {
        let (mut network, clients) = start(udp(mode, family, Delivery::NodePort, Some(600))).await;
        open(&clients, request(family, 600, 30)).await;
        let by_source = clients.by_source().await.unwrap().into_values();
        let pins: Vec<BTreeSet<String>> = by_source
            .map(|pods| pods.into_keys().filter(|pod| pod != "c").collect())
            .collect();
        assert!(pins.iter().all(|pods| pods.len() <= 1), "{mode:?}: {pins:?}");
        assert!(
            pins.iter().collect::<BTreeSet<_>>().len() > 1,
            "all are on one pod: {pins:?}"
        );

        let flows = || OpenFlows {
            connect_timeout_ms: 500,
            concurrency: 300,
            ..request(family, 300, 30)
        };
        let total = |summary: &flowskew_lab::clients::OpenSummary| -> BTreeMap<String, u64> {
            let mut all = summary.opened.clone();
            all.extend(summary.failed.clone());
            all
        };
        network.keep_in_balancer(&names(&["node-2"])).await.unwrap();
        let all = total(&clients.open(flows()).await.unwrap());
        assert_eq!(all.values().sum::<u64>(), 300);
        assert_share(&all, "timeout", 1.0 / 3.0);
        network.keep_in_balancer(&[]).await.unwrap();

        network.start(PodPlan::new("mute", "node-2", vec![])).await.unwrap();
        network.set_endpoints(&names(&["a", "b", "c", "mute"])).await.unwrap();
        let all = total(&clients.open(flows()).await.unwrap());
        // The kernel limits how many it tells so in a second.
        assert!(all["refused"] > 0, "{all:?}");
        let unserved = all["refused"] + all.get("timeout").copied().unwrap_or(0);
        assert_share(
            &[("unserved".into(), unserved), ("rest".into(), 300 - unserved)].into(),
            "unserved",
            1.0 / 3.0,
        );
        network.destroy().await.unwrap();
    }
}
