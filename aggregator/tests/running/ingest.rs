//! Real gRPC streams against a running aggregator: what they report must show, and what makes no sense must not.

use std::time::Duration;

use crate::common::Aggregator;
use crate::common::agent::{Agent, entry, hello, report};
use crate::common::kube_api::{KubeApi, SLICES, slice};
use flowskew_aggregator::report::ServiceReport;
use flowskew_proto::v1;
use flowskew_proto::v1::agent_message::Message;
use tonic::Code;

const A: &str = "10.244.0.7";
const B: &str = "10.244.1.7";

/// New and established flows of each pod.
fn flows(report: &ServiceReport) -> Vec<(u64, u64)> {
    report.endpoints.iter().map(|row| (row.new, row.established)).collect()
}

#[tokio::test]
async fn what_agents_report_is_in_the_next_answer() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    let mut b = Agent::connect(&aggregator.grpc, "b").await;

    let assignment = a.assignment().await;
    let ports: Vec<u32> = assignment.endpoints.iter().map(|endpoint| endpoint.port).collect();
    assert_eq!((ports, assignment.report_interval_ms), (vec![18883], 1000));
    assert_eq!(
        assignment.prefixes.len(),
        3,
        "two nodes, and their neighbouring ranges of pods in one"
    );

    a.report(report(7, 1, vec![entry(A, 30, 12)])).await;
    b.report(report(9, 1, vec![entry(B, 10, 10)])).await;
    let shown = aggregator.report("").await;
    assert_eq!(flows(&shown), [(30, 12), (10, 10)]);
    assert_eq!(shown.losses, Default::default());
    assert_eq!(shown.endpoints[0].new_share, Some(0.75));

    // Every acknowledged report is in the answer, each time.
    for sequence in 2..20 {
        a.report(report(7, sequence, vec![entry(A, 30 + sequence, 12)])).await;
        assert_eq!(aggregator.report("").await.endpoints[0].new, 30 + sequence);
    }
    aggregator.stop().await;
}

#[tokio::test]
async fn an_agent_sees_flows_of_other_nodes_pods_and_they_do_not_count() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    a.report(report(7, 1, vec![entry(A, 5, 5), entry(B, 500, 500)])).await;
    assert_eq!(flows(&aggregator.report("").await), [(5, 5), (0, 0)]);
    aggregator.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_is_learned_late_has_lost_nothing() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    let first = a.assignment().await;
    a.report(report(7, 1, vec![entry("10.244.0.8", 44, 40)])).await;
    api.put(SLICES, "telemetry/gateway-2", slice(&[("gw-2", "a", "10.244.0.8")]));
    let second = a.assignment().await;
    assert!(second.version > first.version);
    assert_eq!(second.endpoints.len(), 2);
    let shown = aggregator.report("").await;
    assert_eq!(
        (shown.endpoints[1].pod.as_str(), shown.endpoints[1].opened_total),
        ("gw-2", 44)
    );
    // The window begins when it came.
    assert!(shown.endpoints_changed_ms <= Some(shown.window.from_ms));
    assert!(shown.window.from_ms > shown.asked_from_ms && shown.notes[0].contains("the ready pods changed"));
    aggregator.stop().await;
}

#[tokio::test]
async fn flows_on_a_pod_that_is_gone_are_told_as_missing() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    let mut b = Agent::connect(&aggregator.grpc, "b").await;
    a.report(report(7, 1, vec![entry(A, 30, 12)])).await;
    b.report(report(8, 1, vec![])).await;
    api.put(SLICES, "telemetry/gateway-1", slice(&[("gw-1", "b", B)]));
    aggregator
        .eventually("/api/v1/services/telemetry/gateway/report", |_, body| {
            let report: ServiceReport = serde_json::from_str(body).unwrap();
            report.endpoints.len() == 1 && report.gone_endpoints.first().is_some_and(|gone| gone.new == 30)
        })
        .await;
    aggregator.stop().await;
}

