//! What happened since the last report, within bounds: in, single flows in the order of the ring; out, at each report, the events
//! of each ledger key, of all clients or of a sample of them.
//!
//! When the room for events is used up, the ledger key with most of them tells half as many clients as before, as often as needed.
//! What it holds of the others goes, so that at each moment it holds what it would hold had it told that sample from the start.

use std::collections::HashMap;

use flowskew_agent_ebpf::{Address, LedgerKey};

use super::{
    keys::{ClientKey, Keys},
    sketches::Sketches,
};

/// Ledger keys whose clients are told at once, with those that still sample: their sketches are 15 MB at most.
pub const MAX_LEDGER_KEYS: usize = 1_024;
/// The smallest sample: one client in 2^32.
pub const MAX_SHIFT: u32 = 32;

/// A flow opened or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, nanoseconds since boot.
    pub at_ns: u64,
    /// When the flow opened, nanoseconds since boot; 0: not known.
    pub opened_at_ns: u64,
    /// The client's address.
    pub client: Address,
    /// Why it closed, [`flowskew_agent_ebpf::close_cause`]; `None`: it opened.
    pub cause: Option<u8>,
}

/// The events of one ledger key.
#[derive(Debug)]
pub struct Log {
    /// The clients that are told: those whose hash is below 2^(64 - shift). 0: all.
    pub shift: u32,
    /// What those clients did.
    pub events: Vec<Event>,
    /// All clients, while the shift is not 0.
    pub sketches: Option<Sketches>,
    /// Whether anything happened, told or not.
    pub used: bool,
}

impl Log {
    fn new(shift: u32, keys: &Keys) -> Self {
        Self {
            shift,
            events: Vec::new(),
            sketches: if shift > 0 { Sketches::new(keys) } else { None },
            used: false,
        }
    }

    /// Tells half as many clients; how many events went.
    fn thin(&mut self, keys: &Keys) -> usize {
        if self.shift == 0
            && let Some(mut sketches) = Sketches::new(keys)
        {
            for event in self.events.iter().filter(|event| event.cause.is_none()) {
                sketches.opened(keys, &event.client);
            }
            self.sketches = Some(sketches);
        }
        self.shift += 1;
        let before = self.events.len();
        self.events.retain(|event| keys.samples(&event.client, self.shift));
        // What another ledger key needs now is not to be held here.
        self.events.shrink_to(2 * self.events.len());
        before - self.events.len()
    }
}

/// What is gathered between two reports.
#[derive(Default)]
pub struct Gathering {
    keys: Keys,
    /// The keys of the next report, if they are others.
    next: Option<Keys>,
    logs: HashMap<LedgerKey, Log>,
    /// Events in all logs.
    held: usize,
    most: usize,
    dropped: u64,
}

/// What was gathered for one report.
#[derive(Default)]
pub struct Gathered {
    /// The keys of this report.
    pub keys: Keys,
    /// What happened, by ledger key.
    pub logs: Vec<(LedgerKey, Log)>,
    /// Events that found no room, since the agent started.
    pub dropped: u64,
}

impl Gathering {
    /// Nothing yet, and no keys. At most `most` events are held at once.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// Hashes with these keys from the next report on, so that no report mixes two sets. None: nothing is gathered.
    pub fn set_keys(&mut self, keys: &[ClientKey]) {
        self.next = Some(Keys::new(keys));
    }

    /// Takes an event of an external client.
    pub fn offer(&mut self, key: &LedgerKey, event: Event) {
        if self.keys.is_empty() {
            return;
        }
        let full = self.logs.len() >= MAX_LEDGER_KEYS && !self.logs.contains_key(key);
        if full {
            self.dropped += 1;
            return;
        }
        let shift = self.logs.get(key).map_or(0, |log| log.shift);
        let has_room = !self.keys.samples(&event.client, shift) || self.make_room();
        let log = (self.logs.entry(*key)).or_insert_with(|| Log::new(0, &self.keys));
        log.used = true;
        if let (Some(sketches), None) = (&mut log.sketches, event.cause) {
            sketches.opened(&self.keys, &event.client);
        }
        // Making room can have made the sample of this very key smaller.
        if !self.keys.samples(&event.client, log.shift) {
            return;
        }
        if has_room {
            log.events.push(event);
            self.held += 1;
        } else {
            self.dropped += 1;
        }
    }

    /// Whether there is room for one more event, after what can be done for it.
    fn make_room(&mut self) -> bool {
        while self.held >= self.most {
            let largest = (self.logs.values_mut())
                .filter(|log| log.shift < MAX_SHIFT && !log.events.is_empty())
                .max_by_key(|log| log.events.len());
            match largest {
                Some(log) => self.held -= log.thin(&self.keys),
                None => return false,
            }
        }
        true
    }

    /// What was gathered since the last time. Begins anew; where samples are told, with twice as many clients as until now when
    /// that leaves room, or when nothing happened.
    pub fn take(&mut self) -> Gathered {
        let quiet = self.held < self.most / 4;
        let keys = match self.next.take() {
            Some(next) => std::mem::replace(&mut self.keys, next),
            None => self.keys.clone(),
        };
        let logs: Vec<_> = std::mem::take(&mut self.logs).into_iter().collect();
        self.held = 0;
        for (key, log) in &logs {
            let shift = log.shift.saturating_sub(u32::from(quiet || !log.used));
            if shift > 0 && !self.keys.is_empty() {
                self.logs.insert(*key, Log::new(shift, &self.keys));
            }
        }
        Gathered {
            keys,
            logs,
            dropped: self.dropped,
        }
    }
}
