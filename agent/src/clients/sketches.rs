//! All clients of one ledger key in fixed room, for the time in which only a sample of them is told one by one: in, the client of
//! each flow that opened; out, how many clients they were, about, and those that opened most.
//!
//! Distinct clients: HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, 2007), a standard error of 2.3 % with 2^11 registers. Heavy
//! clients: the frequent-items sketch of Apache DataSketches (Anderson, Bevan, Lang, Liberty, Rhodes, Thaler, 2017), which is off by
//! at most 3.5/256 of all opens.

use std::cmp::Reverse;

use datasketches::{
    frequencies::{ErrorType, FrequentItemsSketch},
    hll::{HllSketch, HllType},
};
use flowskew_agent_ebpf::Address;

use super::keys::Keys;

/// 2^11 registers of a byte.
const LG_REGISTERS: u8 = 11;
/// Counters of the frequent-items sketch, 42 bytes each.
const COUNTERS: usize = 256;
/// Heavy clients that are told.
pub const MAX_HEAVY: usize = 32;

/// A client that opened many flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heavy {
    /// Its address.
    pub client: Address,
    /// Flows that it opened, at most.
    pub opened: u64,
    /// They are at least `opened` less this.
    pub error: u64,
}

/// The sketches of one ledger key: 2 KiB for each key in use, and 11 KiB.
#[derive(Debug)]
pub struct Sketches {
    /// One for each key.
    distinct: Vec<HllSketch>,
    /// By the hash under the first key, which nobody outside can steer, and the address.
    opens: FrequentItemsSketch<(u64, Address)>,
}

impl Sketches {
    /// Empty ones, for these keys. Always there: what they are made with is valid.
    pub fn new(keys: &Keys) -> Option<Self> {
        let distinct = keys.ids().map(|_| HllSketch::new(LG_REGISTERS, HllType::Hll8).ok());
        Some(Self {
            distinct: distinct.collect::<Option<_>>()?,
            opens: FrequentItemsSketch::new(COUNTERS).ok()?,
        })
    }

    /// A flow of this client opened. The keys are those of [`Sketches::new`].
    pub fn opened(&mut self, keys: &Keys, client: &Address) {
        let mut first = None;
        for (sketch, hash) in self.distinct.iter_mut().zip(keys.hashes(client)) {
            first.get_or_insert(hash);
            sketch.update(hash);
        }
        if let Some(hash) = first {
            self.opens.update((hash, *client));
        }
    }

    /// The distinct clients, serialised, in the order of the keys.
    pub fn distinct(&self) -> impl Iterator<Item = Vec<u8>> {
        self.distinct.iter().map(HllSketch::serialize)
    }

    /// The clients that opened most, most first.
    pub fn heavy(&self) -> Vec<Heavy> {
        let mut rows = self.opens.frequent_items(ErrorType::NoFalseNegatives);
        // Of equals the same ones each time, whatever the order in which they came.
        rows.sort_by_key(|row| (Reverse(row.estimate()), *row.item()));
        (rows.iter().take(MAX_HEAVY))
            .map(|row| Heavy {
                client: row.item().1,
                opened: row.upper_bound(),
                error: row.upper_bound() - row.lower_bound(),
            })
            .collect()
    }
}
