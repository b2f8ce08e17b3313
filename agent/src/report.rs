//! Reports and their queue: in, observations and acknowledgements; out, reports to send, in order, again after each loss of the
//! stream until they are acknowledged.

use std::collections::VecDeque;

use flowskew_proto::v1;

use crate::{clients::Activity, convert, observer::Observation};

/// Ledger entries, doors and pods in all reports that wait, up to 400 bytes each: 50 MB. A node with few keys is bounded by the number of its
/// reports long before.
const MAX_PENDING_ENTRIES: usize = 131_072;
/// Bytes of an event of a client under two keys; a sketch counts as so many events.
const EVENT_BYTES: usize = 36;
/// Bytes of a heavy client.
const HEAVY_BYTES: usize = 64;

/// Numbers the reports of one epoch and keeps those that the aggregator has not acknowledged.
#[derive(Debug)]
pub struct ReportQueue {
    epoch: u64,
    epoch_started_at_ms: u64,
    capacity: usize,
    last_sequence: u64,
    /// Not acknowledged, oldest first.
    pending: VecDeque<v1::Report>,
    /// Ledger entries in `pending`: what its memory grows with.
    pending_entries: usize,
    /// What `pending` holds of clients, in events, and how much it may.
    pending_activity: usize,
    most_activity: usize,
    /// The last that was acknowledged: the baseline for an aggregator that has lost its memory.
    acknowledged: Option<v1::Report>,
    /// Whether the baseline is due on the present stream.
    baseline_due: bool,
    /// Highest sequence sent on the present stream.
    sent: u64,
    dropped: u64,
    activity_dropped: u64,
    acknowledgements: u64,
}

impl ReportQueue {
    /// An empty queue for an epoch of which `last_sequence` reports have been made. `capacity` is at least 2. The reports
    /// that wait tell at most `most_activity` events of clients.
    pub fn new(
        epoch: u64,
        epoch_started_at_ms: u64,
        last_sequence: u64,
        capacity: usize,
        most_activity: usize,
    ) -> Self {
        Self {
            epoch,
            epoch_started_at_ms,
            capacity: capacity.max(2),
            last_sequence,
            pending: VecDeque::new(),
            pending_entries: 0,
            pending_activity: 0,
            most_activity,
            acknowledged: None,
            baseline_due: false,
            sent: 0,
            dropped: 0,
            activity_dropped: 0,
            acknowledgements: 0,
        }
    }

    /// The epoch of all reports.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Sequence of the last report that was made.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Reports dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Events of clients that went with dropped reports, or that waited too long. Since the agent started, as all of this.
    pub fn activity_dropped(&self) -> u64 {
        self.activity_dropped
    }

    /// Reports that the aggregator has taken.
    pub fn acknowledgements(&self) -> u64 {
        self.acknowledgements
    }

    /// Reports that wait to be acknowledged.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Makes the next report. When the queue is full, the oldest but one is dropped: counters are cumulative, so the report
    /// after it carries its counts, while the oldest says where counting began. What
    /// clients did is cumulative in no report: when too much of it waits, the oldest goes and is counted.
    pub fn push(&mut self, observation: &Observation, activity: Activity) {
        let mut report = convert::report(observation, activity);
        report.epoch = self.epoch;
        report.epoch_started_at_ms = self.epoch_started_at_ms;
        let full = |queue: &Self| {
            queue.pending.len() >= queue.capacity || queue.pending_entries + size(&report) > MAX_PENDING_ENTRIES
        };
        while full(self)
            && let Some(dropped) = self.pending.remove(1)
        {
            self.pending_entries -= size(&dropped);
            self.pending_activity -= activity_size(&dropped);
            self.activity_dropped += events(&dropped);
            self.dropped += 1;
        }
        self.pending_entries += size(&report);
        self.last_sequence += 1;
        report.sequence = self.last_sequence;
        self.pending_activity += activity_size(&report);
        self.pending.push_back(report);
        self.drop_activity();
        let activity_dropped = observation.clients.dropped + self.activity_dropped;
        if let Some(report) = self.pending.back_mut() {
            report.losses = Some(convert::losses(
                observation.kernel.losses,
                self.dropped,
                activity_dropped,
            ));
        }
    }

