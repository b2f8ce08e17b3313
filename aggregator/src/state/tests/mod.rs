//! Events, and what the owner answers; lost endpoints.

use std::net::Ipv6Addr;

use super::gone::GoneEndpoints;
use super::*;
use crate::cluster::{Endpoint, ObjectName, ServicePort, ServiceView};
use crate::flow::{ByClass, Counts, EndpointKey, Protocol, SourceClass};
use crate::ingest::wire::Hello;
use crate::ledger::{Entry, LedgerKey, NodeReport, RETENTION_MS};
use tokio::sync::oneshot;

const SETTINGS: Settings = Settings {
    bucket: Duration::from_secs(1),
    report_interval: Duration::from_secs(1),
};

fn address(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)
}

fn key(n: u16) -> EndpointKey {
    EndpointKey {
        address: address(n),
        port: 8883,
        protocol: Protocol::Tcp,
    }
}

/// A Service with endpoints as (node, number, ready).
fn view(endpoints: &[(&str, u16, bool)]) -> ClusterView {
    let endpoint = |&(node, n, ready): &(&str, u16, bool)| Endpoint {
        pod: format!("pod-{n}"),
        pod_uid: String::new(),
        node: node.to_owned(),
        addresses: [address(n)].into(),
        port: 8883,
        ready,
        serving: ready,
        terminating: !ready,
        zone: String::new(),
    };
    let port = ServicePort {
        port: 443,
        name: String::new(),
        protocol: Protocol::Tcp,
        endpoints: endpoints.iter().map(endpoint).collect(),
    };
    let service = ServiceView {
        external_traffic_policy: "Local".to_owned(),
        session_affinity: "None".to_owned(),
        ports: vec![port],
    };
    ClusterView {
        services: [(name(), service)].into(),
        ..Default::default()
    }
}

fn name() -> ObjectName {
    ObjectName {
        namespace: "ns".to_owned(),
        name: "s".to_owned(),
    }
}

fn gone_keys(gone: &GoneEndpoints, view: &ClusterView) -> Vec<(String, EndpointKey)> {
    let port = &view.services[&name()].ports[0];
    gone.of(&name(), port)
        .iter()
        .map(|gone| (gone.node.clone(), gone.key))
        .collect()
}

#[test]
fn lost_endpoints_are_remembered_for_an_hour() {
    let mut gone = GoneEndpoints::default();
    let (two, one) = (view(&[("a", 1, true), ("b", 2, true)]), view(&[("a", 1, true)]));
    gone.compare(&two, &two, 1000);
    assert!(gone_keys(&gone, &two).is_empty());
    gone.compare(&two, &one, 1000);
    assert_eq!(gone_keys(&gone, &one), [("b".to_owned(), key(2))]);
    gone.expire(1000 + RETENTION_MS - 1);
    assert_eq!(gone_keys(&gone, &one).len(), 1);
    gone.expire(1000 + RETENTION_MS);
    assert!(gone_keys(&gone, &one).is_empty());
    // One that moved to another node is gone from the first; one that is back is not.
    gone.compare(&two, &view(&[("a", 1, true), ("c", 2, true)]), 1000);
    assert_eq!(gone_keys(&gone, &two), [("b".to_owned(), key(2))]);
    gone.compare(&one, &two, 2000);
    assert!(gone_keys(&gone, &two).is_empty());
    // Not ready is not gone.
    gone.compare(&two, &view(&[("a", 1, true), ("b", 2, false)]), 3000);
    assert!(gone_keys(&gone, &two).is_empty());
    // With its Service.
    gone.compare(&two, &ClusterView::default(), 4000);
    assert_eq!(gone_keys(&gone, &two).len(), 2);
}

struct Owner {
    events: mpsc::Sender<Event>,
    handle: Handle,
}

impl Owner {
    fn start() -> Self {
        let (events, handle, owner) = owner(SETTINGS);
        tokio::spawn(owner);
        Self { events, handle }
    }

    async fn see(&self, view: ClusterView) {
        let (reply, seen) = oneshot::channel();
        self.events.send(Event::Cluster { view, reply }).await.unwrap();
        seen.await.unwrap();
    }

    async fn connect(&self, node: &str, stream: u64) -> Admission {
        let hello = Hello {
            node: node.to_owned(),
            agent_version: String::new(),
            kernel_release: String::new(),
        };
        let (reply, admission) = oneshot::channel();
        self.events
            .send(Event::Connected { hello, stream, reply })
            .await
            .unwrap();
        admission.await.unwrap().unwrap()
    }

