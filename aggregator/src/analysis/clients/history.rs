//! Single flows enter, in order of time; the opens of each client in order leave, with where they landed and how many flows
//! of a client were open at once.

use super::super::input::{ClientEvent, ClientEventKind, ClientsInput, ServiceInput};
use std::collections::HashMap;

/// kube-proxy and the aggregator learn within so many milliseconds of each other that an endpoint is not ready any more.
const LEARNING_MS: u64 = 5_000;

/// An endpoint that flows are on, ready or not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Index into [`Places::nodes`].
    pub node: usize,
    /// Its number among the places of its node.
    pub slot: u32,
    /// Ready at each moment before this one.
    pub ready_until_ms: u64,
}

/// The endpoints that are ready, then those that are not any more; and their nodes.
pub(super) struct Places<'a> {
    pub all: Vec<Place>,
    /// How many are ready: the first ones.
    pub ready: usize,
    pub nodes: Vec<PlaceNode<'a>>,
}

/// A node with an endpoint, ready or not.
pub(super) struct PlaceNode<'a> {
    pub name: &'a str,
    /// Ready endpoints.
    pub ready: u32,
    /// Endpoints, ready or not.
    pub places: u32,
    /// When its endpoints changed, ascending.
    pub changes_ms: Vec<u64>,
    /// When it had its first ready endpoint, as far as is known; 0: before anybody watched.
    pub since_ms: u64,
    /// It had a ready endpoint at each moment before this one.
    pub until_ms: u64,
}

impl<'a> Places<'a> {
    pub fn of(input: &'a ServiceInput) -> Self {
        let node = |name: &'a str| PlaceNode {
            name,
            ready: 0,
            places: 0,
            changes_ms: Vec::new(),
            since_ms: u64::MAX,
            until_ms: 0,
        };
        let mut nodes: Vec<PlaceNode> = input.nodes.iter().map(|n| node(&n.name)).collect();
        let mut numbers: HashMap<&str, usize> = nodes.iter().enumerate().map(|(i, n)| (n.name, i)).collect();
        let mut all = Vec::with_capacity(input.endpoints.len() + input.former.len());
        for endpoint in &input.endpoints {
            let on = &mut nodes[endpoint.node];
            all.push(Place {
                node: endpoint.node,
                slot: on.places,
                ready_until_ms: u64::MAX,
            });
            on.since_ms = on.since_ms.min(endpoint.ready_since_ms.unwrap_or(0));
            on.until_ms = u64::MAX;
            on.ready += 1;
            on.places += 1;
            on.changes_ms.extend(endpoint.ready_since_ms);
        }
        for former in &input.former {
            let number = *numbers.entry(&former.node).or_insert_with(|| {
                nodes.push(node(&former.node));
                nodes.len() - 1
            });
            let on = &mut nodes[number];
            let ready_until_ms = former.since_ms.map_or(0, |since| since.saturating_sub(LEARNING_MS));
            all.push(Place {
                node: number,
                slot: on.places,
                ready_until_ms,
            });
            // Since when it had been ready is not known.
            on.since_ms = 0;
            on.until_ms = on.until_ms.max(ready_until_ms);
            on.places += 1;
            on.changes_ms.extend(former.since_ms);
        }
        for node in &mut nodes {
            node.changes_ms.sort_unstable();
            node.changes_ms.dedup();
        }
        Self {
            all,
            ready: input.endpoints.len(),
            nodes,
        }
    }
}

/// A flow that opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub at_ms: u64,
    pub client: u64,
    /// Index into [`Places::all`].
    pub place: u32,
}

/// What clients did.
pub(super) struct History {
    /// In order of time.
    pub opens: Vec<Open>,
    /// Indexes of `opens`, by client, and for each in order of time.
    pub by_client: Vec<u32>,
    /// The same by client and node.
    pub by_node: Vec<u32>,
    /// Clients in ascending order, each with the most of its flows that were seen to open and were open at once.
    pub at_once: Vec<(u64, u32)>,
}

impl History {
    /// Events of clients outside the sample, at unknown places, and before `asked_from_ms` are left out.
    pub fn of(told: &ClientsInput, places: &Places, asked_from_ms: u64) -> Self {
        let in_sample = |client: u64| match told.sampling_shift {
            0 => true,
            shift => client.checked_shr(64 - shift.min(64)).unwrap_or(0) == 0,
        };
        let usable = |event: &&ClientEvent| {
            event.at_ms >= asked_from_ms && (event.place as usize) < places.all.len() && in_sample(event.client)
        };
        let mut events: Vec<&ClientEvent> = told.events.iter().filter(usable).collect();
        if !events.is_sorted_by_key(|event| event.at_ms) {
            events.sort_by_key(|event| event.at_ms);
        }
        let mut opens = Vec::with_capacity(events.len());
        // By client, each event with its number among the opens.
        let mut order: Vec<(u64, u32, u32)> = Vec::with_capacity(events.len());
        for (i, event) in events.iter().enumerate() {
            order.push((event.client, i as u32, opens.len() as u32));
            if event.what == ClientEventKind::Opened {
                opens.push(Open {
                    at_ms: event.at_ms,
                    client: event.client,
                    place: event.place,
                });
            }
        }
        order.sort_unstable();
        let opened = |i: u32| events[i as usize].what == ClientEventKind::Opened;
        let by_client: Vec<u32> = order
            .iter()
            .filter(|(_, i, _)| opened(*i))
            .map(|(_, _, open)| *open)
            .collect();
        let mut by_node = by_client.clone();
        let node = |open: &u32| places.all[opens[*open as usize].place as usize].node;
        for of_one in by_node.chunk_by_mut(|a, b| opens[*a as usize].client == opens[*b as usize].client) {
            of_one.sort_by_key(node);
        }
        let at_once = order
            .chunk_by(|a, b| a.0 == b.0)
            .map(|of_one| {
                (
                    of_one[0].0,
                    most_at_once(of_one.iter().map(|(_, i, _)| events[*i as usize]), asked_from_ms),
                )
            })
            .collect();
        Self {
            opens,
            by_client,
            by_node,
            at_once,
        }
    }

    /// The opens of `order` in its order.
    pub fn in_order<'a>(&'a self, order: &'a [u32]) -> impl Iterator<Item = &'a Open> {
        order.iter().map(|i| &self.opens[*i as usize])
    }

    /// Most flows of a client at once; 0 when none was seen to open.
    pub fn at_once(&self, client: u64) -> u32 {
        let found = self.at_once.binary_search_by_key(&client, |(client, _)| *client);
        found.map_or(0, |at| self.at_once[at].1)
    }
}

/// Running opens minus closes, at most. A close of a flow that was not seen to open takes nothing off.
fn most_at_once<'a>(events: impl Iterator<Item = &'a ClientEvent>, from_ms: u64) -> u32 {
    let (mut open, mut most) = (0_u32, 0);
    for event in events {
        match event.what {
            ClientEventKind::Opened => {
                open += 1;
                most = most.max(open);
            }
            ClientEventKind::Closed { lifetime_ms, .. } => {
                let seen = lifetime_ms.is_some_and(|lifetime| event.at_ms.saturating_sub(lifetime) >= from_ms);
                open = open.saturating_sub(u32::from(seen));
            }
        }
    }
    most
}
