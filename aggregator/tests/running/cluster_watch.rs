//! The aggregator against an API server that misbehaves: the cluster it shows must be right afterwards, and never less
//! than it was.

use std::time::Duration;

use crate::common::kube_api::{Gone, KubeApi, NODES, PODS, SERVICES, SLICES, node, slice};
use crate::common::{Aggregator, PATIENCE};

const REPORT: &str = "/api/v1/services/telemetry/gateway/report";

async fn pods(aggregator: &Aggregator) -> Vec<String> {
    aggregator
        .report("")
        .await
        .endpoints
        .into_iter()
        .map(|row| format!("{}@{}", row.pod, row.node))
        .collect()
}

/// Waits until the Service has these pods, and fails if it is ever seen without any.
async fn until_pods(aggregator: &Aggregator, expected: &[&str]) {
    let waiting = async {
        loop {
            let pods = pods(aggregator).await;
            assert!(!pods.is_empty(), "a pod that never went was missing");
            if pods == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let result = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(
        result.is_ok(),
        "expected {expected:?}, at last {:?}",
        pods(aggregator).await
    );
}

#[tokio::test]
async fn changes_arrive() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    assert_eq!(pods(&aggregator).await, ["gw-0@a", "gw-1@b"]);
    api.put(SLICES, "telemetry/gateway-1", slice(&[("gw-1", "b", "10.244.1.7")]));
    until_pods(&aggregator, &["gw-1@b"]).await;
    api.put(SLICES, "telemetry/gateway-2", slice(&[("gw-2", "a", "10.244.0.9")]));
    until_pods(&aggregator, &["gw-2@a", "gw-1@b"]).await;
    api.delete(SERVICES, "telemetry/gateway");
    aggregator
        .eventually(REPORT, |status, body| {
            status == 404 && body.contains("telemetry/gateway")
        })
        .await;
    aggregator.stop().await;
}

#[tokio::test]
async fn a_dropped_watch_goes_on_where_it_was() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    for round in 0..3 {
        api.drop_watches();
        let pod = format!("gw-{}", 10 + round);
        api.put(SLICES, "telemetry/gateway-1", slice(&[(&pod, "a", "10.244.0.8")]));
        until_pods(&aggregator, &[&format!("{pod}@a")]).await;
    }
    assert_eq!(api.lists(SLICES), 1, "resuming needs no new list");
    aggregator.stop().await;
}

async fn recovers_from(gone: Gone) {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    // All of this is seen by nobody: a pod moved, a slice and a node deleted, another node added.
    api.put_unseen(SLICES, "telemetry/gateway-9", slice(&[("gw-1", "c", "10.244.2.7")]));
    api.delete_unseen(SLICES, "telemetry/gateway-1");
    api.delete_unseen(NODES, "b");
    api.put_unseen(NODES, "c", node("10.244.2.0/24", "192.168.0.3"));
    api.forget_history(gone);
    api.drop_watches();
    until_pods(&aggregator, &["gw-1@c"]).await;
    aggregator
        .eventually("/api/v1/nodes", |_, body| {
            let nodes: Vec<serde_json::Value> = serde_json::from_str(body).unwrap();
            nodes.iter().map(|node| node["node"].as_str().unwrap()).eq(["a", "c"])
        })
        .await;
    assert!(api.lists(SLICES) >= 2);
    // And it still watches.
    api.put(
        SLICES,
        "telemetry/gateway-9",
        slice(&[("gw-1", "c", "10.244.2.7"), ("gw-0", "a", "10.244.0.7")]),
    );
    until_pods(&aggregator, &["gw-0@a", "gw-1@c"]).await;
    aggregator.stop().await;
}

#[tokio::test]
async fn forgotten_history_told_in_the_stream() {
    recovers_from(Gone::Event).await;
}

#[tokio::test]
async fn forgotten_history_told_by_status() {
    recovers_from(Gone::Status).await;
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    let api = KubeApi::with_service().await;
    api.forbid(PODS, true);
    let aggregator = Aggregator::start(&api.url).await;
    let text = aggregator
        .eventually("/readyz", |status, body| status == 503 && body.contains("forbids"))
        .await;
    for part in [
        api.url.as_str(),
        "pods (",
        "to list pods",
        "grant the verbs list and watch",
        "cannot do this",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let (status, body) = aggregator.get(REPORT).await;
    assert_eq!(status, 503, "half a view is no view: {body}");
    api.forbid(PODS, false);
    aggregator.eventually("/readyz", |status, _| status == 200).await;
    assert_eq!(pods(&aggregator).await.len(), 2);
    aggregator.stop().await;
}

#[tokio::test]
async fn an_api_server_that_is_not_there_is_named() {
    // A port that was free a moment ago.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let aggregator = Aggregator::start(&url).await;
    let text = aggregator
        .eventually("/readyz", |status, body| status == 503 && body.contains("cannot"))
        .await;
    for part in [
        url.as_str(),
        "cannot list nodes",
        "cannot list endpointslices",
        "refused",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(aggregator.get("/healthz").await.0, 200);
    aggregator.stop().await;
}
