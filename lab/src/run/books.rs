//! What clients count, over time. Their counts enter; the flows of a pod since its agent began to count, and moments of the
//! past to count from, leave.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::cluster::Running;
use super::observe::Flows;
use crate::clients::Counts;

/// What clients have counted, by what they dial.
pub type Books = BTreeMap<String, Counts>;

/// Flows that each client address has opened, by what it dials.
pub type Sources = BTreeMap<String, BTreeMap<IpAddr, u64>>;

/// What clients had counted when the agent of a node began to count: the zero of its counters.
#[derive(Debug, Default)]
pub struct Zeroes(BTreeMap<String, Books>);

impl Zeroes {
    /// The agent of `node` begins to count now.
    pub fn set(&mut self, node: &str, books: Books) {
        self.0.insert(node.to_owned(), books);
    }

    /// What clients of a Service have counted at a pod since then.
    pub fn since(&self, service: &str, running: &Running, books: &Books) -> Flows {
        let zero = self.0.get(&running.view.node).and_then(|books| books.get(service));
        let [now, zero] = [books.get(service), zero].map(|counts| Flows::of(counts, &running.instance));
        Flows {
            opened: now.opened.saturating_sub(zero.opened),
            closed: now.closed.saturating_sub(zero.closed),
            established: now.established,
        }
    }

    /// The same for a pod that has ended: all of its flows have.
    pub fn of_ended(&self, service: &str, running: &Running, books: &Books) -> Flows {
        let flows = self.since(service, running, books);
        Flows {
            closed: flows.closed + flows.established,
            established: 0,
            ..flows
        }
    }
}

impl Flows {
    fn of(counts: Option<&Counts>, instance: &str) -> Self {
        let get = |of: fn(&Counts) -> &BTreeMap<String, u64>| {
            counts.and_then(|counts| of(counts).get(instance)).copied().unwrap_or(0)
        };
        Self {
            opened: get(|counts| &counts.opened),
            closed: get(|counts| &counts.client_closed) + get(|counts| &counts.server_closed),
            established: get(|counts| &counts.open),
        }
    }
}

impl Sum for Flows {
    fn sum<I: Iterator<Item = Self>>(flows: I) -> Self {
        flows.fold(Self::default(), |sum, flows| Self {
            opened: sum.opened + flows.opened,
            closed: sum.closed + flows.closed,
            established: sum.established + flows.established,
        })
    }
}

/// A moment of the past.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Milliseconds since 1970: the aggregator runs by the same clock.
    pub ms: u64,
    /// What clients had counted; `None` at the start.
    pub books: Option<Books>,
    /// Flows that each client address had opened.
    pub sources: Sources,
}

impl Mark {
    /// This moment.
    ///
    /// # Errors
    /// The clock is before 1970.
    pub fn now(books: Option<Books>, sources: Sources) -> Result<Self> {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .context("the clock of this machine is before 1970")?;
        let ms = u64::try_from(since.as_millis()).context("the clock of this machine is beyond all bounds")?;
        Ok(Self { ms, books, sources })
    }

    /// Attempts of a Service that had failed for this reason.
    pub fn failed(&self, service: &str, reason: &str) -> u64 {
        let counts = self.books.as_ref().and_then(|books| books.get(service));
        counts
            .and_then(|counts| counts.failed.get(reason))
            .copied()
            .unwrap_or(0)
    }
}
