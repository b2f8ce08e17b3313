//! One node's reports enter, as cumulative counters; its flows per bucket of time, and those open now, leave.
//!
//! - Within an epoch a report counts if its sequence is higher than any before: a resend or a report out of order
//!   changes nothing.
//! - Of an epoch that is new, the first report counts from zero if it is the epoch's first; otherwise nobody here knows
//!   when its flows opened, and it is only the baseline of the next.
//! - A key that appears later in a known epoch counts from zero.
//! - A report with a counter that goes backwards is rejected whole.
//!
//! Every key is kept, endpoint or not, and joined with the endpoints when somebody asks: an endpoint that the API server
//! tells late has lost nothing.
//!
//! Memory for one node, at most: [`MAX_KEYS`] keys of about 500 bytes, and 8 bytes for each bucket of an hour, key and
//! source class in which a flow opened. With buckets of 10 s and one class: 14 MB when all 4,096 keys open flows in every
//! bucket of the hour; about 0.4 MB for a node with 100 busy endpoints.

mod clock;
mod series;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet, VecDeque};

pub use clock::ClockOffset;
pub use series::{Series, Tick};

use crate::flow::{AgentLosses, ByClass, Counts, EndpointKey, SourceClass};

/// Keys kept for one node.
pub const MAX_KEYS: usize = 4096;
/// How far back windows reach.
pub const RETENTION_MS: u64 = 3_600_000;
/// Earlier epochs of a node whose late reports are recognised.
const PAST_EPOCHS: usize = 8;

/// Where a node counts: an endpoint key, and the cgroup of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LedgerKey {
    /// Address, port and protocol.
    pub endpoint: EndpointKey,
    /// Tells two pods at one address apart; 0 if unknown.
    pub cgroup_id: u64,
}

/// One key's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: LedgerKey,
    /// Its counters, by class.
    pub classes: ByClass<Counts>,
}

/// A node's counters at one moment, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeReport {
    /// One life of the kernel's counters.
    pub epoch: u64,
    /// From 1, growing with each report of the epoch.
    pub sequence: u64,
    /// When the counters were read, by the agent's clock.
    pub taken_at_ms: u64,
    /// When this copy was sent, by the agent's clock.
    pub sent_at_ms: u64,
    /// No key twice.
    pub entries: Vec<Entry>,
    /// What the agent lost.
    pub losses: AgentLosses,
    /// Entries that were left out because they made no sense.
    pub invalid_entries: u64,
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Counted.
    Taken,
    /// Kept as what the next report is compared with; none of its flows is new.
    Baseline,
    /// Known already, or older than one that is.
    Stale,
    /// Impossible; nothing was changed.
    Rejected(String),
}

/// One class of one key.
#[derive(Debug, Clone, Default)]
struct ClassLedger {
    last: Counts,
    opened: Series,
}

#[derive(Debug, Clone, Default)]
struct KeyLedger {
    /// In the newest report. What is not has no open flows.
    present: bool,
    classes: ByClass<ClassLedger>,
}

/// The ledger of one node.
#[derive(Debug)]
pub struct NodeLedger {
    bucket_ms: u64,
    epoch: Option<u64>,
    sequence: u64,
    past_epochs: VecDeque<u64>,
    keys: BTreeMap<LedgerKey, KeyLedger>,
    losses: AgentLosses,
    entries_dropped: u64,
    /// Keys without room in the newest report: when room is found for them, their counts are not new.
    overflowing: bool,
}

impl NodeLedger {
    /// An empty ledger with buckets of this width.
    pub fn new(bucket_ms: u64) -> Self {
        Self {
            bucket_ms: bucket_ms.max(1),
            epoch: None,
            sequence: 0,
            past_epochs: VecDeque::new(),
            keys: BTreeMap::new(),
            losses: AgentLosses::default(),
            entries_dropped: 0,
            overflowing: false,
        }
    }

