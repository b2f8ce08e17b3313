//! Requests over HTTP, and the command line that makes them, against a running aggregator.

use crate::common::Aggregator;
use crate::common::agent::{Agent, entry, report};
use crate::common::kube_api::{KubeApi, SERVICES, service};
use clap::Parser;
use flowskew_aggregator::cli::{self, Args};
use flowskew_aggregator::report::ServiceReport;
use serde_json::{Value, json};

const REPORT: &str = "/api/v1/services/telemetry/gateway/report";

/// What a command prints, or its error.
async fn kubectl(url: &str, args: &[&str]) -> Result<String, String> {
    let args = Args::parse_from([&["kubectl-flowskew", "report", "--aggregator", url], args].concat());
    tokio::task::spawn_blocking(move || cli::run(&args))
        .await
        .unwrap()
        .map_err(|error| error.to_string())
}

async fn with_flows() -> (KubeApi, Aggregator, Vec<Agent>) {
    let api = KubeApi::with_service().await;
    let mut second = service();
    second["spec"]["ports"] = json!([{ "name": "mqtts", "port": 8883 }, { "name": "http", "port": 80 },
                                     { "name": "dns", "port": 53, "protocol": "UDP" }]);
    api.put(SERVICES, "telemetry/two-ports", second);
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    let mut b = Agent::connect(&aggregator.grpc, "b").await;
    a.report(report(7, 1, vec![entry("10.244.0.7", 3000, 300)])).await;
    b.report(report(7, 1, vec![entry("10.244.1.7", 1000, 100)])).await;
    (api, aggregator, vec![a, b])
}

#[tokio::test]
async fn bad_requests_are_answered_with_reasons() {
    let (_api, aggregator, _agents) = with_flows().await;
    let check = async |path: &str, status: u16, reason: &str| {
        let (got, body) = aggregator.get(path).await;
        assert_eq!(got, status, "{path}: {body}");
        let error: Value = serde_json::from_str(&body).unwrap();
        let error = error["error"].as_str().unwrap();
        assert!(error.contains(reason), "{path}: {error}");
    };
    check("/api/v1/services/telemetry/nothing/report", 404, "telemetry/nothing").await;
    check(
        "/api/v1/services/telemetry/two-ports/report",
        400,
        "8883/TCP (mqtts), 80/TCP (http), 53/UDP (dns)",
    )
    .await;
    check(&format!("{REPORT}?port=99"), 404, "it has 8883/TCP").await;
    check(&format!("{REPORT}?window=soon"), 400, "\"soon\" is not a duration").await;
    check(&format!("{REPORT}?window=0s"), 400, "no length").await;
    check(&format!("{REPORT}?window=2h"), 400, "at most 60m").await;
    check(&format!("{REPORT}?since=1"), 400, "at most 60m").await;
    check(&format!("{REPORT}?since=99999999999999"), 400, "in the future").await;
    check(&format!("{REPORT}?since=now"), 400, "milliseconds since 1970").await;
    check(&format!("{REPORT}?window=5m&since=1"), 400, "not both").await;
    check(&format!("{REPORT}?windows=5m"), 400, "windows").await;
    check("/favicon.ico", 404, "/api/v1/services").await;
    aggregator.stop().await;
}

#[tokio::test]
async fn ports_windows_and_lists() {
    let (_api, aggregator, _agents) = with_flows().await;
    for query in ["", "?port=8883", "?port=mqtts", "?window=60m", "?window=90s"] {
        assert_eq!(aggregator.report(query).await.new.flows, 4000, "{query}");
    }
    let report = aggregator.report("?window=1m").await;
    assert_eq!(report.window.from_ms % 1000, 0);
    assert!((60_000..61_000).contains(&(report.window.to_ms - report.window.from_ms)));
    // Nothing has opened since a moment ago.
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    let since = flowskew_aggregator::now_ms() - 1000;
    let report = aggregator.report(&format!("?since={since}")).await;
    assert_eq!((report.new.flows, report.established.flows), (0, 400));
    assert_eq!(report.window.from_ms, since - since % 1000);

    let (_, services) = aggregator.get("/api/v1/services").await;
    let services: Vec<Value> = serde_json::from_str(&services).unwrap();
    assert_eq!(services[0]["name"], "gateway");
    assert_eq!(
        (&services[0]["endpoints"], &services[0]["significant"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(services[1]["ports"].as_array().unwrap().len(), 3);
    aggregator.stop().await;
}

#[tokio::test]
async fn metrics_over_http() {
    let (api, aggregator, _agents) = with_flows().await;
    let gateway = r#"flowskew_window_flows{namespace="telemetry",service="gateway",port="8883",protocol="TCP",kind="new",window="5m"} 4000"#;
    aggregator
        .eventually("/metrics", |status, body| status == 200 && body.contains(gateway))
        .await;
    api.delete(SERVICES, "telemetry/gateway");
    aggregator
        .eventually("/metrics", |_, body| !body.contains(r#"service="gateway""#))
        .await;
    aggregator.stop().await;
}

#[tokio::test]
async fn the_command_prints_a_table_or_json() {
    let (_api, aggregator, _agents) = with_flows().await;
    let table = kubectl(&aggregator.http, &["telemetry/gateway"]).await.unwrap();
    for part in [
        "Service telemetry/gateway, port 8883/TCP",
        "gw-0  a     3,000  75.0 %",
        "losses: none\n",
    ] {
        assert!(table.contains(part), "{part} is not in {table}");
    }
    let text = kubectl(
        &aggregator.http,
        &["gateway", "-n", "telemetry", "--window", "15m", "-o", "json"],
    )
    .await
    .unwrap();
    let report: ServiceReport = serde_json::from_str(&text).unwrap();
    assert_eq!(report.new.flows, 4000);
    aggregator.stop().await;
}

#[tokio::test]
async fn the_command_says_what_to_do() {
    let (api, aggregator, _agents) = with_flows().await;
    let check = async |url: &str, args: &[&str], parts: &[&str]| {
        let error = kubectl(url, args).await.unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    };
    let url = &aggregator.http;
    check(
        url,
        &["telemetry/gatewy"],
        &["telemetry/gatewy", "did you mean telemetry/gateway?"],
    )
    .await;
    check(
        url,
        &["gateway"],
        &["default/gateway", "did you mean telemetry/gateway?"],
    )
    .await;
    check(
        url,
        &["telemetry/two-ports"],
        &["8883/TCP (mqtts), 80/TCP (http), 53/UDP (dns)", "--port"],
    )
    .await;
    check(
        url,
        &["telemetry/gateway", "--port", "1"],
        &["no port 1; it has 8883/TCP"],
    )
    .await;
    check(url, &["telemetry/Gate way"], &["is not the name of a Service"]).await;
    check(url, &["telemetry/gateway", "--window", "3h"], &["at most 60m"]).await;
    check(
        &api.url,
        &["telemetry/gateway"],
        &[&api.url, "does not answer like a flowskew aggregator"],
    )
    .await;
    let gone = url.clone();
    aggregator.stop().await;
    check(
        &gone,
        &["telemetry/gateway"],
        &[&gone, "kubectl -n flowskew port-forward", "--aggregator"],
    )
    .await;
}
