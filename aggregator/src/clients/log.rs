//! The batches of one node enter, as reports are taken; they leave when somebody asks for those of a ledger key.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::batch::{Batch, MAX_SHIFT};
use super::{Held, KEEP_MS};
use crate::ledger::LedgerKey;

/// What clients did on one node, in the order in which it was told.
#[derive(Debug, Default)]
pub struct ClientLog {
    keys: BTreeMap<LedgerKey, KeyLog>,
    bytes: usize,
    events: usize,
}

#[derive(Debug, Default)]
struct KeyLog {
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
    events: usize,
}

impl ClientLog {
    /// Keeps a batch, whose time is by our clock.
    pub fn push(&mut self, key: LedgerKey, batch: Batch) {
        let (bytes, events) = (batch.bytes(), batch.moments.len());
        let log = self.keys.entry(key).or_default();
        log.batches.push_back(Arc::new(batch));
        log.bytes += bytes;
        log.events += events;
        self.bytes += bytes;
        self.events += events;
    }

    /// The batches at a ledger key.
    pub fn batches(&self, key: &LedgerKey) -> impl Iterator<Item = &Arc<Batch>> {
        self.keys.get(key).into_iter().flat_map(|log| &log.batches)
    }

    /// Events kept.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Memory taken.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory of each ledger key.
    pub(super) fn bytes_by_key(&self) -> impl Iterator<Item = (usize, LedgerKey)> {
        self.keys.iter().map(|(key, log)| (log.bytes, *key))
    }

    /// Forgets what is older than anybody may ask for.
    pub fn expire(&mut self, now_ms: u64) {
        let before = now_ms.saturating_sub(KEEP_MS);
        let old: Vec<LedgerKey> = self
            .keys
            .iter()
            .filter(|(_, log)| log.batches.iter().any(|batch| batch.at_ms < before))
            .map(|(key, _)| *key)
            .collect();
        for key in old {
            self.change(&key, |log| log.batches.retain(|batch| batch.at_ms >= before));
        }
    }

    /// Makes the batches of a key smaller: tells of fewer clients, or, when that is not what takes the memory, of less time.
    /// Returns the memory that they take now, and what it cost.
    pub(super) fn shrink(&mut self, key: &LedgerKey) -> (usize, Held) {
        let mut held = Held::default();
        let events = self.events;
        self.change(key, |log| {
            let of_events: usize = log.batches.iter().map(|batch| batch.event_bytes()).sum();
            let told = log.batches.iter().filter(|batch| !batch.moments.is_empty());
            match told.map(|batch| batch.sampling_shift).min() {
                Some(least) if least < MAX_SHIFT && of_events * 2 >= log.bytes => log.thin(least + 1),
                _ => held.batches_dropped = log.drop_oldest(),
            }
        });
        if held.batches_dropped == 0 {
            held.events_thinned = (events - self.events) as u64;
        }
        (self.keys.get(key).map_or(0, |log| log.bytes), held)
    }

    /// Changes the batches of a key, and keeps account of it.
    fn change(&mut self, key: &LedgerKey, change: impl FnOnce(&mut KeyLog)) {
        let mut log = self.keys.remove(key).unwrap_or_default();
        self.bytes -= log.bytes;
        self.events -= log.events;
        change(&mut log);
        log.bytes = log.batches.iter().map(|batch| batch.bytes()).sum();
        log.events = log.batches.iter().map(|batch| batch.moments.len()).sum();
        self.bytes += log.bytes;
        self.events += log.events;
        if !log.batches.is_empty() {
            self.keys.insert(*key, log);
        }
    }
}

impl KeyLog {
    /// Thins what is told with a smaller shift.
    fn thin(&mut self, shift: u32) {
        for batch in self.batches.iter_mut().filter(|batch| batch.sampling_shift < shift) {
            *batch = Arc::new(batch.thinned(shift));
        }
    }

    /// Forgets the oldest eighth. One batch without columns stands for all that was forgotten. Returns how many batches that
    /// was.
    fn drop_oldest(&mut self) -> u64 {
        let is_mark = |batch: &Arc<Batch>| batch.columns.is_empty();
        let marks = usize::from(self.batches.front().is_some_and(is_mark));
        let told = self.batches.len() - marks;
        let dropped = told.div_ceil(8);
        let newest = self.batches.drain(..marks + dropped).next_back();
        if let Some(batch) = newest.filter(|_| dropped > 0) {
            self.batches.push_front(Arc::new(Batch::forgotten(batch.at_ms)));
        }
        dropped as u64
    }
}
