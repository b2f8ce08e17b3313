//! The clients' books: in, events of flows and requests to open and close; out, counts, and the replies that are due.
//!
//! Plain data, owned by one task. A request to open is due when every attempt has ended, one to close when every flow
//! it chose is closed.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use fastrand::Rng;
use tokio::sync::oneshot;

use super::{
    flow::Event,
    protocol::{CloseFlows, CloseHow, Counts, PerPod, Reply},
};

/// A reply that is due, with the id of its request.
pub type Due = Option<(u64, Reply)>;

/// One client, from before its first attempt until it will not come back.
#[derive(Debug)]
struct Entry {
    group: String,
    source: IpAddr,
    /// The request that opened it.
    opening: u64,
    /// The request that closes it.
    closing: Option<u64>,
    /// The pod at the other end, while the flow is open.
    pod: Option<String>,
    order: Option<oneshot::Sender<CloseHow>>,
}

#[derive(Debug, Default)]
struct Opening {
    left: u64,
    opened: PerPod,
    failed: PerPod,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    counts: Counts,
    by_source: BTreeMap<IpAddr, PerPod>,
    entries: HashMap<u64, Entry>,
    opening: HashMap<u64, Opening>,
    /// Per request: flows still to close, and how many were chosen.
    closing: HashMap<u64, (u64, u64)>,
}

impl Ledger {
    /// Expects `flows` attempts for request `id`.
    pub fn open(&mut self, id: u64, flows: u64) -> Due {
        self.opening.insert(
            id,
            Opening {
                left: flows,
                ..Opening::default()
            },
        );
        self.opening_due(id)
    }

    /// A client of request `id` is about to start; returns where it hears the order to close.
    pub fn start(&mut self, id: u64, flow: u64, group: &str, source: IpAddr) -> oneshot::Receiver<CloseHow> {
        let (sender, order) = oneshot::channel();
        let group = group.to_owned();
        self.entries.insert(
            flow,
            Entry {
                group,
                source,
                opening: id,
                closing: None,
                pod: None,
                order: Some(sender),
            },
        );
        order
    }

