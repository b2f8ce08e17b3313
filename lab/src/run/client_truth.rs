//! Who opened flows, by the clients' own books. Flows by client address, then and now, enter; the figures that a report gives
//! of clients leave, without error. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use super::books::Sources;

/// The clients that opened flows since a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ClientTruth {
    /// Flows that they opened.
    pub flows: u64,
    /// How many they are.
    pub clients: u64,
    /// 1 / sum q^2, q the share of a client; 0 without flows.
    pub effective: f64,
    /// Share of the flows of the ten that opened most, 0 to 1; 0 without flows.
    pub top_share: f64,
}

/// The clients whose share is told.
const HEAVIEST: usize = 10;

impl ClientTruth {
    /// Of those who dial `to`.
    pub fn since(to: &str, then: &Sources, now: &Sources) -> Self {
        let none = BTreeMap::new();
        let [then, now] = [then, now].map(|sources| sources.get(to).unwrap_or(&none));
        let opened = |(source, flows): (&IpAddr, &u64)| flows - then.get(source).unwrap_or(&0);
        Self::of(now.iter().map(opened).filter(|flows| *flows > 0).collect())
    }

    fn of(mut opened: Vec<u64>) -> Self {
        opened.sort_unstable_by(|a, b| b.cmp(a));
        let flows: u64 = opened.iter().sum();
        if flows == 0 {
            return Self::default();
        }
        let share = |flows_of_one: &u64| *flows_of_one as f64 / flows as f64;
        let squares: f64 = opened.iter().map(|one| share(one).powi(2)).sum();
        Self {
            flows,
            clients: opened.len() as u64,
            effective: 1.0 / squares,
            top_share: opened.iter().take(HEAVIEST).map(share).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(flows: &[(&str, u64)]) -> Sources {
        let flows = flows.iter().map(|(source, flows)| (source.parse().unwrap(), *flows));
        Sources::from([("web".to_owned(), flows.collect())])
    }

    #[test]
    fn only_what_opened_since_then_counts() {
        let then = sources(&[("198.18.0.1", 5), ("198.18.0.2", 7)]);
        let now = sources(&[("198.18.0.1", 5), ("198.18.0.2", 10), ("198.18.0.3", 1)]);
        let truth = ClientTruth::since("web", &then, &now);
        assert_eq!((truth.flows, truth.clients, truth.top_share), (4, 2, 1.0));
        assert!((truth.effective - 1.6).abs() < 1e-12, "{}", truth.effective);
        assert_eq!(ClientTruth::since("web", &now, &now), ClientTruth::default());
        assert_eq!(ClientTruth::since("api", &then, &now), ClientTruth::default());
    }

    #[test]
    fn the_ten_heaviest_are_those_with_most_flows() {
        let truth = ClientTruth::of([vec![1; 10], vec![9; 10]].concat());
        assert!((truth.top_share - 0.9).abs() < 1e-12);
    }
}
