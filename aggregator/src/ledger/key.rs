//! One key's cumulative counters enter, report by report; its flows per bucket of time, by class and by front door,
//! leave, with the pod that they belong to.

use std::collections::BTreeMap;

use super::report::{DoorCounts, DoorKey, Entry, PodUid};
use super::series::{Series, Tick};
use crate::flow::{ByClass, Counts};

/// Front doors kept for one key. Flows through others have no known door.
pub(super) const MAX_DOORS: usize = 64;
/// Earlier pods of one key that are kept.
const MAX_PAST: usize = 8;
/// A pod that is not at its address any more may be told to have opened flows in one late report. From the second on it
/// was not that pod's key.
const LATE_REPORTS: u8 = 1;

/// Whose a key is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Owner {
    /// No one knows.
    #[default]
    Unknown,
    /// The agent says so, by the cgroup.
    Reported(PodUid),
    /// The pod that had the endpoint when the key was first seen.
    Bound(PodUid),
}

impl Owner {
    /// The pod, if it is known.
    pub fn pod(&self) -> Option<&PodUid> {
        match self {
            Self::Unknown => None,
            Self::Reported(pod) | Self::Bound(pod) => Some(pod),
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Class {
    last: Counts,
    opened: Series,
}

#[derive(Debug, Clone, Default)]
struct Door {
    /// In the newest report.
    present: bool,
    last: DoorCounts,
    opened: Series,
}

/// Flows from the time of an earlier pod with the same address and cgroup number, or with none.
#[derive(Debug, Clone)]
struct Past {
    pod: PodUid,
    opened: ByClass<Series>,
}

/// The ledger of one key.
#[derive(Debug, Clone, Default)]
pub struct KeyLedger {
    /// In the newest report. What is not has no open flows.
    pub(super) present: bool,
    owner: Owner,
    classes: ByClass<Class>,
    doors: BTreeMap<DoorKey, Door>,
    /// Doors without room in the newest report: when room is found for them, their counts are not new.
    doors_overflowing: bool,
    past: Vec<Past>,
    /// Reports with new flows while the endpoint belonged to another pod than [`Owner::Bound`].
    strange: u8,
}

impl KeyLedger {
    /// Whose the key is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Its counters as of the newest report, by class.
    pub fn counts(&self) -> ByClass<Counts> {
        if self.present {
            self.classes.each_ref().map(|class| class.last)
        } else {
            Default::default()
        }
    }

    /// Flows that opened in the buckets of a span, both ends included, by class.
    pub fn opened(&self, from: Tick, to: Tick) -> ByClass<u64> {
        self.classes.each_ref().map(|class| class.opened.sum(from, to))
    }

    /// The same of an earlier pod at this address.
    pub fn opened_before(&self, pod: &str, from: Tick, to: Tick) -> ByClass<u64> {
        let mut sums = ByClass::default();
        for past in self.past.iter().filter(|past| &*past.pod == pod) {
            sums.iter_mut()
                .zip(&past.opened)
                .for_each(|(sum, series)| *sum += series.sum(from, to));
        }
        sums
    }

    /// Its front doors, with their counters and the flows that opened in spans.
    pub fn doors(&self) -> impl Iterator<Item = (&DoorKey, DoorCounts, &Series)> {
        self.doors.iter().map(|(key, door)| {
            let counts = if self.present && door.present {
                door.last
            } else {
                DoorCounts::default()
            };
            (key, counts, &door.opened)
        })
    }

    pub(super) fn last(&self, class: usize) -> Counts {
        self.classes[class].last
    }

    /// Takes the counters of a report. `are_new`: what they exceed the last ones by has opened since the last report.
    pub(super) fn take(&mut self, entry: &Entry, tick: Tick, are_new: bool, endpoint_of: Option<&PodUid>) {
        self.present = true;
        if let (Owner::Reported(before), Some(now)) = (&self.owner, &entry.pod_uid)
            && before != now
        {
            // Numbers of cgroups begin anew when the node does.
            self.part(before.clone());
        }
        let mut grown = false;
        for (class, counts) in self.classes.iter_mut().zip(entry.classes) {
            if are_new {
                let more = new_flows(class.last.opened, counts.opened).unwrap_or(u32::MAX);
                class.opened.add(tick, more);
                grown |= more > 0;
            }
            class.last = counts;
        }
        self.take_doors(entry, tick, are_new);
        if let Some(pod) = &entry.pod_uid {
            self.owner = Owner::Reported(pod.clone());
        } else if grown && matches!((&self.owner, endpoint_of), (Owner::Bound(bound), Some(pod)) if bound != pod) {
            self.strange = self.strange.saturating_add(1);
            if self.strange > LATE_REPORTS {
                self.owner = endpoint_of.map_or(Owner::Unknown, |pod| Owner::Bound(pod.clone()));
                self.strange = 0;
            }
        }
    }

    fn take_doors(&mut self, entry: &Entry, tick: Tick, are_new: bool) {
        self.doors.values_mut().for_each(|door| door.present = false);
        let mut overflowing = false;
        for &(key, counts) in &entry.doors {
            let known = self.doors.contains_key(&key);
            if !known && self.doors.len() >= MAX_DOORS {
                overflowing = true;
                continue;
            }
            let door = self.doors.entry(key).or_default();
            door.present = true;
            if are_new && (known || !self.doors_overflowing) {
                let more = new_flows(door.last.opened, counts.opened).unwrap_or(u32::MAX);
                door.opened.add(tick, more);
            }
            door.last = counts;
        }
        self.doors_overflowing = overflowing;
    }

    /// Says which pod has the endpoint now. Without a cgroup one key serves each pod in turn, and its flows are parted
    /// here; with one, the first stays.
    pub(super) fn bind(&mut self, pod: &PodUid, has_cgroup: bool) {
        match &self.owner {
            Owner::Unknown => self.owner = Owner::Bound(pod.clone()),
            Owner::Bound(bound) if bound != pod && !has_cgroup => {
                self.part(bound.clone());
                self.owner = Owner::Bound(pod.clone());
            }
            Owner::Bound(_) | Owner::Reported(_) => {}
        }
    }

    /// What has opened so far was this pod's.
    fn part(&mut self, pod: PodUid) {
        if self.past.len() == MAX_PAST {
            self.past.remove(0);
        }
        self.past.push(Past {
            pod,
            opened: self.classes.each_mut().map(|class| std::mem::take(&mut class.opened)),
        });
        self.doors.values_mut().for_each(|door| door.opened = Series::default());
    }

    /// Windows go on over epochs; counters start at zero.
    pub(super) fn start_epoch(&mut self) {
        self.classes.iter_mut().for_each(|class| class.last = Counts::default());
        self.doors
            .values_mut()
            .for_each(|door| door.last = DoorCounts::default());
        self.doors_overflowing = false;
    }

    /// Forgets buckets before a tick. False when nothing is left to keep.
    pub(super) fn expire(&mut self, before: Tick) -> bool {
        self.classes.iter_mut().for_each(|class| class.opened.expire(before));
        self.doors.retain(|_, door| {
            door.opened.expire(before);
            door.present || !door.opened.is_empty()
        });
        self.past.retain_mut(|past| {
            past.opened.iter_mut().for_each(|series| series.expire(before));
            past.opened.iter().any(|series| !series.is_empty())
        });
        self.present || !self.past.is_empty() || self.classes.iter().any(|class| !class.opened.is_empty())
    }
}

/// What a counter has grown by between two reports; counted from zero when it was forgotten in between. `None` when that
/// is more than any node can open.
pub(super) fn new_flows(last: u64, now: u64) -> Option<u32> {
    u32::try_from(now.checked_sub(last).unwrap_or(now)).ok()
}