    /// Orders flows to close for request `id`.
    pub fn close(&mut self, id: u64, which: &CloseFlows) -> Due {
        let in_group = |entry: &Entry| which.group.as_ref().is_none_or(|group| *group == entry.group);
        let to_pod = |entry: &Entry| match (&entry.pod, &which.pod) {
            (Some(pod), Some(wanted)) => pod == wanted,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let mut chosen: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.closing.is_none() && in_group(entry) && to_pod(entry))
            .map(|(&flow, _)| flow)
            .collect();
        // The order of a map differs from run to run; the seed alone decides.
        chosen.sort_unstable();
        if let Some(limit) = which.limit {
            Rng::with_seed(which.seed).shuffle(&mut chosen);
            chosen.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        for flow in &chosen {
            if let Some(entry) = self.entries.get_mut(flow) {
                entry.closing = Some(id);
                // A flow that has just ended by itself does not listen any more; its event is on the way.
                let _ = entry.order.take().map(|order| order.send(which.how));
            }
        }
        if which.pod.is_none() && which.limit.is_none() {
            // Those that wait to come back hear that nobody will order anything, and give up.
            let waiting = |entry: &&mut Entry| entry.pod.is_none() && in_group(entry);
            self.entries
                .values_mut()
                .filter(waiting)
                .for_each(|entry| entry.order = None);
        }
        let number = chosen.len() as u64;
        self.closing.insert(id, (number, number));
        self.closing_due(id)
    }

    /// Books what a flow reports.
    pub fn book(&mut self, event: Event) -> Due {
        match event {
            Event::Opened { flow, pod, reconnect } => {
                let entry = self.entries.get_mut(&flow)?;
                add(&mut self.counts.opened, &pod);
                add(&mut self.counts.open, &pod);
                add(self.by_source.entry(entry.source).or_default(), &pod);
                entry.pod = Some(pod.clone());
                if reconnect {
                    self.counts.reconnected += 1;
                    return None;
                }
                let id = entry.opening;
                self.attempted(id, |opening| add(&mut opening.opened, &pod))
            }
            Event::Failed {
                flow,
                reason,
                reconnect,
            } => {
                add(&mut self.counts.failed, &reason);
                if reconnect {
                    return None;
                }
                let id = self.entries.get(&flow)?.opening;
                self.attempted(id, |opening| add(&mut opening.failed, &reason))
            }
            Event::Closed { flow, by_server } => {
                let entry = self.entries.get_mut(&flow)?;
                let pod = entry.pod.take()?;
                let closed = if by_server {
                    &mut self.counts.server_closed
                } else {
                    &mut self.counts.client_closed
                };
                add(closed, &pod);
                if let Some(open) = self.counts.open.get_mut(&pod) {
                    *open -= 1;
                }
                let id = entry.closing.take()?;
                if let Some((left, _)) = self.closing.get_mut(&id) {
                    *left -= 1;
                }
                self.closing_due(id)
            }
            Event::Ended { flow } => {
                self.entries.remove(&flow);
                None
            }
        }
    }

    /// The counts now.
    pub fn counts(&self, attempting: u64) -> Counts {
        Counts {
            attempting,
            ..self.counts.clone()
        }
    }

    /// Flows opened so far, by source address and pod.
    pub fn by_source(&self) -> BTreeMap<IpAddr, PerPod> {
        self.by_source.clone()
    }

    fn attempted(&mut self, id: u64, book: impl FnOnce(&mut Opening)) -> Due {
        let opening = self.opening.get_mut(&id)?;
        book(opening);
        opening.left -= 1;
        self.opening_due(id)
    }

    fn opening_due(&mut self, id: u64) -> Due {
        if self.opening.get(&id)?.left > 0 {
            return None;
        }
        let Opening { opened, failed, .. } = self.opening.remove(&id)?;
        Some((id, Reply::Opened { opened, failed }))
    }

    fn closing_due(&mut self, id: u64) -> Due {
        match self.closing.get(&id)? {
            (0, number) => {
                let reply = Reply::Closed(*number);
                self.closing.remove(&id);
                Some((id, reply))
            }
            _ => None,
        }
    }
}

fn add(per_pod: &mut PerPod, key: &str) {
    match per_pod.get_mut(key) {
        Some(count) => *count += 1,
        None => drop(per_pod.insert(key.to_owned(), 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1));

    fn opened(flow: u64, pod: &str, reconnect: bool) -> Event {
        Event::Opened {
            flow,
            pod: pod.into(),
            reconnect,
        }
    }

    /// Request 1 with flows 1, 2, 3 in group `held`; 1 and 2 open to `a`, 3 to `b`.
    fn three_open() -> (Ledger, Vec<oneshot::Receiver<CloseHow>>) {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.open(1, 3), None);
        let orders = (1..=3).map(|flow| ledger.start(1, flow, "held", SOURCE)).collect();
        assert_eq!(ledger.book(opened(1, "a", false)), None);
        assert_eq!(ledger.book(opened(2, "a", false)), None);
        let per_pod = [("a".to_owned(), 2), ("b".to_owned(), 1)].into();
        let reply = Reply::Opened {
            opened: per_pod,
            failed: PerPod::new(),
        };
        assert_eq!(ledger.book(opened(3, "b", false)), Some((1, reply)));
        (ledger, orders)
    }

    #[test]
    fn a_request_to_open_is_due_when_every_attempt_has_ended() {
        let mut ledger = Ledger::default();
        assert!(
            matches!(ledger.open(1, 0), Some((1, Reply::Opened { .. }))),
            "nothing to wait for"
        );
        assert_eq!(ledger.open(2, 2), None);
        let _orders = [ledger.start(2, 1, "", SOURCE), ledger.start(2, 2, "", SOURCE)];
        assert_eq!(ledger.book(opened(1, "a", false)), None);
        let failed = Event::Failed {
            flow: 2,
            reason: "refused".into(),
            reconnect: false,
        };
        let one = |key: &str| PerPod::from([(key.to_owned(), 1)]);
        let reply = Reply::Opened {
            opened: one("a"),
            failed: one("refused"),
        };
        assert_eq!(ledger.book(failed), Some((2, reply)));
    }

    #[test]
    fn a_request_to_close_is_due_when_its_flows_are_closed_whoever_did_it() {
        let (mut ledger, mut orders) = three_open();
        let which = CloseFlows {
            pod: Some("a".into()),
            how: CloseHow::Rst,
            ..CloseFlows::default()
        };
        assert_eq!(ledger.close(2, &which), None);
        assert_eq!(orders[0].try_recv(), Ok(CloseHow::Rst));
        assert!(orders[2].try_recv().is_err(), "flow 3 goes to another pod");
        assert_eq!(
            ledger.book(Event::Closed {
                flow: 1,
                by_server: false
            }),
            None
        );
        assert_eq!(
            ledger.book(Event::Closed {
                flow: 2,
                by_server: true
            }),
            Some((2, Reply::Closed(2)))
        );
        let counts = ledger.counts(0);
        assert_eq!((counts.open["a"], counts.open["b"]), (0, 1));
        assert_eq!((counts.client_closed["a"], counts.server_closed["a"]), (1, 1));
        assert_eq!(
            ledger.close(
                3,
                &CloseFlows {
                    group: Some("other".into()),
                    ..which
                }
            ),
            Some((3, Reply::Closed(0)))
        );
    }

    #[test]
    fn a_limit_chooses_by_seed() {
        let chosen = |seed| {
            let (mut ledger, mut orders) = three_open();
            ledger.close(
                2,
                &CloseFlows {
                    limit: Some(1),
                    seed,
                    ..CloseFlows::default()
                },
            );
            orders.iter_mut().position(|order| order.try_recv().is_ok())
        };
        assert_eq!(chosen(7), chosen(7));
        let all: std::collections::BTreeSet<_> = (0..50).map(chosen).collect();
        assert_eq!(all, [Some(0), Some(1), Some(2)].into());
    }

    #[test]
    fn reconnects_are_opened_again_but_not_part_of_the_request() {
        let (mut ledger, mut orders) = three_open();
        assert_eq!(
            ledger.book(Event::Closed {
                flow: 3,
                by_server: true
            }),
            None
        );
        assert_eq!(ledger.book(opened(3, "c", true)), None);
        let counts = ledger.counts(5);
        assert_eq!((counts.opened["b"], counts.opened["c"], counts.reconnected), (1, 1, 1));
        assert_eq!((counts.open["b"], counts.open["c"], counts.attempting), (0, 1, 5));
        assert_eq!(ledger.by_source()[&SOURCE].values().sum::<u64>(), 4);

        ledger.book(Event::Closed {
            flow: 3,
            by_server: true,
        });
        assert_eq!(ledger.close(2, &CloseFlows::default()), None);
        assert_eq!(
            orders[2].try_recv(),
            Err(oneshot::error::TryRecvError::Closed),
            "it gives up"
        );
    }
}