    /// Flows opened at each endpoint; false when the stream is not the node's.
    async fn report(&self, node: &str, stream: u64, sequence: u64, opened: &[(u16, u64)]) -> bool {
        let entry = |&(n, opened): &(u16, u64)| {
            let mut classes = ByClass::<Counts>::default();
            classes[SourceClass::External.index()].opened = opened;
            Entry {
                key: LedgerKey {
                    endpoint: key(n),
                    cgroup_id: 1,
                },
                classes,
            }
        };
        let report = NodeReport {
            epoch: 1,
            sequence,
            entries: opened.iter().map(entry).collect(),
            ..Default::default()
        };
        let (reply, taken) = oneshot::channel();
        let event = Event::Report {
            node: node.to_owned(),
            stream,
            report,
            received_ms: now_ms(),
            reply,
        };
        self.events.send(event).await.unwrap();
        taken.await.is_ok()
    }

    async fn figures(&self) -> PortFigures {
        let window = vec![WindowStart::Ago(60_000)];
        self.handle
            .figures(Scope::Service(name()), window)
            .await
            .unwrap()
            .unwrap()
            .ports
            .remove(0)
    }
}

#[tokio::test]
async fn nothing_is_shown_before_the_cluster_is_known() {
    let owner = Owner::start();
    assert_eq!(owner.handle.figures(Scope::All, vec![]).await, Ok(None));
    let admission = owner.connect("a", 1).await;
    assert!(admission.assignments.borrow().is_none());
    assert!(owner.report("a", 1, 1, &[(1, 10)]).await, "and nothing is lost either");
    owner.see(view(&[("a", 1, true)])).await;
    assert_eq!(
        owner.figures().await.endpoints[0].opened[0][SourceClass::External.index()],
        10
    );
    assert_eq!(admission.assignments.borrow().as_ref().unwrap().endpoints.len(), 1);
}

#[tokio::test]
async fn assignments_are_sent_when_they_change() {
    let owner = Owner::start();
    owner.see(view(&[("a", 1, true), ("b", 2, true)])).await;
    let mut a = owner.connect("a", 1).await.assignments;
    let first = a.borrow_and_update().clone().unwrap();
    // Of another node, or only a condition: nothing to tell.
    owner.see(view(&[("a", 1, true), ("b", 3, true)])).await;
    owner.see(view(&[("a", 1, false), ("b", 3, true)])).await;
    assert!(!a.has_changed().unwrap());
    owner.see(view(&[("a", 1, true), ("a", 4, true)])).await;
    assert!(a.has_changed().unwrap());
    let second = a.borrow_and_update().clone().unwrap();
    assert!(second.version > first.version);
    assert_eq!(*second.endpoints, [key(1), key(4)]);
}

#[tokio::test]
async fn a_stream_that_was_replaced_is_not_heard() {
    let owner = Owner::start();
    owner.see(view(&[("a", 1, true)])).await;
    let mut first = owner.connect("a", 1).await;
    let _second = owner.connect("a", 2).await;
    assert!(first.replaced.try_recv().is_err());
    assert!(!owner.report("a", 1, 1, &[(1, 10)]).await);
    assert!(owner.report("a", 2, 1, &[(1, 10)]).await);
    // Its end is not the end of the other.
    owner
        .events
        .send(Event::Disconnected {
            node: "a".to_owned(),
            stream: 1,
        })
        .await
        .unwrap();
    assert!(owner.report("a", 2, 2, &[(1, 11)]).await);
    assert!(owner.handle.nodes().await.unwrap()[0].connected);
}

#[tokio::test]
async fn flows_on_endpoints_that_do_not_count_any_more() {
    let owner = Owner::start();
    owner.see(view(&[("a", 1, true), ("a", 2, true), ("a", 3, true)])).await;
    let _a = owner.connect("a", 1).await;
    owner.report("a", 1, 1, &[(1, 10), (2, 20), (3, 40)]).await;
    assert_eq!(owner.figures().await.gone, [0]);
    owner.see(view(&[("a", 1, true), ("a", 2, false)])).await;
    let figures = owner.figures().await;
    assert_eq!((figures.endpoints.len(), figures.gone), (1, vec![60]));
}
