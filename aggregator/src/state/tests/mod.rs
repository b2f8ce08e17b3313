//! Events, and what the owner answers; lost endpoints.

mod clients;
mod doors;
mod figures;
mod identity;

use std::net::Ipv6Addr;

use super::changes::Changes;
use super::*;
use crate::cluster::{Endpoint, ObjectName, PortName, ServicePort, ServiceView};
use crate::flow::{ByClass, Counts, EndpointKey, Protocol, SourceClass};
use crate::ingest::wire::Hello;
use crate::ledger::{Entry, LedgerKey, NodeReport, RETENTION_MS};
use crate::report::GoneState;
use tokio::sync::oneshot;

const EXTERNAL: usize = SourceClass::External.index();

const SETTINGS: Settings = Settings {
    bucket: Duration::from_secs(1),
    report_interval: Duration::from_secs(1),
    client_events: 10_000,
    client_key_rotation: Duration::from_secs(86_400),
};

fn address(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)
}

pub(super) fn key(n: u16) -> EndpointKey {
    EndpointKey {
        address: address(n),
        port: 8883,
        protocol: Protocol::Tcp,
    }
}

/// Ready, with "uid-N" as id.
pub(super) fn endpoint(node: &str, n: u16) -> Endpoint {
    Endpoint {
        pod: format!("pod-{n}"),
        pod_uid: format!("uid-{n}").into(),
        node: node.to_owned(),
        addresses: [address(n)].into(),
        port: 8883,
        ready: true,
        serving: true,
        terminating: false,
        zone: String::new(),
    }
}

/// Services with one port each.
pub(super) fn view_of(services: &[(&str, u16, Vec<Endpoint>)]) -> ClusterView {
    let service = |(service, port, endpoints): &(&str, u16, Vec<Endpoint>)| {
        let port = ServicePort {
            port: *port,
            name: String::new(),
            protocol: Protocol::Tcp,
            node_port: None,
            endpoints: endpoints.clone(),
        };
        let view = ServiceView {
            external_traffic_policy: "Local".to_owned(),
            session_affinity: "None".to_owned(),
            ports: vec![port],
            ..Default::default()
        };
        (name(service), view)
    };
    ClusterView {
        services: services.iter().map(service).collect(),
        ..Default::default()
    }
}

/// Service ns/s with endpoints as (node, number, ready).
fn view(endpoints: &[(&str, u16, bool)]) -> ClusterView {
    let endpoint = |&(node, n, ready): &(&str, u16, bool)| Endpoint {
        ready,
        serving: ready,
        terminating: !ready,
        ..endpoint(node, n)
    };
    view_of(&[("s", 443, endpoints.iter().map(endpoint).collect())])
}

pub(super) fn name(service: &str) -> ObjectName {
    ObjectName {
        namespace: "ns".to_owned(),
        name: service.to_owned(),
    }
}

fn port_name() -> PortName {
    PortName {
        service: name("s"),
        port: 443,
        protocol: Protocol::Tcp,
    }
}

fn gone_keys(changes: &Changes) -> Vec<(String, EndpointKey)> {
    let gone = changes.gone(&port_name()).iter();
    gone.map(|gone| (gone.node.clone(), gone.key)).collect()
}

#[test]
fn lost_endpoints_are_remembered_for_an_hour() {
    let mut gone = Changes::default();
    let (two, one) = (view(&[("a", 1, true), ("b", 2, true)]), view(&[("a", 1, true)]));
    gone.compare(&two, &two, 1000);
    assert!(gone_keys(&gone).is_empty());
    gone.compare(&two, &one, 1000);
    assert_eq!(gone_keys(&gone), [("b".to_owned(), key(2))]);
    gone.expire(1000 + RETENTION_MS - 1);
    assert_eq!(gone_keys(&gone).len(), 1);
    gone.expire(1000 + RETENTION_MS);
    assert!(gone_keys(&gone).is_empty());
    // One that moved to another node is gone from the first; one that is back is not.
    gone.compare(&two, &view(&[("a", 1, true), ("c", 2, true)]), 1000);
    assert_eq!(gone_keys(&gone), [("b".to_owned(), key(2))]);
    gone.compare(&one, &two, 2000);
    assert!(gone_keys(&gone).is_empty());
    // Not ready is not gone.
    gone.compare(&two, &view(&[("a", 1, true), ("b", 2, false)]), 3000);
    assert!(gone_keys(&gone).is_empty());
    // With its Service.
    gone.compare(&two, &ClusterView::default(), 4000);
    assert_eq!(gone_keys(&gone).len(), 2);
}

/// External flows at an endpoint, of a cgroup.
fn entry(n: u16, cgroup_id: u64, opened: u64, established: u64) -> Entry {
    let mut classes = ByClass::<Counts>::default();
    classes[EXTERNAL] = Counts {
        opened,
        established,
        ..Default::default()
    };
    Entry {
        key: LedgerKey {
            endpoint: key(n),
            cgroup_id,
        },
        pod_uid: None,
        classes,
        doors: vec![],
        ages: None,
    }
}

/// The same, and the agent knows the pod.
fn entry_of(pod: &str, n: u16, cgroup_id: u64, opened: u64, established: u64) -> Entry {
    Entry {
        pod_uid: Some(pod.into()),
        ..entry(n, cgroup_id, opened, established)
    }
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
            ..Default::default()
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
        let report = NodeReport {
            sequence,
            entries: opened.iter().map(|&(n, opened)| entry(n, 1, opened, 0)).collect(),
            ..Default::default()
        };
        self.send(node, stream, report).await
    }

    /// Of epoch 1, which began before any window. It comes some seconds from now, so that windows which begin after a change
    /// of just now hold it.
    async fn send(&self, node: &str, stream: u64, report: NodeReport) -> bool {
        let (reply, taken) = oneshot::channel();
        let at_ms = now_ms() + 5_000;
        let event = Event::Report {
            node: node.to_owned(),
            stream,
            report: Box::new(NodeReport {
                epoch: 1,
                epoch_started_at_ms: at_ms - 600_000,
                taken_at_ms: at_ms,
                sent_at_ms: at_ms,
                ..report
            }),
            received_ms: at_ms,
            reply,
        };
        self.events.send(event).await.unwrap();
        taken.await.is_ok()
    }

    async fn figures(&self) -> PortFigures {
        self.figures_of("s").await
    }

    async fn figures_of(&self, service: &str) -> PortFigures {
        let window = vec![WindowStart::Ago(60_000)];
        self.handle
            .figures(Scope::Service(name(service)), window)
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
        owner.figures().await.endpoints[0].tally.opened[0][SourceClass::External.index()],
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
    assert!(owner.figures().await.gone.is_empty());
    owner.see(view(&[("a", 1, true), ("a", 2, false)])).await;
    let figures = owner.figures().await;
    let gone = figures
        .gone
        .iter()
        .map(|gone| (gone.state, gone.tally.opened[0][EXTERNAL]));
    assert_eq!(figures.endpoints.len(), 1);
    assert_eq!(
        gone.collect::<Vec<_>>(),
        [(GoneState::NotReady, 20), (GoneState::Gone, 40)]
    );
}
