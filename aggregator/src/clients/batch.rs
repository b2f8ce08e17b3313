//! One report's events at one ledger key: what the log keeps. A batch enters, and leaves with fewer clients.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use datasketches::hll::HllSketch;

use super::sketch;
use crate::analysis::ClientEventKind;
use crate::flow::CloseCause;

/// Largest sampling shift.
pub const MAX_SHIFT: u32 = 32;
/// Heavy clients in one column.
pub const MAX_HEAVY: usize = 32;

/// True for a client of which samples with this shift tell everything.
pub const fn in_sample(client: u64, shift: u32) -> bool {
    // The same as client < 2^(64 - shift).
    client.leading_zeros() >= shift
}

/// What happened at one ledger key between two reports.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// When the report was taken, by our clock; 0 until that is known.
    pub at_ms: u64,
    /// k: the events are those of clients whose hash, in any column, is in the sample.
    pub sampling_shift: u32,
    /// The events.
    pub moments: Box<[Moment]>,
    /// One for each key in use; none: what was told here has been forgotten.
    pub columns: Vec<Column>,
}

/// An event, without its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// How long the flow had been open, plus 1; 0: not known, or it opened.
    pub lifetime_plus_1: u64,
    /// How long before the report.
    pub before_ms: u32,
    /// `None`: a flow opened. Else it closed.
    pub closed: Option<CloseCause>,
}

impl Moment {
    /// The same as the analysis knows it.
    pub fn kind(&self) -> ClientEventKind {
        match self.closed {
            None => ClientEventKind::Opened,
            Some(cause) => ClientEventKind::Closed {
                cause,
                lifetime_ms: self.lifetime_plus_1.checked_sub(1),
            },
        }
    }
}

/// The clients of a batch, under one key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Column {
    /// Which key.
    pub key_id: u32,
    /// The client of each event.
    pub clients: Box<[u64]>,
    /// All clients that opened a flow, sampled or not; `None` when the shift is 0, or nobody told.
    pub distinct: Option<HllSketch>,
    /// The clients that opened most flows, sampled or not.
    pub heavy: Vec<Heavy>,
    /// Flows that a client may have opened that is not in `heavy`.
    pub unlisted: u64,
}

/// A client that opened many flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heavy {
    /// Keyed hash of its address.
    pub client: u64,
    /// Flows that it opened, at most; at least `opened - error`.
    pub opened: u64,
    /// How much less it may be.
    pub error: u64,
    /// Its address, if it may be told.
    pub address: Option<Ipv6Addr>,
}

impl Batch {
    /// What is left of batches that were forgotten, the newest of which was this.
    pub(super) fn forgotten(at_ms: u64) -> Self {
        Self {
            at_ms,
            ..Self::default()
        }
    }

    /// The clients under a key.
    pub fn column(&self, key_id: u32) -> Option<&Column> {
        self.columns.iter().find(|column| column.key_id == key_id)
    }

    /// Memory of its events.
    pub(super) fn event_bytes(&self) -> usize {
        self.moments.len() * (size_of::<Moment>() + self.columns.len() * size_of::<u64>())
    }

    /// Memory that it takes, with the counters of its `Arc`, as far as can be told.
    pub(super) fn bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(Column::bytes_beside_clients).sum();
        2 * size_of::<usize>() + size_of::<Self>() + self.event_bytes() + columns
    }

    /// The same with a larger shift: events of clients outside the smaller sample are gone. What only they told, how many
    /// clients there were and which were heavy, is kept in sketches.
    pub(crate) fn thinned(&self, shift: u32) -> Self {
        let stays = |&event: &usize| {
            let mut columns = self.columns.iter();
            columns.any(|column| {
                column
                    .clients
                    .get(event)
                    .is_some_and(|&client| in_sample(client, shift))
            })
        };
        let events: Vec<usize> = (0..self.moments.len()).filter(stays).collect();
        let thin = |column: &Column| {
            let Summary {
                distinct,
                heavy,
                unlisted,
            } = self.summary(column);
            Column {
                key_id: column.key_id,
                clients: events
                    .iter()
                    .filter_map(|&event| column.clients.get(event))
                    .copied()
                    .collect(),
                distinct,
                heavy,
                unlisted,
            }
        };
        Self {
            at_ms: self.at_ms,
            sampling_shift: shift.max(self.sampling_shift),
            columns: self.columns.iter().map(thin).collect(),
            moments: events
                .iter()
                .filter_map(|&event| self.moments.get(event))
                .copied()
                .collect(),
        }
    }

    /// How many clients there were under a key, and which were heavy.
    pub(super) fn summary(&self, column: &Column) -> Summary {
        if self.sampling_shift > 0 {
            return Summary {
                distinct: column.distinct.clone(),
                heavy: column.heavy.clone(),
                unlisted: column.unlisted,
            };
        }
        let mut opens: HashMap<u64, u64> = HashMap::new();
        for (client, _) in column
            .clients
            .iter()
            .zip(&self.moments)
            .filter(|(_, moment)| moment.closed.is_none())
        {
            *opens.entry(*client).or_default() += 1;
        }
        let distinct = sketch::of(opens.keys().copied());
        let address = |client| {
            column
                .heavy
                .iter()
                .find(|heavy| heavy.client == client)
                .and_then(|heavy| heavy.address)
        };
        let mut most: Vec<(u64, u64)> = opens.into_iter().map(|(client, opened)| (opened, client)).collect();
        most.sort_unstable_by(|a, b| b.cmp(a));
        // Who opened one flow is not heavy.
        let listed = most
            .iter()
            .take(MAX_HEAVY)
            .take_while(|(opened, _)| *opened > 1)
            .count();
        let (heavy, rest) = most.split_at(listed);
        let exact = |&(opened, client): &(u64, u64)| Heavy {
            client,
            opened,
            error: 0,
            address: address(client),
        };
        Summary {
            distinct,
            heavy: heavy.iter().map(exact).collect(),
            unlisted: rest.first().map_or(0, |(opened, _)| *opened),
        }
    }
}

/// What is said of clients whether or not they are sampled; fields as in [`Column`].
pub(super) struct Summary {
    pub(super) distinct: Option<HllSketch>,
    pub(super) heavy: Vec<Heavy>,
    pub(super) unlisted: u64,
}

impl Column {
    fn bytes_beside_clients(&self) -> usize {
        size_of::<Self>()
            + self.distinct.as_ref().map_or(0, HllSketch::estimated_size)
            + self.heavy.len() * size_of::<Heavy>()
    }
}