    /// The epoch of the newest report; `None` before the first.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// The sequence of the newest report.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// What the agent lost since the start of the epoch.
    pub fn losses(&self) -> AgentLosses {
        self.losses
    }

    /// The most keys, since the start of the epoch, that one report had but that were not kept, or that it displaced.
    pub fn entries_dropped(&self) -> u64 {
        self.entries_dropped
    }

    /// The bucket of a moment.
    pub fn tick(&self, at_ms: u64) -> Tick {
        Tick::try_from(at_ms / self.bucket_ms).unwrap_or(Tick::MAX)
    }

    /// Takes a report whose counters were read at `at_ms` of our clock.
    ///
    /// When there is no room for all keys, those for which `is_endpoint` is true are preferred.
    pub fn take(&mut self, report: &NodeReport, at_ms: u64, is_endpoint: impl Fn(&EndpointKey) -> bool) -> Outcome {
        let same_epoch = self.epoch == Some(report.epoch);
        if self.past_epochs.contains(&report.epoch) || same_epoch && report.sequence <= self.sequence {
            return Outcome::Stale;
        }
        if let Err(reason) = self.check(report, same_epoch) {
            return Outcome::Rejected(reason);
        }
        if !same_epoch {
            self.start_epoch(report.epoch);
        }
        // Nobody knows when the flows of an unknown epoch opened, nor those of a key that had no room before.
        let first_is_new = if same_epoch {
            !self.overflowing
        } else {
            report.sequence == 1
        };
        let tick = self.tick(at_ms);
        let (entries, lost) = self.with_room(&report.entries, is_endpoint);
        self.overflowing = entries.len() < report.entries.len();
        self.entries_dropped = self.entries_dropped.max(lost as u64 + report.invalid_entries);
        self.keys.values_mut().for_each(|key| key.present = false);
        for entry in entries {
            let known = same_epoch && self.keys.contains_key(&entry.key);
            let key = self.keys.entry(entry.key).or_default();
            key.present = true;
            for (class, counts) in key.classes.iter_mut().zip(entry.classes) {
                if known || first_is_new {
                    class
                        .opened
                        .add(tick, new_flows(&class.last, &counts).unwrap_or(u32::MAX));
                }
                class.last = counts;
            }
        }
        self.sequence = report.sequence;
        self.losses = report.losses;
        if same_epoch || report.sequence == 1 {
            Outcome::Taken
        } else {
            Outcome::Baseline
        }
    }

    /// The counters of an endpoint, over all cgroups, as of the newest report.
    pub fn counts(&self, endpoint: &EndpointKey) -> ByClass<Counts> {
        let mut sums = ByClass::<Counts>::default();
        for key in self.of(endpoint).filter(|key| key.present) {
            for (sum, class) in sums.iter_mut().zip(&key.classes) {
                sum.add(&class.last);
            }
        }
        sums
    }

    /// Flows of an endpoint that opened in the buckets of a span, both ends included.
    pub fn opened(&self, endpoint: &EndpointKey, from: Tick, to: Tick) -> ByClass<u64> {
        let mut sums = ByClass::default();
        for key in self.of(endpoint) {
            for (sum, class) in sums.iter_mut().zip(&key.classes) {
                *sum += class.opened.sum(from, to);
            }
        }
        sums
    }

    /// Forgets buckets older than the retention, and keys that are gone and have none left.
    pub fn expire(&mut self, now_ms: u64) {
        let before = self.tick(now_ms.saturating_sub(RETENTION_MS));
        self.keys.retain(|_, key| {
            key.classes.iter_mut().for_each(|class| class.opened.expire(before));
            key.present || key.classes.iter().any(|class| !class.opened.is_empty())
        });
    }

    fn of(&self, endpoint: &EndpointKey) -> impl Iterator<Item = &KeyLedger> {
        let key = |cgroup_id| LedgerKey {
            endpoint: *endpoint,
            cgroup_id,
        };
        self.keys.range(key(0)..=key(u64::MAX)).map(|(_, ledger)| ledger)
    }

