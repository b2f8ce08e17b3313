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
//! A key belongs to one pod: to that which the report names, else to that which had the endpoint when the key was first
//! seen. An address that another pod takes over is another key, and mixes nothing.
//!
//! Memory for one node, at most: [`MAX_KEYS`] keys of about 750 bytes, and 8 bytes for each bucket of an hour, key and
//! source class in which a flow opened, and as many again for those in which an external flow closed. With buckets of 10 s
//! and one class: 27 MB when flows open and close at all 4,096 keys in every bucket of the hour; about 0.7 MB for a node with
//! 100 busy endpoints. Front doors come on top, as two more series each, at most 64 a key; a pod has one to three. The ages of
//! an endpoint's open flows are at most 164 buckets of 16 bytes.

mod clock;
mod flows;
mod key;
mod load;
mod report;
mod series;
mod unserved;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

pub use clock::ClockOffset;
pub use flows::{Buckets, Flows};
pub use key::{KeyLedger, Owner};
pub use load::LoadRates;
pub use report::{DoorCounts, DoorKey, Entry, FlowAges, LedgerKey, NodeReport, PodLoad, PodUid, Unserved, pod_uid};
pub use series::{Series, Tick};

use crate::flow::{Counts, EndpointKey, SourceClass};
use crate::node::{Degradation, DoorCoverage, NodeLosses};
use crate::report::UnservedReason;
use key::new_flows;
use load::Loads;
use unserved::UnservedLedger;

/// Keys kept for one node.
pub const MAX_KEYS: usize = 4096;
/// How far back windows reach.
pub const RETENTION_MS: u64 = 3_600_000;
/// Earlier epochs of a node whose late reports are recognised.
const PAST_EPOCHS: usize = 8;

/// The endpoints of a node, and the pod of each; an empty id when the cluster knows an address only.
pub type Endpoints = HashMap<EndpointKey, PodUid>;

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

/// The ledger of one node.
#[derive(Debug)]
pub struct NodeLedger {
    bucket_ms: u64,
    epoch: Option<u64>,
    sequence: u64,
    past_epochs: VecDeque<u64>,
    keys: BTreeMap<LedgerKey, KeyLedger>,
    losses: NodeLosses,
    loads: Loads,
    unserved: UnservedLedger,
    door_coverage: DoorCoverage,
    degradations: Vec<Degradation>,
    /// Since when the flows that opened are known, by our clock.
    counting_since_ms: Option<u64>,
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
            losses: NodeLosses::default(),
            loads: Loads::default(),
            unserved: UnservedLedger::default(),
            door_coverage: DoorCoverage::default(),
            degradations: Vec::new(),
            counting_since_ms: None,
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

    /// What the agent lost since the start of the epoch, with the entries that found no room here.
    pub fn losses(&self) -> NodeLosses {
        self.losses
    }

    /// How many front doors were looked up since the start of the epoch.
    pub fn door_coverage(&self) -> DoorCoverage {
        self.door_coverage
    }

    /// What the agent cannot do, as of the newest report.
    pub fn degradations(&self) -> &[Degradation] {
        &self.degradations
    }

    /// Since when every flow that opened is known, by our clock; `None` before the first report.
    pub fn counting_since_ms(&self) -> Option<u64> {
        self.counting_since_ms
    }

    /// The newest counters of a pod.
    pub fn load(&self, pod: &str) -> Option<PodLoad> {
        self.loads.newest(pod)
    }

    /// How busy a pod was since a moment; `None` with fewer than two reports.
    pub fn load_since(&self, pod: &str, from_ms: u64) -> Option<LoadRates> {
        self.loads.rates(pod, from_ms)
    }

    /// Attempts that reached no pod: where, why, how many since the start of the epoch, and by time.
    pub fn unserved(&self) -> impl Iterator<Item = (&EndpointKey, UnservedReason, u64, &Series)> {
        self.unserved.iter()
    }

    /// The bucket of a moment.
    pub fn tick(&self, at_ms: u64) -> Tick {
        Tick::try_from(at_ms / self.bucket_ms).unwrap_or(Tick::MAX)
    }