#[tokio::test]
async fn a_killed_agent_resends_and_nothing_is_counted_twice() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    a.report(report(7, 1, vec![entry(A, 10, 10)])).await;
    a.report(report(7, 2, vec![entry(A, 25, 20)])).await;
    drop(a);
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    a.report(report(7, 2, vec![entry(A, 25, 20)])).await;
    a.report(report(7, 3, vec![entry(A, 26, 19)])).await;
    assert_eq!(flows(&aggregator.report("").await)[0], (26, 19));
    // Its kernel's counters begin anew, with the open flows found open.
    drop(a);
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    a.report(report(8, 1, vec![entry(A, 4, 22)])).await;
    let shown = aggregator.report("").await;
    assert_eq!(flows(&shown)[0], (30, 22));
    assert_eq!(shown.endpoints[0].opened_total, 4);
    aggregator.stop().await;
}

#[tokio::test]
async fn an_aggregator_that_restarts_invents_nothing() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    a.report(report(7, 1, vec![entry(A, 1000, 900)])).await;
    a.report(report(7, 2, vec![entry(A, 1001, 901)])).await;
    aggregator.stop().await;
    assert_eq!(a.end().await.code(), Code::Unavailable);

    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    // The last acknowledged report comes first.
    a.report(report(7, 2, vec![entry(A, 1001, 901)])).await;
    assert_eq!(flows(&aggregator.report("").await)[0], (0, 901));
    // The window begins after what it brought has been told.
    tokio::time::sleep(Duration::from_secs(2)).await;
    a.report(report(7, 3, vec![entry(A, 1004, 903)])).await;
    let shown = aggregator.report("").await;
    assert_eq!(flows(&shown)[0], (3, 903));
    assert_eq!(shown.endpoints[0].opened_total, 1004);
    assert!(shown.window.from_ms > shown.asked_from_ms && shown.notes[0].contains("flows on a began to be counted"));
    aggregator.stop().await;
}

#[tokio::test]
async fn a_second_stream_of_a_node_replaces_the_first() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut first = Agent::connect(&aggregator.grpc, "a").await;
    first.report(report(7, 1, vec![entry(A, 1, 1)])).await;
    let mut second = Agent::connect(&aggregator.grpc, "a").await;
    second.report(report(7, 2, vec![entry(A, 2, 2)])).await;
    let end = first.end().await;
    assert_eq!(end.code(), Code::Aborted);
    assert!(end.message().contains("node a"), "{}", end.message());
    assert_eq!(flows(&aggregator.report("").await)[0], (2, 2));
    second.report(report(7, 3, vec![entry(A, 3, 3)])).await;
    let (_, metrics) = aggregator.get("/metrics").await;
    assert!(
        metrics.contains("flowskew_aggregator_streams_replaced_total 1\n"),
        "{metrics}"
    );
    aggregator.stop().await;
}

#[tokio::test]
async fn entries_without_sense_are_left_out_and_counted() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    let good = || entry(A, 3, 3);
    let garbage = vec![
        v1::LedgerEntry {
            address: vec![1, 2, 3, 4],
            ..good()
        },
        v1::LedgerEntry {
            address: vec![0; 17],
            ..good()
        },
        v1::LedgerEntry { port: 0, ..good() },
        v1::LedgerEntry { port: 65_536, ..good() },
        v1::LedgerEntry { protocol: 0, ..good() },
        v1::LedgerEntry {
            protocol: 132,
            ..good()
        },
        v1::LedgerEntry::default(),
        good(),
        v1::LedgerEntry {
            classes: vec![],
            ..good()
        },
    ];
    a.report(report(7, 1, garbage)).await;
    let shown = aggregator.report("").await;
    assert_eq!(flows(&shown)[0], (3, 3));
    assert_eq!(shown.losses.nodes.entries_dropped, 8);
    let (_, metrics) = aggregator.get("/metrics").await;
    assert!(
        metrics.contains("flowskew_aggregator_invalid_entries_total 8\n"),
        "{metrics}"
    );
    aggregator.stop().await;
}

