//! What happens to flows: moved, closed, refused, and counted right.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use flowskew_lab::{
    clients::{CloseFlows, CloseHow, Lifetime, OpenFlows, Pick, Reconnect},
    net::{Family, ProxyMode, StopPod},
};
use tokio::time::{sleep, timeout};

use crate::support::*;

#[tokio::test]
async fn network_moves_a_pod_without_losing_count() {
    let Some(_turn) = turn() else { return };
    for (mode, how) in MODES.into_iter().zip([StopPod::Terminate, StopPod::Kill]) {
        let family = Family::V4;
        let (mut network, clients) = start(plan(mode, family)).await;
        let reconnect = Some(Reconnect { min_ms: 0, max_ms: 50 });
        open(
            &clients,
            OpenFlows {
                reconnect,
                ..request(family, 1000, 100)
            },
        )
        .await;
        let on_b = clients.counts().await.unwrap().open["b"];

        // Clients go on opening flows while b leaves node-0 and appears on node-2.
        let opening = tokio::spawn({
            let clients = clients.clone();
            let flows = OpenFlows {
                rate: Some(1000.0),
                reconnect,
                ..request(family, 1000, 100)
            };
            async move { open(&clients, flows).await }
        });
        sleep(Duration::from_millis(300)).await;
        network.set_endpoints(&names(&["a", "c"])).await.unwrap();
        network.stop_pod("b", how).await.unwrap();
        network.start_pod("b", "node-2").await.unwrap();
        network.set_endpoints(&names(&["a", "b", "c"])).await.unwrap();
        opening.await.unwrap();

        let deadline = Instant::now() + Duration::from_secs(10);
        let counts = loop {
            let counts = clients.counts().await.unwrap();
            if counts.open.values().sum::<u64>() == 2000 || Instant::now() > deadline {
                break counts;
            }
            sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(counts.failed, BTreeMap::new());
        assert_eq!(counts.open.values().sum::<u64>(), 2000, "everybody is back: {counts:?}");
        assert_eq!(counts.server_closed, [("b".to_owned(), counts.reconnected)].into());
        assert!(counts.reconnected >= on_b, "{on_b} flows were on b: {counts:?}");
        assert_established(&network, &counts, &["a", "b", "c"]).await;
        network.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn network_clients_close_what_they_are_told() {
    let Some(_turn) = turn() else { return };
    let family = Family::V6;
    let (mut network, clients) = start(plan(ProxyMode::Nftables, family)).await;
    let lifetime = Lifetime::Exponential { mean_ms: 30.0 };
    open(
        &clients,
        OpenFlows {
            group: "short".into(),
            lifetime,
            ..request(family, 200, 20)
        },
    )
    .await;
    open(
        &clients,
        OpenFlows {
            group: "held".into(),
            pick: Pick::Random,
            ..request(family, 600, 20)
        },
    )
    .await;
    sleep(Duration::from_millis(800)).await;
    let counts = clients.counts().await.unwrap();
    assert_eq!(counts.open.values().sum::<u64>(), 600, "the short ones are over");

    let some = CloseFlows {
        group: Some("held".into()),
        limit: Some(101),
        ..CloseFlows::default()
    };
    assert_eq!(clients.close(some).await.unwrap(), 101);
    let none = CloseFlows {
        group: Some("other".into()),
        ..CloseFlows::default()
    };
    assert_eq!(clients.close(none).await.unwrap(), 0);
    let on_a = clients.counts().await.unwrap().open["a"];
    let reset = CloseFlows {
        pod: Some("a".into()),
        how: CloseHow::Rst,
        ..CloseFlows::default()
    };
    assert_eq!(clients.close(reset).await.unwrap(), on_a);
    let counts = clients.counts().await.unwrap();
    assert_eq!(counts.open.values().sum::<u64>(), 499 - on_a);
    assert_eq!(counts.client_closed.values().sum::<u64>(), 301 + on_a);
    assert_established(&network, &counts, &["a", "b", "c"]).await;
    let mut progress = clients.progress();
    let last = timeout(Duration::from_secs(5), progress.wait_for(|shown| *shown == counts)).await;
    assert!(last.is_ok(), "progress ends with the last counts");
    network.destroy().await.unwrap();
}

#[tokio::test]
async fn network_without_endpoints_tells_clients_so() {
    let Some(_turn) = turn() else { return };
    for family in FAMILIES {
        let (mut network, clients) = start(plan(ProxyMode::Iptables, family)).await;
        network.set_endpoints(&[]).await.unwrap();
        let summary = clients.open(request(family, 10, 10)).await.unwrap();
        assert_eq!(summary.failed, [("unreachable".to_owned(), 10)].into(), "{family}");
        network.destroy().await.unwrap();
    }
}
