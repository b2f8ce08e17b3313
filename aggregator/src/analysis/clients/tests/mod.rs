//! Tests of what is said of clients: tables by hand, samples against the whole, properties, and simulated session affinity.

mod affinity;
mod calibration;
mod properties;
mod sampling;
mod speed;
mod tables;

use super::super::design::ClientView;
use super::super::shares::Split;
use super::super::{
    AffinityInput, ClientEvent, ClientEventKind, ClientsInput, EndpointInput, FormerEndpoint, NodeInput, ServiceInput,
};
use crate::flow::CloseCause;
use crate::report::{FlowKind, Window};
use fastrand::Rng;

/// Length of the window: an hour.
const HOUR: u64 = 3_600_000;

/// A Service with so many pods on each node, and nothing that clients did.
fn service(pods: &[usize]) -> ServiceInput {
    let nodes = 0..pods.len();
    ServiceInput {
        service: "a/b".to_owned(),
        window: Window {
            from_ms: 0,
            to_ms: HOUR,
        },
        asked_from_ms: 0,
        affinity: AffinityInput::None,
        endpoints_changed_ms: None,
        nodes: nodes
            .clone()
            .map(|node| NodeInput {
                name: format!("n{node}"),
                reporting: true,
                zone: String::new(),
            })
            .collect(),
        endpoints: nodes
            .flat_map(|node| {
                (0..pods[node]).map(move |pod| EndpointInput {
                    pod: format!("n{node}-{pod}"),
                    node,
                    ..EndpointInput::default()
                })
            })
            .collect(),
        former: Vec::new(),
        windows: Vec::new(),
        clients: Some(ClientsInput::default()),
    }
}

/// The hash of a client with this number: spread over all 64 bits (the finaliser of S. Vigna's splitmix64).
fn hash(client: u64) -> u64 {
    let mut z = client.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn opened(at_ms: u64, client: u64, place: u32) -> ClientEvent {
    ClientEvent {
        at_ms,
        client,
        place,
        what: ClientEventKind::Opened,
    }
}

fn closed(at_ms: u64, client: u64, place: u32, lifetime_ms: Option<u64>) -> ClientEvent {
    let cause = CloseCause::ClientFin;
    ClientEvent {
        what: ClientEventKind::Closed { cause, lifetime_ms },
        ..opened(at_ms, client, place)
    }
}

/// The input with these events, and the counts of flows that go with them.
fn with_events(mut input: ServiceInput, events: Vec<ClientEvent>) -> ServiceInput {
    for event in events.iter().filter(|event| event.what == ClientEventKind::Opened) {
        if let Some(endpoint) = input.endpoints.get_mut(event.place as usize) {
            endpoint.new += 1;
        }
    }
    input.clients = Some(ClientsInput {
        events,
        ..ClientsInput::default()
    });
    input
}

fn view(input: &ServiceInput) -> ClientView {
    super::view(input, &Split::of(input, FlowKind::New)).unwrap()
}

/// Flows over a Service as balancer and kube-proxy split them.
struct Proxy {
    /// First place and number of pods of each node.
    nodes: Vec<(u32, usize)>,
    /// Addresses that a pod remembers.
    list: usize,
    /// Clients of each pod, the latest last.
    lists: Vec<Vec<u64>>,
}

impl Proxy {
    fn new(pods: &[usize], list: usize) -> Self {
        let first = |node: usize| pods[..node].iter().sum::<usize>() as u32;
        Self {
            nodes: (0..pods.len()).map(|node| (first(node), pods[node])).collect(),
            list,
            lists: vec![Vec::new(); pods.iter().sum()],
        }
    }

    /// The pod that remembers the client, else any.
    fn open(&mut self, rng: &mut Rng, client: u64, node: usize) -> u32 {
        let (first, pods) = self.nodes[node];
        let mut on_node = first..first + pods as u32;
        let kept = on_node.find(|place| self.lists[*place as usize].contains(&client));
        let place = kept.unwrap_or_else(|| first + rng.usize(..pods) as u32);
        let list = &mut self.lists[place as usize];
        list.retain(|other| *other != client);
        list.push(client);
        if list.len() > self.list {
            list.remove(0);
        }
        place
    }
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
}
