//! Single flows: in, records of the kernel's ring; out, how long flows lived, by cause of their end.

use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use flowskew_agent_ebpf::{FlowEvent, close_cause, event_kind};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};

/// What the stream of single flows has told. Counts of flows come from the ledger, never from here.
#[derive(Debug, Clone)]
pub struct EventMetrics {
    /// Seconds from open to close of flows of watched endpoints that were seen to open.
    pub duration: Family<CauseLabel, Histogram, fn() -> Histogram>,
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
            malformed: Counter::default(),
        }
    }
}

/// From 100 ms to about three days, in steps of four.
fn durations() -> Histogram {
    Histogram::new((0..11).map(|step| 0.1 * 4_f64.powi(step)))
}

/// Time between two looks at the ring. The kernel wakes nobody: that would cost each connection more than the look does.
const POLL: Duration = Duration::from_millis(50);

/// Reads the ring until the agent ends.
pub async fn drain(mut ring: RingBuf<MapData>, metrics: EventMetrics) {
    loop {
        while let Some(record) = ring.next() {
            match FlowEvent::from_bytes(&record) {
                Some(event) => observe(&event, &metrics),
                None => {
                    metrics.malformed.inc();
                }
            }
        }
        tokio::time::sleep(POLL).await;
    }
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
