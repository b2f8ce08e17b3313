//! What single external clients did: in, records of the kernel's ring; out, at each report, the flows that they opened and closed
//! since the one before, by ledger key, with clients named by keyed hashes.
//!
//! The way of an event: `gather` holds it until the next report, within a bound, and tells a sample of clients when there are too
//! many, with `sketches` of all; `tell` puts it in order and hashes its client with [`keys`]; [`Clock`] gives it a time that people know.
//! [`ages`] are those of the flows that are open.
//!
//! Memory, whatever clients do: an event takes 40 bytes until the report, or 80 while its list grows; together about 200 for the
//! moment in which the report is made; and 36 bytes in a report that waits for the aggregator. [`Clients`] holds at most `most` events,
//! the waiting reports ten times as many, and the stream has at most eight reports under way. The sketches of a ledger key take up to
//! 15 KiB, and there are 1,024 of these at most. With 20,000 events that is 4 MB when a report is made, 7 MB in reports that wait, 6 MB
//! while a backlog is sent, and 15 MB more if each of 1,024 keys is sampled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowskew_agent_ebpf::{Address, FlowEvent, LedgerKey, event_kind, source_class};

pub mod ages;
mod clock;
mod gather;
pub mod keys;
mod sketches;
mod tell;
#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use gather::Event;

use self::{gather::Gathering, keys::ClientKey};
use crate::events::Sink;

/// What happened since the report before. Nothing of it is told twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// What times of events are converted with.
    pub clock: Clock,
    /// By ledger key, in no order.
    pub endpoints: Vec<EndpointActivity>,
}

/// What happened at one ledger key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointActivity {
    /// Where.
    pub key: LedgerKey,
    /// The clients that are told: those whose hash under any key is below 2^(64 - shift). 0: all.
    pub shift: u32,
    /// What these clients did, in order of time.
    pub events: Vec<Event>,
    /// Who they are, under each key in use.
    pub columns: Vec<Column>,
}

/// The clients of one ledger key under one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Column {
    /// The key.
    pub key_id: u32,
    /// The client of each event.
    pub clients: Vec<u64>,
    /// HyperLogLog of all clients that opened a flow; empty when the shift is 0.
    pub distinct: Vec<u8>,
    /// Those that opened most, most first; empty when the shift is 0, unless addresses are told.
    pub heavy: Vec<HeavyClient>,
}

impl Column {
    fn of(key_id: u32) -> Self {
        Self {
            key_id,
            ..Self::default()
        }
    }
}

/// A client that opened many flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeavyClient {
    /// Its hash.
    pub client: u64,
    /// Flows that it opened, at most.
    pub opened: u64,
    /// They are at least `opened` less this.
    pub error: u64,
    /// Its address, when that may be told.
    pub address: Option<Address>,
}

/// How much was told. Counts since the agent started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events that were told.
    pub events: u64,
    /// Events that found no room.
    pub dropped: u64,
    /// The largest shift of the last report.
    pub shift: u32,
}

/// Gathers what external clients do.
pub struct Clients {
    gathering: Arc<Mutex<Gathering>>,
    addresses: bool,
    totals: Totals,
}

impl Clients {
    /// Gathers nothing until it has keys. At most `most` events between two reports; `addresses`: those of heavy clients may be told.
    pub fn new(most: usize, addresses: bool) -> Self {
        Self {
            gathering: Arc::new(Mutex::new(Gathering::new(most))),
            addresses,
            totals: Totals::default(),
        }
    }

    /// What takes the records of the ring. Never waits long.
    pub fn sink(&self) -> Sink {
        let gathering = Arc::clone(&self.gathering);
        Box::new(move |event: &FlowEvent| {
            let cause = match event.kind {
                event_kind::OPENED => None,
                event_kind::CLOSED => Some(event.cause),
                _ => return,
            };
            if event.flow.source_class != source_class::EXTERNAL {
                return;
            }
            let happened = Event {
                at_ns: event.at_ns,
                opened_at_ns: event.flow.opened_at_ns,
                client: event.flow.client,
                cause,
            };
            lock(&gathering).offer(&event.flow.key, happened);
        })
    }

    /// Hashes with these keys from the next report on. None: nothing is gathered.
    pub fn set_keys(&self, keys: &[ClientKey]) {
        lock(&self.gathering).set_keys(keys);
    }

    /// What happened since the last call, for one report.
    pub fn take(&mut self) -> Activity {
        let gathered = lock(&self.gathering).take();
        self.totals.dropped = gathered.dropped;
        let endpoints = tell::tell(gathered, self.addresses);
        self.totals.events += endpoints
            .iter()
            .map(|endpoint| endpoint.events.len() as u64)
            .sum::<u64>();
        self.totals.shift = endpoints.iter().map(|endpoint| endpoint.shift).max().unwrap_or(0);
        Activity {
            clock: Clock::now(),
            endpoints,
        }
    }

    /// How much was told until the last [`Clients::take`].
    pub fn totals(&self) -> Totals {
        self.totals
    }
}

fn lock(gathering: &Mutex<Gathering>) -> MutexGuard<'_, Gathering> {
    // Nothing in here panics; if it did, an event would be missing.
    gathering.lock().unwrap_or_else(PoisonError::into_inner)
}