    /// Takes what clients did out of the oldest reports while all of them hold too much. One that was sent already may have
    /// arrived: then it is counted as dropped though it was not.
    fn drop_activity(&mut self) {
        for report in &mut self.pending {
            if self.pending_activity <= self.most_activity {
                return;
            }
            self.pending_activity -= activity_size(report);
            self.activity_dropped += events(report);
            report.activity = Vec::new();
        }
    }

    /// A new stream: everything that is not acknowledged is due again, after the baseline.
    pub fn connected(&mut self) {
        self.baseline_due = self.acknowledged.is_some();
        self.sent = 0;
    }

    /// The next report to send on the present stream, stamped with the time of sending.
    pub fn next(&mut self, now_ms: u64) -> Option<v1::Report> {
        let mut report = if self.baseline_due {
            self.baseline_due = false;
            self.acknowledged.clone()?
        } else {
            let report = self.pending.iter().find(|report| report.sequence > self.sent)?.clone();
            self.sent = report.sequence;
            report
        };
        report.sent_at_ms = now_ms;
        Some(report)
    }

    /// The aggregator has taken all reports up to this one. Acknowledgements of another epoch, or of reports that were never
    /// made, mean nothing.
    pub fn acknowledge(&mut self, epoch: u64, sequence: u64) {
        if epoch != self.epoch || sequence > self.last_sequence {
            return;
        }
        while let Some(report) = self.pending.pop_front_if(|report| report.sequence <= sequence) {
            self.acknowledgements += 1;
            self.pending_entries -= size(&report);
            self.pending_activity -= activity_size(&report);
            self.acknowledged = Some(report);
        }
    }
}

/// Records in a report, by which the memory of the queue is bounded.
fn size(report: &v1::Report) -> usize {
    let of_entries = report.entries.iter().map(|entry| {
        let buckets = entry.ages.as_ref().map_or(0, |ages| ages.buckets.len());
        // Sixteen buckets take less room than other records.
        1 + entry.doors.len() + buckets.div_ceil(16)
    });
    of_entries.sum::<usize>() + report.pods.len() + report.unserved.len()
}

/// Events of clients in a report.
fn events(report: &v1::Report) -> u64 {
    report.activity.iter().map(|activity| activity.kinds.len() as u64).sum()
}

/// The memory of what a report tells of clients, in events.
fn activity_size(report: &v1::Report) -> usize {
    let sketches = |column: &v1::ClientColumn| column.distinct.len() + HEAVY_BYTES * column.heavy.len();
    let of_endpoints = report.activity.iter().map(|activity| {
        let sketches: usize = activity.columns.iter().map(sketches).sum();
        activity.kinds.len() + sketches.div_ceil(EVENT_BYTES)
    });
    of_endpoints.sum()
}

#[cfg(test)]
mod tests {
    use crate::{
        clients::{Column, EndpointActivity, Event},
        kernel::Snapshot,
    };

    use super::*;

    const MOST_ACTIVITY: usize = 100;

    fn queue(capacity: usize, reports: usize) -> ReportQueue {
        let mut queue = ReportQueue::new(42, 1, 0, capacity, MOST_ACTIVITY);
        for _ in 0..reports {
            queue.push(&Observation::default(), Activity::default());
        }
        queue
    }

