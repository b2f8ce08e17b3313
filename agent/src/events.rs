//! Single flows: in, records of the kernel's ring; out, how long flows lived, by cause of their end, and the records
//! themselves for whoever wants them.

use std::{collections::HashSet, time::Duration};

use aya::maps::{MapData, RingBuf};
use flowskew_agent_ebpf::{FlowEvent, close_cause, event_kind};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};
use tokio::sync::mpsc;

/// What the stream of single flows has told. Counts of flows come from the ledger, never from here.
#[derive(Debug, Clone)]
pub struct EventMetrics {
    /// Seconds from open to close of flows of watched endpoints that were seen to open.
    pub duration: Family<CauseLabel, Histogram, fn() -> Histogram>,
    /// Records that were read. Together with those that found the ring full they are all that there were.
    pub read: Counter,
    /// Records that could not be read: the programs and the agent were built from different sources.
    pub malformed: Counter,
}

/// Label of a close cause.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CauseLabel {
    /// The cause.
    pub cause: Cause,
}

/// Close causes, as labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(missing_docs, reason = "the words speak for themselves; see close_cause")]
#[expect(non_camel_case_types, reason = "the names are the label values")]
pub enum Cause {
    other,
    client_fin,
    server_fin,
    client_rst,
    server_rst,
    timeout,
}

impl Cause {
    /// All causes, in the order of [`close_cause`].
    pub const ALL: [Self; close_cause::COUNT] = [
        Self::other,
        Self::client_fin,
        Self::server_fin,
        Self::client_rst,
        Self::server_rst,
        Self::timeout,
    ];

    /// The cause that the kernel programs name by this number.
    pub fn from_index(index: u8) -> Self {
        Self::ALL.get(usize::from(index)).copied().unwrap_or(Self::other)
    }
}

impl Default for EventMetrics {
    fn default() -> Self {
        Self {
            duration: Family::new_with_constructor(durations),
            read: Counter::default(),
            malformed: Counter::default(),
        }
    }
}

/// From 100 ms to about three days, in steps of four.
fn durations() -> Histogram {
    Histogram::new((0..11).map(|step| 0.1 * 4_f64.powi(step)))
}

/// Time between two looks at the ring. The kernel wakes nobody: that would cost each connection more than the look
/// does.
pub const POLL: Duration = Duration::from_millis(50);

/// Is told each record, in the order of the ring. It must not wait: what it does not take in time, the ring loses.
pub type Sink = Box<dyn FnMut(&FlowEvent) + Send>;

/// Reads the ring until the agent ends.
pub async fn drain(mut ring: RingBuf<MapData>, metrics: EventMetrics, mut sinks: Vec<Sink>) {
    loop {
        while let Some(record) = ring.next() {
            take(&record, &metrics, &mut sinks);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn take(record: &[u8], metrics: &EventMetrics, sinks: &mut [Sink]) {
    let Some(event) = FlowEvent::from_bytes(record) else {
        metrics.malformed.inc();
        return;
    };
    metrics.read.inc();
    observe(&event, metrics);
    for sink in sinks {
        sink(&event);
    }
}

/// Cgroups that wait to be resolved.
const WAITING_CGROUPS: usize = 256;
/// Cgroups that are not told again.
const KNOWN_CGROUPS: usize = 4_096;

/// A sink that tells the cgroup of flows that open, each once: while its pod is there, its path says which pod it is.
/// Now and then one is told again.
pub fn cgroups() -> (Sink, mpsc::Receiver<u64>) {
    let (sender, receiver) = mpsc::channel(WAITING_CGROUPS);
    let mut told = HashSet::new();
    let sink = move |event: &FlowEvent| {
        let cgroup = event.flow.key.cgroup_id;
        if event.kind != event_kind::OPENED || cgroup == 0 || told.contains(&cgroup) {
            return;
        }
        if told.len() >= KNOWN_CGROUPS {
            told.clear();
        }
        // With no room now, the cgroup's next flow tells it.
        if sender.try_send(cgroup).is_ok() {
            told.insert(cgroup);
        }
    };
    (Box::new(sink), receiver)
}

fn observe(event: &FlowEvent, metrics: &EventMetrics) {
    if event.kind == event_kind::CLOSED && event.flow.opened_at_ns > 0 {
        let nanoseconds = event.at_ns.saturating_sub(event.flow.opened_at_ns);
        let label = CauseLabel {
            cause: Cause::from_index(event.cause),
        };
        metrics.duration.get_or_create(&label).observe(nanoseconds as f64 / 1e9);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use flowskew_agent_ebpf::{Flow, LedgerKey, PROTOCOL_TCP};

    use super::*;

    fn event(kind: u8, cgroup_id: u64) -> FlowEvent {
        FlowEvent {
            flow: Flow {
                key: LedgerKey {
                    address: [1; 16],
                    cgroup_id,
                    port: 80,
                    protocol: PROTOCOL_TCP,
                    padding: 0,
                    padding_word: 0,
                },
                client: [2; 16],
                opened_at_ns: 3,
                client_port: 4,
                source_class: 1,
                padding: 0,
                padding_word: 0,
            },
            at_ns: 5,
            kind,
            cause: 0,
            padding: [0; 6],
        }
    }

    #[test]
    fn a_record_of_another_size_is_malformed_and_told_to_nobody() {
        let metrics = EventMetrics::default();
        let told = Arc::new(Mutex::new(0));
        let count = Arc::clone(&told);
        let mut sinks: Vec<Sink> = vec![Box::new(move |_| *count.lock().expect("held by nobody") += 1)];
        take(&[0; size_of::<FlowEvent>() - 1], &metrics, &mut sinks);
        take(&[0; size_of::<FlowEvent>()], &metrics, &mut sinks);
        assert_eq!((metrics.malformed.get(), *told.lock().expect("held by nobody")), (1, 1));
    }

    #[test]
    fn each_cgroup_is_told_once() {
        let (mut sink, mut receiver) = cgroups();
        for cgroup in [7, 7, 0, 8, 7] {
            sink(&event(event_kind::OPENED, cgroup));
        }
        sink(&event(event_kind::CLOSED, 9));
        assert_eq!(receiver.try_recv(), Ok(7));
        assert_eq!(receiver.try_recv(), Ok(8));
        assert!(receiver.try_recv().is_err());
    }

    #[test]
    fn a_cgroup_that_found_no_room_is_told_by_its_next_flow() {
        let (mut sink, mut receiver) = cgroups();
        let last = WAITING_CGROUPS as u64 + 1;
        for cgroup in 1..=last {
            sink(&event(event_kind::OPENED, cgroup));
        }
        for cgroup in 1..last {
            assert_eq!(receiver.try_recv(), Ok(cgroup));
        }
        assert!(receiver.try_recv().is_err());
        sink(&event(event_kind::OPENED, last));
        assert_eq!(receiver.try_recv(), Ok(last));
    }
}
