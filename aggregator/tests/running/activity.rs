//! Single flows of clients over real gRPC streams: the key comes from the aggregator, what is hashed under it arrives once.

use std::time::Duration;

use flowskew_aggregator::cluster::ClusterView;
use flowskew_aggregator::ingest;
use flowskew_aggregator::state::{self, Event, Handle, Settings, Totals};
use flowskew_proto::v1;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use crate::common::agent::{Agent, bytes, entry, report};

const POD: &str = "10.244.0.7";

const SETTINGS: Settings = Settings {
    bucket: Duration::from_secs(1),
    report_interval: Duration::from_secs(1),
    client_events: 10_000,
    client_key_rotation: Duration::from_secs(86_400),
};

/// The owner of the state behind a gRPC server, without an API server. Both end with the test.
struct Collector {
    url: String,
    handle: Handle,
    _drain: watch::Sender<bool>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (events, handle, owner) = state::owner(SETTINGS);
        let (drain, draining) = watch::channel(false);
        tokio::spawn(owner);
        tokio::spawn(ingest::serve(listener, events.clone(), draining));
        let (reply, seen) = oneshot::channel();
        let view = ClusterView::default();
        events.send(Event::Cluster { view, reply }).await.unwrap();
        seen.await.unwrap();
        Self {
            url,
            handle,
            _drain: drain,
        }
    }

    async fn totals(&self) -> Totals {
        self.handle.metrics(vec![]).await.unwrap().totals
    }
}

/// So many flows of one client, hashed under a key.
fn activity(key_id: u32, flows: usize) -> v1::EndpointActivity {
    v1::EndpointActivity {
        address: bytes(POD),
        port: 18883,
        protocol: v1::Protocol::Tcp.into(),
        cgroup_id: 1,
        at_ms: vec![0; flows],
        kinds: vec![0; flows],
        columns: vec![v1::ClientColumn {
            key_id,
            clients: vec![0xfeed; flows],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn with_activity(sequence: u64, activity: Vec<v1::EndpointActivity>) -> v1::Report {
    v1::Report {
        activity,
        ..report(7, sequence, vec![entry(POD, sequence * 10, 1)])
    }
}

#[tokio::test]
async fn single_flows_are_kept_once_however_often_they_are_sent() {
    let collector = Collector::start().await;
    let mut agent = Agent::connect(&collector.url, "a").await;
    let keys = agent.assignment().await.client_keys;
    assert_eq!((keys.len(), keys[0].key.len()), (1, 16));
    let id = keys[0].id;
    agent.report(with_activity(1, vec![activity(id, 3)])).await;
    agent.report(with_activity(2, vec![activity(id, 4)])).await;
    assert_eq!(collector.totals().await.client_events, 7);
    // Its last report was not acknowledged, as far as it knows; a new agent of the node goes on from there.
    agent.report(with_activity(2, vec![activity(id, 4)])).await;
    drop(agent);
    let mut agent = Agent::connect(&collector.url, "a").await;
    assert_eq!(agent.assignment().await.client_keys, keys, "one key for all");
    agent.report(with_activity(2, vec![activity(id, 4)])).await;
    agent.report(with_activity(3, vec![activity(id, 5)])).await;
    let totals = collector.totals().await;
    assert_eq!(
        (totals.client_events, totals.reports_taken, totals.reports_stale),
        (12, 3, 2)
    );
    assert_eq!((totals.client_events_invalid, totals.client_events_thinned), (0, 0));
}

#[tokio::test]
async fn single_flows_without_sense_cost_no_count() {
    let collector = Collector::start().await;
    let mut agent = Agent::connect(&collector.url, "a").await;
    let unequal = v1::EndpointActivity {
        cgroup_id: 2,
        kinds: vec![0; 9],
        ..activity(1, 3)
    };
    agent.report(with_activity(1, vec![unequal, activity(1, 3)])).await;
    let totals = collector.totals().await;
    assert_eq!((totals.client_events, totals.client_events_invalid), (3, 9));
    assert_eq!((totals.reports_taken, totals.invalid_entries), (1, 0));
    let losses = collector.handle.nodes().await.unwrap()[0].losses;
    assert_eq!((losses.activity_dropped, losses.entries_dropped), (9, 0));
}

#[tokio::test]
async fn a_flood_of_clients_is_sampled_and_agents_are_not_kept_waiting() {
    let collector = Collector::start().await;
    let mut agent = Agent::connect(&collector.url, "a").await;
    for sequence in 1..=20 {
        let mut flood = activity(1, 5_000);
        let first = sequence * 5_000;
        flood.columns[0].clients = (first..first + 5_000)
            .map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        agent.report(with_activity(sequence, vec![flood])).await;
    }
    let totals = collector.totals().await;
    assert!(
        totals.client_events < 14_000 && totals.client_events_thinned > 80_000,
        "{totals:?}"
    );
    assert_eq!(totals.reports_taken, 20);
}
