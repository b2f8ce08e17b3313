//! One key's cumulative counters enter, report by report; its flows per bucket of time, by class and by front door,
//! leave, with the pod that they belong to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::flows::Flows;
use super::report::{DoorCounts, DoorKey, Entry, FlowAges, PodUid};
use super::series::{Series, Tick};
use crate::flow::{ByClass, Counts, SourceClass};

const EXTERNAL: usize = SourceClass::External.index();

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
    flows: Flows,
}

#[derive(Debug, Clone, Default)]
struct Door {
    /// In the newest report.
    present: bool,
    last: DoorCounts,
    flows: Flows,
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
    /// The newest reading, by our clock.
    ages: Option<Arc<FlowAges>>,
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
        self.classes.each_ref().map(|class| class.flows.opened.sum(from, to))
    }

    /// Its external flows by bucket.
    pub fn external(&self) -> &Flows {
        &self.classes[EXTERNAL].flows
    }

    /// How old its open external flows are, as last looked at, by our clock.
    pub fn ages(&self) -> Option<&Arc<FlowAges>> {
        self.ages.as_ref().filter(|_| self.present)
    }

    /// What [`Self::opened`] says, of an earlier pod at this address.
    pub fn opened_before(&self, pod: &str, from: Tick, to: Tick) -> ByClass<u64> {
        let mut sums = ByClass::default();
        for past in self.past.iter().filter(|past| &*past.pod == pod) {
            sums.iter_mut()
                .zip(&past.opened)
                .for_each(|(sum, series)| *sum += series.sum(from, to));
        }
        sums
    }

    /// Its front doors, with their counters and their flows by bucket.
    pub fn doors(&self) -> impl Iterator<Item = (&DoorKey, DoorCounts, &Flows)> {
        self.doors.iter().map(|(key, door)| {
            let counts = if self.present && door.present {
                door.last
            } else {
                DoorCounts::default()
            };
            (key, counts, &door.flows)
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
        for (index, (class, counts)) in self.classes.iter_mut().zip(entry.classes).enumerate() {
            if are_new {
                let more = new_flows(class.last.opened, counts.opened).unwrap_or(u32::MAX);
                class.flows.opened.add(tick, more);
                grown |= more > 0;
                if index == EXTERNAL {
                    let more = new_flows(class.last.closed_total(), counts.closed_total()).unwrap_or(u32::MAX);
                    class.flows.closed.add(tick, more);
                }
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

    /// Takes a reading of ages, if the report has one; `ours` turns the agent's clock into ours.
    pub(super) fn read_ages(&mut self, entry: &Entry, ours: impl FnOnce(u64) -> u64) {
        match &entry.ages {
            Some(ages) => {
                self.ages = Some(Arc::new(FlowAges {
                    read_at_ms: ours(ages.read_at_ms),
                    ..ages.clone()
                }));
            }
            None if entry.classes[EXTERNAL].established == 0 => self.ages = None,
            None => {}
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
                door.flows.opened.add(tick, more);
                if key.is_external() {
                    let more = new_flows(door.last.closed, counts.closed).unwrap_or(u32::MAX);
                    door.flows.closed.add(tick, more);
                }
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
            opened: self
                .classes
                .each_mut()
                .map(|class| std::mem::take(&mut class.flows).opened),
        });
        self.doors.values_mut().for_each(|door| door.flows = Flows::default());
    }

    /// Windows go on over epochs; counters start at zero.
    pub(super) fn start_epoch(&mut self) {
        self.classes.iter_mut().for_each(|class| class.last = Counts::default());
        self.doors
            .values_mut()
            .for_each(|door| door.last = DoorCounts::default());
        self.doors_overflowing = false;
        self.ages = None;
    }

    /// Forgets buckets before a tick. False when nothing is left to keep.
    pub(super) fn expire(&mut self, before: Tick) -> bool {
        self.classes.iter_mut().for_each(|class| class.flows.expire(before));
        self.doors.retain(|_, door| {
            door.flows.expire(before);
            door.present || !door.flows.is_empty()
        });
        self.past.retain_mut(|past| {
            past.opened.iter_mut().for_each(|series| series.expire(before));
            past.opened.iter().any(|series| !series.is_empty())
        });
        self.present || !self.past.is_empty() || self.classes.iter().any(|class| !class.flows.is_empty())
    }
}

/// What a counter has grown by between two reports; counted from zero when it was forgotten in between. `None` when that
/// is more than any node can open.
pub(super) fn new_flows(last: u64, now: u64) -> Option<u32> {
    u32::try_from(now.checked_sub(last).unwrap_or(now)).ok()
}