#[tokio::test]
async fn impossible_counters_are_rejected_and_change_nothing() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    a.report(report(7, 1, vec![entry(A, 100, 50)])).await;
    // Acknowledged all the same: sending them again would help nobody.
    a.report(report(7, 2, vec![entry(A, 99, 50)])).await;
    a.report(report(7, 3, vec![entry(A, u64::MAX, u64::MAX)])).await;
    assert_eq!(flows(&aggregator.report("").await)[0], (100, 50));
    a.report(report(7, 4, vec![entry(A, 101, 49)])).await;
    assert_eq!(flows(&aggregator.report("").await)[0], (101, 49));
    let (_, nodes) = aggregator.get("/api/v1/nodes").await;
    let nodes: serde_json::Value = serde_json::from_str(&nodes).unwrap();
    assert_eq!(nodes[0]["reports_rejected"], 2);
    assert_eq!(nodes[0]["sequence"], 4);
    aggregator.stop().await;
}

#[tokio::test]
async fn streams_without_sense_end_with_a_reason() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let check = async |messages: Vec<Option<Message>>, code: Code, reason: &str| {
        let mut agent = Agent::silent(&aggregator.grpc).await;
        for message in messages {
            match message {
                Some(message) => agent.say(message).await,
                None => agent.say_nothing().await,
            }
        }
        let end = agent.end().await;
        assert_eq!(end.code(), code, "{end}");
        assert!(end.message().contains(reason), "{end}");
    };
    let say_hello = |node: &str| Some(Message::Hello(hello(node)));
    check(
        vec![Some(Message::Report(report(1, 1, vec![])))],
        Code::FailedPrecondition,
        "before Hello",
    )
    .await;
    check(vec![None], Code::InvalidArgument, "must be Hello").await;
    check(vec![say_hello("")], Code::InvalidArgument, "--node").await;
    check(vec![say_hello("no\nname")], Code::InvalidArgument, "no\\nname").await;
    check(vec![say_hello(&"a".repeat(300))], Code::InvalidArgument, "--node").await;
    check(
        vec![say_hello("a"), say_hello("a")],
        Code::FailedPrecondition,
        "second Hello",
    )
    .await;
    check(
        vec![say_hello("a"), Some(Message::Report(report(1, 0, vec![])))],
        Code::InvalidArgument,
        "sequence 0",
    )
    .await;
    let huge = (0..600_000).map(|_| entry(A, 1, 1)).collect();
    check(
        vec![say_hello("a"), Some(Message::Report(report(1, 1, huge)))],
        Code::OutOfRange,
        "",
    )
    .await;
    // It has outlived all of them.
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    a.report(report(7, 1, vec![entry(A, 5, 5)])).await;
    assert_eq!(flows(&aggregator.report("").await)[0], (5, 5));
    aggregator.stop().await;
}

#[tokio::test]
async fn an_unknown_node_is_taken_and_shown_as_such() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut stranger = Agent::connect(&aggregator.grpc, "z").await;
    stranger.report(report(7, 1, vec![entry(A, 5, 5)])).await;
    assert_eq!(flows(&aggregator.report("").await), [(0, 0), (0, 0)]);
    let (_, nodes) = aggregator.get("/api/v1/nodes").await;
    let nodes: Vec<serde_json::Value> = serde_json::from_str(&nodes).unwrap();
    let known: Vec<bool> = nodes.iter().map(|node| node["known"].as_bool().unwrap()).collect();
    assert_eq!(known, [true, true, false]);
    aggregator.stop().await;
}

#[tokio::test]
async fn a_silent_agent_is_named() {
    let api = KubeApi::with_service().await;
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    a.report(report(7, 1, vec![])).await;
    assert_eq!(aggregator.report("").await.losses.silent_nodes, ["b"]);
    // Three intervals and two seconds later it is silent too.
    aggregator
        .eventually("/api/v1/services/telemetry/gateway/report", |_, body| {
            let report: ServiceReport = serde_json::from_str(body).unwrap();
            report.losses.silent_nodes == ["a", "b"] && !report.nodes[0].agent_reporting
        })
        .await;
    aggregator.stop().await;
}