    /// The entries to keep, at most [`MAX_KEYS`], and how many keys are lost: those of the other entries, and those that
    /// the report lacks and that were forgotten to make room.
    fn with_room<'a>(
        &mut self,
        entries: &'a [Entry],
        is_endpoint: impl Fn(&EndpointKey) -> bool,
    ) -> (Vec<&'a Entry>, usize) {
        let mut kept: Vec<&Entry> = entries.iter().collect();
        if kept.len() > MAX_KEYS {
            kept.sort_by_cached_key(|e| (!is_endpoint(&e.key.endpoint), !self.keys.contains_key(&e.key), e.key));
            kept.truncate(MAX_KEYS);
        }
        let mut lost = entries.len() - kept.len();
        let new = kept.iter().filter(|entry| !self.keys.contains_key(&entry.key)).count();
        let excess = (self.keys.len() + new).saturating_sub(MAX_KEYS);
        if excess > 0 {
            let wanted: HashSet<LedgerKey> = kept.iter().map(|entry| entry.key).collect();
            let reported: HashSet<LedgerKey> = entries.iter().map(|entry| entry.key).collect();
            let mut absent: Vec<LedgerKey> = self.keys.keys().filter(|key| !wanted.contains(key)).copied().collect();
            absent.sort_by_cached_key(|key| is_endpoint(&key.endpoint));
            for key in absent.iter().take(excess) {
                self.keys.remove(key);
                lost += usize::from(!reported.contains(key));
            }
        }
        (kept, lost)
    }

    fn check(&self, report: &NodeReport, same_epoch: bool) -> Result<(), String> {
        for entry in &report.entries {
            let known = self.keys.get(&entry.key).filter(|_| same_epoch);
            for (class, now) in SourceClass::ALL.iter().zip(&entry.classes) {
                let last = known.map(|key| key.classes[class.index()].last).unwrap_or_default();
                // A key that was away may have been forgotten by the kernel's ledger and counted afresh.
                let backwards = known.is_some_and(|key| key.present) && goes_backwards(&last, now);
                let baseline = !same_epoch && report.sequence != 1;
                if backwards || !baseline && new_flows(&last, now).is_none() {
                    let EndpointKey {
                        address,
                        port,
                        protocol,
                    } = entry.key.endpoint;
                    let (class, address) = (class.label(), address.to_canonical());
                    return Err(format!(
                        "impossible counters of {class} flows at address {address}, port {port}/{protocol}: from opened \
                         {}, seeded {}, closed {} to opened {}, seeded {}, closed {} within epoch {}",
                        last.opened,
                        last.seeded,
                        last.closed_total(),
                        now.opened,
                        now.seeded,
                        now.closed_total(),
                        report.epoch
                    ));
                }
            }
        }
        Ok(())
    }

    fn start_epoch(&mut self, epoch: u64) {
        if let Some(past) = self.epoch.replace(epoch) {
            self.past_epochs.push_back(past);
        }
        if self.past_epochs.len() > PAST_EPOCHS {
            self.past_epochs.pop_front();
        }
        // Windows go on over epochs; counters start at zero.
        for key in self.keys.values_mut() {
            key.classes.iter_mut().for_each(|class| class.last = Counts::default());
        }
        self.entries_dropped = 0;
        self.overflowing = false;
    }
}

fn goes_backwards(last: &Counts, now: &Counts) -> bool {
    now.opened < last.opened || now.seeded < last.seeded || now.closed_total() < last.closed_total()
}

/// Flows opened between two reports; counted from zero when the key was forgotten in between. `None` when there are more
/// than any node can open.
fn new_flows(last: &Counts, now: &Counts) -> Option<u32> {
    u32::try_from(now.opened.checked_sub(last.opened).unwrap_or(now.opened)).ok()
}
