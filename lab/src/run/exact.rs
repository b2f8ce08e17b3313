//! The counts that must be right to the last flow. An observation enters; rows of expected and got leave. Pure.

use super::evaluate::Row;
use super::observe::{Flows, Observation};
use crate::scenario::Check;
use crate::scenario::expect::Exactness;

/// Which counts are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exact {
    /// Flows that opened.
    pub opened: bool,
    /// Flows that closed.
    pub closed: bool,
    /// Flows open now.
    pub established: bool,
    /// The flows of pods that are gone.
    pub gone: bool,
    /// Attempts that reached no pod.
    pub unserved: bool,
}

impl Exact {
    /// All of them.
    pub const ALL: Self = Self {
        opened: true,
        closed: true,
        established: true,
        gone: true,
        unserved: true,
    };
    /// Only what opened.
    pub const OPENED: Self = Self {
        opened: true,
        closed: false,
        established: false,
        gone: false,
        unserved: false,
    };

    /// Flows that close meanwhile would make a difference.
    pub fn ends(self) -> bool {
        self.closed || self.established
    }

    /// What a check compares.
    pub fn of(check: &Check) -> Self {
        let is = |exactness| exactness == Exactness::Exact;
        Self {
            opened: is(check.opened),
            closed: is(check.closed),
            established: is(check.established),
            gone: is(check.gone),
            unserved: is(check.unserved),
        }
    }
}

/// A row for each count that is compared.
pub fn rows(exact: Exact, seen: &Observation) -> Vec<Row> {
    type Count = fn(&Flows) -> u64;
    let counts: [(&str, bool, Count); 3] = [
        ("opened", exact.opened, |flows| flows.opened),
        ("closed", exact.closed, |flows| flows.closed),
        ("established", exact.established, |flows| flows.established),
    ];
    let mut rows = Vec::new();
    for (word, compared, count) in counts {
        if !compared {
            continue;
        }
        let by_agents = seen
            .counted()
            .map(|pod| (pod.pod.clone(), count(&pod.truth), pod.agent.as_ref().map(count)));
        rows.push(difference(format!("{word}, by the agents"), by_agents));
        let several = seen.pods.iter().any(|pod| pod.services.len() > 1);
        let by_aggregator = seen.counted().flat_map(|pod| {
            pod.services.iter().map(move |flows| {
                let who = if several {
                    format!("{} of {}", pod.pod, flows.service)
                } else {
                    pod.pod.clone()
                };
                (who, count(&flows.truth), flows.aggregator.as_ref().map(count))
            })
        });
        rows.push(difference(format!("{word}, by the aggregator"), by_aggregator));
        if exact.gone && seen.counted_gone().next().is_some() {
            let gone = seen.counted_gone().map(|gone| {
                let flows = &gone.flows;
                let who = format!("{} at {} of {}", gone.pod, gone.address, flows.service);
                (who, count(&flows.truth), flows.aggregator.as_ref().map(count))
            });
            rows.push(difference(format!("{word} on pods that are gone"), gone));
        }
    }
    if exact.unserved {
        rows.extend(unserved(seen));
    }
    rows
}

/// Compares counts of some things: (name, truth, count).
fn difference(what: String, counts: impl Iterator<Item = (String, u64, Option<u64>)>) -> Row {
    let mut wrong = Vec::new();
    let mut sum = 0;
    for (who, truth, got) in counts {
        sum += truth;
        if got != Some(truth) {
            let got = got.map_or("unknown".to_owned(), |got| got.to_string());
            wrong.push(format!("{who}: {got}, not {truth}"));
        }
    }
    let got = if wrong.is_empty() {
        format!("{sum} flows, difference 0")
    } else {
        wrong.join("; ")
    };
    Row::new(what, format!("{sum} flows"), got, wrong.is_empty())
}

/// Attempts that reached no pod; no row where there were none and none is told.
fn unserved(seen: &Observation) -> impl Iterator<Item = Row> {
    seen.unserved.iter().filter_map(|counts| {
        let told: u64 = counts.aggregator.values().sum();
        if told == 0 && counts.truth == 0 {
            return None;
        }
        let elsewhere = counts.aggregator.keys().any(|node| !counts.allowed.contains(node));
        let nodes: Vec<_> = counts
            .aggregator
            .iter()
            .map(|(node, n)| format!("{n} at {node}"))
            .collect();
        let allowed: Vec<&str> = counts.allowed.iter().map(String::as_str).collect();
        let got = if nodes.is_empty() {
            "none".to_owned()
        } else {
            nodes.join(", ")
        };
        // A connection is refused where the pod is; one that is dropped is dropped where no pod is.
        let (at, wrong_place) = match counts.reason.as_str() {
            "dropped" => (format!(" at {}", allowed.join(", ")), elsewhere),
            _ => (String::new(), false),
        };
        Some(Row::new(
            format!("attempts to {} that were {}", counts.service, counts.reason),
            format!("{}{at}", counts.truth),
            got,
            told == counts.truth && !wrong_place,
        ))
    })
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
