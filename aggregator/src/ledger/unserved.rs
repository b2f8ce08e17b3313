//! Attempts that reached no pod: cumulative counters enter, report by report; attempts by time leave.

use std::collections::{BTreeMap, HashSet};

use super::key::new_flows;
use super::report::Unserved;
use super::series::{Series, Tick};
use crate::flow::EndpointKey;
use crate::report::UnservedReason;

/// Places and reasons kept for one node.
pub const MAX_UNSERVED: usize = 4096;

#[derive(Debug, Default)]
struct Attempts {
    last: u64,
    series: Series,
}

/// The attempts of one node.
#[derive(Debug, Default)]
pub(super) struct UnservedLedger {
    places: BTreeMap<(EndpointKey, UnservedReason), Attempts>,
    /// Places without room in the newest report: when room is found for them, their counts are not new.
    overflowing: bool,
}

impl UnservedLedger {
    /// `are_new`: what counters exceed the last ones by has happened since the last report. Returns how many had no room.
    pub(super) fn take(&mut self, unserved: &[Unserved], tick: Tick, are_new: bool) -> usize {
        let mut left_out = 0;
        let present: HashSet<_> = unserved.iter().map(|found| (found.at, found.reason)).collect();
        for (key, attempts) in &mut self.places {
            // The agent has forgotten it: should it come again, it counts from zero.
            if !present.contains(key) {
                attempts.last = 0;
            }
        }
        for found in unserved {
            let key = (found.at, found.reason);
            let known = self.places.contains_key(&key);
            if !known && self.places.len() >= MAX_UNSERVED {
                left_out += 1;
                continue;
            }
            let attempts = self.places.entry(key).or_default();
            if are_new && (known || !self.overflowing) {
                let more = new_flows(attempts.last, found.attempts).unwrap_or(u32::MAX);
                attempts.series.add(tick, more);
            }
            attempts.last = found.attempts;
        }
        self.overflowing = left_out > 0;
        left_out
    }

    /// Every place with its attempts since the start of the epoch and those by time.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&EndpointKey, UnservedReason, u64, &Series)> {
        self.places
            .iter()
            .map(|((at, reason), attempts)| (at, *reason, attempts.last, &attempts.series))
    }

    pub(super) fn start_epoch(&mut self) {
        self.places.values_mut().for_each(|attempts| attempts.last = 0);
        self.overflowing = false;
    }

    pub(super) fn expire(&mut self, before: Tick) {
        self.places.retain(|_, attempts| {
            attempts.series.expire(before);
            // What is still counted up is compared with the next report.
            attempts.last > 0 || !attempts.series.is_empty()
        });
    }
}
