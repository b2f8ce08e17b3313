//! Several Services, nodes that cannot serve them, and very many flows.

use std::time::{Duration, Instant};

use flowskew_lab::{
    clients::{Counts, Lifetime, OpenFlows},
    net::{Delivery, Door, Family, Listen, NetworkPlan, Origin, PodPlan, Protocol, ProxyMode},
};

use crate::support::*;

#[tokio::test]
async fn network_services_on_the_same_pods_are_apart() {
    let Some(_turn) = turn() else { return };
    for (mode, family) in MODES.into_iter().zip(FAMILIES) {
        let mut services = services(family, &["gateway", "api"]);
        services[1].affinity_timeout_seconds = Some(600);
        let (mut network, gateway) = start(NetworkPlan {
            services,
            ..plan(mode, family)
        })
        .await;
        let api = network
            .clients_through(1, &Origin::External, &Door::LoadBalancer)
            .await
            .unwrap();
        let to_gateway = open(&gateway, request(family, 1000, 50)).await;
        let to_api = open(&api, request(family, 1000, 50)).await;
        for (pod, share) in [("a", 0.25), ("b", 0.25), ("c", 0.5)] {
            assert_share(&to_gateway, pod, share);
        }
        assert_share(&to_api, "c", 0.5);
        let pins = |by_source: &std::collections::BTreeMap<_, std::collections::BTreeMap<String, u64>>| {
            let both =
                |pods: &&std::collections::BTreeMap<String, u64>| pods.contains_key("a") && pods.contains_key("b");
            by_source.values().filter(both).count()
        };
        assert!(pins(&gateway.by_source().await.unwrap()) > 25, "no affinity");
        assert_eq!(pins(&api.by_source().await.unwrap()), 0, "affinity");

        // The kernel sees the flows of both at the same port of the same pods.
        let mut both: Counts = gateway.counts().await.unwrap();
        for (pod, open) in api.counts().await.unwrap().open {
            *both.open.entry(pod).or_default() += open;
        }
        assert_established(&network, &both, &["a", "b", "c"]).await;

        // Each has its own endpoints.
        let only_c = at(&[("c", 8883)]);
        let all = at(&[("a", 8883), ("b", 8883), ("c", 8883)]);
        network.set_service_endpoints(&[all, only_c]).await.unwrap();
        let to_api = open(&api, request(family, 100, 50)).await;
        assert_eq!(to_api, [("c".to_owned(), 100)].into());
        let to_gateway = open(&gateway, request(family, 200, 50)).await;
        assert_eq!(to_gateway.len(), 3, "{to_gateway:?}");
        network.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn network_attempts_at_a_node_that_cannot_serve_are_told_apart() {
    let Some(_turn) = turn() else { return };
    let family = Family::V4;
    for (mode, delivery) in MODES.into_iter().zip([Delivery::NodePort, Delivery::Address]).chain([
        (ProxyMode::Iptables, Delivery::Address),
        (ProxyMode::Nftables, Delivery::NodePort),
    ]) {
        let (mut network, clients) = start(NetworkPlan {
            delivery,
            ..plan(mode, family)
        })
        .await;
        let flows = || OpenFlows {
            connect_timeout_ms: 1500,
            concurrency: 600,
            ..request(family, 600, 20)
        };
        // The balancer is late: node-2 has no pod, and drops what comes.
        network.keep_in_balancer(&names(&["node-2"])).await.unwrap();
        let summary = clients.open(flows()).await.unwrap();
        assert_eq!(
            summary.failed.keys().collect::<Vec<_>>(),
            ["timeout"],
            "{mode:?} {delivery:?}"
        );
        let mut all = summary.opened;
        all.extend(summary.failed);
        assert_eq!(all.values().sum::<u64>(), 600);
        assert_share(&all, "timeout", 1.0 / 3.0);
        assert_share(&all, "c", 1.0 / 3.0);
        network.keep_in_balancer(&[]).await.unwrap();
        assert_eq!(open(&clients, request(family, 100, 20)).await.len(), 3);

        // A pod that does not listen refuses.
        network.start(PodPlan::new("mute", "node-2", vec![])).await.unwrap();
        network.set_endpoints(&names(&["a", "b", "c", "mute"])).await.unwrap();
        let summary = clients.open(flows()).await.unwrap();
        let mut all = summary.opened;
        all.extend(summary.failed);
        assert_eq!(all.values().sum::<u64>(), 600);
        assert_share(&all, "refused", 1.0 / 3.0);
        network.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn network_opens_many_short_flows_at_a_steady_rate() {
    let Some(_turn) = turn() else { return };
    let family = Family::V4;
    let (mut network, clients) = start(plan(ProxyMode::Iptables, family)).await;
    let (rate, seconds) = (500.0, 4.0);
    let since = Instant::now();
    let opened = open(
        &clients,
        OpenFlows {
            rate: Some(rate),
            lifetime: Lifetime::Fixed { ms: 0 },
            ..request(family, (rate * seconds) as u64, 40)
        },
    )
    .await;
    let took = since.elapsed();
    assert!(
        took > Duration::from_secs_f64(seconds * 0.99),
        "faster than asked: {took:?}"
    );
    let counts = until(&clients, |counts| counts.open.values().sum::<u64>() == 0).await;
    assert_eq!(counts.opened, opened);
    assert_eq!(
        counts.client_closed, opened,
        "each pod's flows were closed by the client"
    );
    assert_eq!(network.established("a").await.unwrap(), 0);
    network.destroy().await.unwrap();
}

#[tokio::test]
async fn network_refuses_endpoints_that_make_no_sense() {
    let Some(_turn) = turn() else { return };
    let (mut network, _clients) = start(plan(ProxyMode::Nftables, Family::V4)).await;
    let says = |error: anyhow::Error, words: &str| assert!(format!("{error:#}").contains(words), "{error:#}");
    says(
        network.set_service_endpoints(&[]).await.unwrap_err(),
        "endpoints of 0 services are given, and there are 1",
    );
    says(
        network.keep_in_balancer(&names(&["x"])).await.unwrap_err(),
        "there is no node x",
    );
    let listen = vec![Listen {
        protocol: Protocol::Tcp,
        port: 8883,
    }];
    let pod = |address: &str| PodPlan {
        address: Some(address.parse().unwrap()),
        ..PodPlan::new("d", "node-0", listen.clone())
    };
    says(network.start(pod("10.244.0.2")).await.unwrap_err(), "is in use");
    says(
        network.start(pod("192.0.2.1")).await.unwrap_err(),
        "not in the range of a node",
    );
    let outside = PodPlan {
        cgroup: Some("../x".into()),
        ..PodPlan::new("d", "node-0", listen)
    };
    says(network.start(outside).await.unwrap_err(), "not a path below the run's");
    network.destroy().await.unwrap();
}
