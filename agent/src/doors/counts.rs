//! Flows by front door: in, what became of single flows; out, cumulative counts, of which the changed ones are written
//! to memory before anybody is told.

use std::collections::{HashMap, HashSet};

use aya::maps::MapError;
use flowskew_agent_ebpf::{DoorCoverage, DoorKey, DoorValue, LedgerKey, MAX_DOORS, WatchedKey};

use crate::kernel::removed;

use super::{DoorCounts, memory::Memory};

/// Doors at which room is short.
const SHORT: usize = MAX_DOORS as usize / 4 * 3;

/// The counts of all doors.
#[derive(Debug, Default)]
pub struct Counts {
    doors: HashMap<DoorKey, Count>,
    changed: HashSet<DoorKey>,
    /// Of the flows that were seen to open.
    pub coverage: DoorCoverage,
    written_coverage: DoorCoverage,
}

#[derive(Debug, Default)]
struct Count {
    opened: u64,
    closed: u64,
    established: u64,
    /// Flows that the agent before knew to be open.
    expected: u64,
    /// Flows that were open already and came through this door: those of `expected`, as far as they are still open.
    taken_up: u64,
}

impl Count {
    /// Flows of the agent before that have not been found open. Whether they are closed is known only when all are
    /// looked up.
    fn missing(&self) -> u64 {
        self.expected.saturating_sub(self.taken_up)
    }

    fn value(&self) -> DoorValue {
        DoorValue {
            opened: self.opened,
            closed: self.closed,
            established: self.established + self.missing(),
        }
    }
}

impl Counts {
    /// What the agent before has left.
    pub fn load(memory: &dyn Memory) -> Result<Self, MapError> {
        let (doors, coverage) = memory.load()?;
        let doors = doors.into_iter().map(|(key, value)| {
            let count = Count {
                opened: value.opened,
                closed: value.closed,
                expected: value.established,
                ..Count::default()
            };
            (key, count)
        });
        Ok(Self {
            doors: doors.collect(),
            coverage,
            written_coverage: coverage,
            ..Self::default()
        })
    }

    /// Whether flows of this door can be counted.
    pub fn has_room(&self, key: &DoorKey) -> bool {
        self.doors.contains_key(key) || self.doors.len() < MAX_DOORS as usize
    }

    /// A flow opened through this door.
    pub fn opened(&mut self, key: &DoorKey) {
        self.coverage.found += 1;
        let count = self.change(key);
        count.opened += 1;
        count.established += 1;
    }

    /// A flow that was open already came through this door.
    pub fn taken_up(&mut self, key: &DoorKey) {
        let count = self.change(key);
        count.taken_up += 1;
        count.established += 1;
    }

    /// A flow that was taken for one that was open already has opened now.
    pub fn has_opened_after_all(&mut self, key: &DoorKey) {
        self.coverage.found += 1;
        let count = self.change(key);
        count.taken_up = count.taken_up.saturating_sub(1);
        count.opened += 1;
    }

    /// A flow of this door ended.
    pub fn closed(&mut self, key: &DoorKey) {
        let count = self.change(key);
        count.established = count.established.saturating_sub(1);
        count.closed += 1;
    }

    /// All flows of these endpoints that were open already have been looked up: those that the agent before knew and
    /// that were not among them have ended.
    pub fn settle(&mut self, endpoints: &HashSet<WatchedKey>) {
        for (key, count) in &mut self.doors {
            if count.expected > 0 && endpoints.contains(&key.key.endpoint()) {
                count.closed += count.missing();
                count.expected = 0;
                self.changed.insert(*key);
            }
        }
    }

    /// When room gets short, forgets the doors without open flows of all endpoints but these.
    pub fn make_room(&mut self, memory: &mut dyn Memory, endpoints: &HashSet<WatchedKey>) -> Result<(), MapError> {
        if self.doors.len() < SHORT {
            return Ok(());
        }
        let idle: Vec<_> = (self.doors.iter())
            .filter(|(key, count)| count.established == 0 && !endpoints.contains(&key.key.endpoint()))
            .map(|(key, _)| *key)
            .collect();
        for key in idle {
            // Without an entry it was never written.
            removed(memory.remove(&key))?;
            self.changed.remove(&key);
            self.doors.remove(&key);
        }
        Ok(())
    }

    /// Writes what has changed. What could not be written is tried again the next time.
    pub fn save(&mut self, memory: &mut dyn Memory) -> Result<(), MapError> {
        for key in self.changed.iter().copied().collect::<Vec<_>>() {
            if let Some(count) = self.doors.get(&key) {
                memory.write(&key, &count.value())?;
            }
            self.changed.remove(&key);
        }
        if self.coverage != self.written_coverage {
            memory.write_coverage(&self.coverage)?;
            self.written_coverage = self.coverage;
        }
        Ok(())
    }

    /// The counts of each ledger key.
    pub fn by_ledger_key(&self) -> HashMap<LedgerKey, Vec<DoorCounts>> {
        let mut all: HashMap<LedgerKey, Vec<DoorCounts>> = HashMap::new();
        for (key, count) in &self.doors {
            all.entry(key.key).or_default().push(DoorCounts {
                address: key.address,
                port: key.port,
                source_class: key.source_class,
                opened: count.opened,
                established: count.established,
                closed: count.closed,
            });
        }
        all
    }

    fn change(&mut self, key: &DoorKey) -> &mut Count {
        self.changed.insert(*key);
        self.doors.entry(*key).or_default()
    }
}