    /// Takes a report whose counters were read at `at_ms` of our clock, in an epoch that began at `started_ms` of it.
    ///
    /// Keys of endpoints belong to the endpoint's pod, unless the report says whose they are; when there is no room for
    /// all keys, they are preferred.
    pub fn take(&mut self, report: &NodeReport, started_ms: u64, at_ms: u64, endpoints: &Endpoints) -> Outcome {
        let same_epoch = self.epoch == Some(report.epoch);
        if self.past_epochs.contains(&report.epoch) || same_epoch && report.sequence <= self.sequence {
            return Outcome::Stale;
        }
        if let Err(reason) = self.check(report, same_epoch) {
            return Outcome::Rejected(reason);
        }
        if !same_epoch {
            self.start_epoch(report.epoch);
            // What opened before is known only when it is told that nothing was missed.
            self.counting_since_ms = Some(if report.sequence == 1 {
                started_ms.min(at_ms)
            } else {
                at_ms
            });
        }
        // Nobody knows when the flows of an unknown epoch opened, nor those of a key that had no room before.
        let first_is_new = if same_epoch {
            !self.overflowing
        } else {
            report.sequence == 1
        };
        let tick = self.tick(at_ms);
        let (entries, lost) = self.with_room(&report.entries, endpoints);
        self.overflowing = entries.len() < report.entries.len();
        self.keys.values_mut().for_each(|key| key.present = false);
        for entry in entries {
            let known = same_epoch && self.keys.contains_key(&entry.key);
            let endpoint_of = endpoints.get(&entry.key.endpoint).filter(|pod| !pod.is_empty());
            let key = self.keys.entry(entry.key).or_default();
            if let Some(pod) = endpoint_of.filter(|_| *key.owner() == Owner::Unknown) {
                key.bind(pod, entry.key.cgroup_id != 0);
            }
            key.take(entry, tick, known || first_is_new, endpoint_of);
            // As long before this report as the agent says.
            key.read_ages(entry, |read_ms| {
                at_ms.saturating_sub(report.taken_at_ms.saturating_sub(read_ms))
            });
        }
        let no_room = self
            .unserved
            .take(&report.unserved, tick, same_epoch || report.sequence == 1);
        self.sequence = report.sequence;
        let dropped = lost as u64 + no_room as u64 + report.invalid_entries;
        self.losses = NodeLosses {
            entries_dropped: self.losses.entries_dropped.max(dropped),
            ..report.losses
        };
        self.loads.take(&report.pods, at_ms);
        self.door_coverage = report.door_coverage;
        self.degradations.clone_from(&report.degradations);
        if same_epoch || report.sequence == 1 {
            Outcome::Taken
        } else {
            Outcome::Baseline
        }
    }

    /// The ledgers at an endpoint, one a cgroup.
    pub fn at(&self, endpoint: &EndpointKey) -> impl Iterator<Item = (&LedgerKey, &KeyLedger)> {
        let key = |cgroup_id| LedgerKey {
            endpoint: *endpoint,
            cgroup_id,
        };
        self.keys.range(key(0)..=key(u64::MAX))
    }

    /// The ledger of one key.
    pub fn key(&self, key: &LedgerKey) -> Option<&KeyLedger> {
        self.keys.get(key)
    }

    /// Says which pods have the node's endpoints now.
    pub fn bind(&mut self, endpoints: &Endpoints) {
        for (key, ledger) in &mut self.keys {
            if let Some(pod) = endpoints.get(&key.endpoint).filter(|pod| !pod.is_empty()) {
                ledger.bind(pod, key.cgroup_id != 0);
            }
        }
    }

    /// Forgets buckets older than the retention, and keys that are gone and have none left.
    pub fn expire(&mut self, now_ms: u64) {
        let before = self.tick(now_ms.saturating_sub(RETENTION_MS));
        self.keys.retain(|_, key| key.expire(before));
        self.unserved.expire(before);
        self.loads.expire(now_ms);
    }

    /// The entries to keep, at most [`MAX_KEYS`], and how many keys are lost: those of the other entries, and those that
    /// the report lacks and that were forgotten to make room.
    fn with_room<'a>(&mut self, entries: &'a [Entry], endpoints: &Endpoints) -> (Vec<&'a Entry>, usize) {
        let is_endpoint = |key: &EndpointKey| endpoints.contains_key(key);
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
                let last = known.map(|key| key.last(class.index())).unwrap_or_default();
                // A key that was away may have been forgotten by the kernel's ledger and counted afresh.
                let backwards = known.is_some_and(|key| key.present) && goes_backwards(&last, now);
                let baseline = !same_epoch && report.sequence != 1;
                let grown = [(last.opened, now.opened), (last.closed_total(), now.closed_total())];
                let impossible = grown.iter().any(|&(last, now)| new_flows(last, now).is_none());
                if backwards || !baseline && impossible {
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
        self.keys.values_mut().for_each(KeyLedger::start_epoch);
        self.unserved.start_epoch();
        self.losses = NodeLosses::default();
        self.overflowing = false;
    }
}

fn goes_backwards(last: &Counts, now: &Counts) -> bool {
    now.opened < last.opened || now.seeded < last.seeded || now.closed_total() < last.closed_total()
}