    fn sequences(queue: &mut ReportQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.next(5))
            .map(|report| report.sequence)
            .collect()
    }

    #[test]
    fn each_report_is_sent_once_on_a_stream() {
        let mut queue = queue(10, 3);
        assert_eq!(sequences(&mut queue), [1, 2, 3]);
        assert_eq!(sequences(&mut queue), [0; 0]);
        queue.push(&Observation::default(), Activity::default());
        assert_eq!(sequences(&mut queue), [4]);
    }

    #[test]
    fn a_new_stream_starts_with_the_baseline_and_all_that_is_not_acknowledged() {
        let mut queue = queue(10, 4);
        assert_eq!(sequences(&mut queue), [1, 2, 3, 4]);
        queue.acknowledge(42, 2);
        assert_eq!((queue.pending(), queue.acknowledgements()), (2, 2));
        queue.connected();
        assert_eq!(sequences(&mut queue), [2, 3, 4]);
        queue.acknowledge(42, 4);
        queue.connected();
        assert_eq!(sequences(&mut queue), [4]);
    }

    #[test]
    fn a_full_queue_drops_the_oldest_but_one_and_says_so() {
        let mut queue = queue(3, 5);
        assert_eq!(queue.dropped(), 2);
        let reports: Vec<_> = std::iter::from_fn(|| queue.next(5)).collect();
        assert_eq!(
            reports.iter().map(|report| report.sequence).collect::<Vec<_>>(),
            [1, 4, 5]
        );
        assert_eq!(reports[2].losses.as_ref().map(|losses| losses.reports_dropped), Some(2));
        assert_eq!(reports[0].sent_at_ms, 5);
    }

    #[test]
    fn many_keys_leave_room_for_fewer_reports() {
        let key = flowskew_agent_ebpf::LedgerKey {
            address: [1; 16],
            cgroup_id: 1,
            port: 1,
            protocol: 6,
            padding: 0,
            padding_word: 0,
        };
        let large = Observation {
            kernel: Snapshot {
                entries: vec![(key, Default::default()); MAX_PENDING_ENTRIES / 4],
                ..Snapshot::default()
            },
            ..Observation::default()
        };
        let mut queue = ReportQueue::new(42, 1, 0, 100, MOST_ACTIVITY);
        for _ in 0..6 {
            queue.push(&large, Activity::default());
        }
        assert_eq!((queue.pending(), queue.dropped()), (4, 2));
        assert_eq!(sequences(&mut queue), [1, 4, 5, 6]);
        queue.acknowledge(42, 6);
        assert_eq!((queue.pending(), queue.pending_entries), (0, 0));
    }

    /// So many flows of one client, with a sketch of so many bytes.
    fn activity(events: usize, sketch: usize) -> Activity {
        let event = Event {
            at_ns: 1,
            opened_at_ns: 1,
            client: [1; 16],
            cause: None,
        };
        Activity {
            endpoints: vec![EndpointActivity {
                key: Default::default(),
                shift: 0,
                events: vec![event; events],
                columns: vec![Column {
                    key_id: 1,
                    clients: vec![7; events],
                    distinct: vec![0; sketch],
                    heavy: Vec::new(),
                }],
            }],
            ..Activity::default()
        }
    }

    fn told(queue: &mut ReportQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.next(5))
            .map(|report| events(&report))
            .collect()
    }

    #[test]
    fn of_too_much_activity_the_oldest_goes_and_is_counted() {
        let mut queue = queue(10, 0);
        for _ in 0..3 {
            queue.push(&Observation::default(), activity(40, 0));
        }
        assert_eq!((queue.pending(), queue.dropped(), queue.activity_dropped()), (3, 0, 40));
        // A sketch takes room too, but is no event.
        queue.push(&Observation::default(), activity(10, 35 * EVENT_BYTES));
        assert_eq!(queue.activity_dropped(), 80);
        let last = queue.pending.back().and_then(|report| report.losses.as_ref());
        assert_eq!(last.map(|losses| losses.activity_dropped), Some(80));
        assert_eq!(told(&mut queue), [0, 0, 40, 10]);
        queue.acknowledge(42, 3);
        queue.connected();
        assert_eq!(told(&mut queue), [40, 10], "the baseline keeps what it told");
        queue.acknowledge(42, 4);
        assert_eq!(queue.pending_activity, 0);
        queue.push(&Observation::default(), activity(101, 0));
        assert_eq!((told(&mut queue), queue.activity_dropped()), (vec![0], 181));
    }

    #[test]
    fn a_dropped_report_takes_its_activity_along() {
        let mut queue = queue(2, 0);
        for events in [1, 2, 4, 8] {
            queue.push(&Observation::default(), activity(events, 0));
        }
        assert_eq!((queue.dropped(), queue.activity_dropped()), (2, 6));
        assert_eq!(told(&mut queue), [1, 8]);
        assert_eq!(queue.pending_activity, 9);
    }

    #[test]
    fn strange_acknowledgements_change_nothing() {
        let mut queue = queue(10, 2);
        queue.acknowledge(7, 2);
        queue.acknowledge(42, 3);
        assert_eq!(queue.pending(), 2);
        queue.acknowledge(42, 1);
        queue.acknowledge(42, 1);
        assert_eq!((queue.pending(), queue.acknowledgements()), (1, 1));
    }
}
