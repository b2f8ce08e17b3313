//! How old the external flows are that are open at assigned endpoints: in, walks over all open flows, not more often than is cheap;
//! out, ages in buckets, by ledger key, as they were at the last walk.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use flowskew_agent_ebpf::{Flow, LedgerKey, WatchedKey, source_class};
use flowskew_proto::ages::bucket;

use super::clock::boot_ns;
use crate::kernel::now_ms;

/// Time from one walk to the next, at least. A little below a second, so that reports each second all carry another one.
const SHORTEST: Duration = Duration::from_millis(900);
/// A walk is followed by so many times its own time without one: it costs less than 2 % of a CPU.
const REST: u32 = 50;

/// The ages at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// When, milliseconds since 1970.
    pub read_at_ms: u64,
    /// By ledger key; those without an open flow are not there.
    pub flows: HashMap<LedgerKey, FlowAges>,
}

/// The ages of the flows of one ledger key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowAges {
    /// Flows by the bucket of their age, as [`flowskew_proto::ages`] numbers them.
    pub buckets: BTreeMap<u32, u64>,
    /// Flows that were open when counting began.
    pub unknown: u64,
}

/// Reads ages, and keeps the last reading.
#[derive(Debug, Default)]
pub struct Ages {
    reading: Arc<Reading>,
    due: Option<Instant>,
}

impl Ages {
    /// The ages now, or at the last walk if another would cost too much. `walk` calls its argument once for each open flow. After
    /// its error nothing is known until the next.
    pub fn read<E>(
        &mut self,
        endpoints: &HashSet<WatchedKey>,
        walk: impl FnOnce(&mut dyn FnMut(&Flow)) -> Result<(), E>,
    ) -> Result<Arc<Reading>, E> {
        let began = Instant::now();
        if self.due.is_some_and(|due| began < due) {
            return Ok(Arc::clone(&self.reading));
        }
        let (now_ns, mut reading) = (boot_ns(), Reading::default());
        reading.read_at_ms = now_ms();
        let walked = if endpoints.is_empty() {
            Ok(())
        } else {
            walk(&mut |flow| reading.add(flow, endpoints, now_ns))
        };
        self.due = Some(began + pause(began.elapsed()));
        if walked.is_err() {
            reading.flows.clear();
        }
        self.reading = Arc::new(reading);
        walked.map(|()| Arc::clone(&self.reading))
    }
}

impl Reading {
    fn add(&mut self, flow: &Flow, endpoints: &HashSet<WatchedKey>, now_ns: u64) {
        if flow.source_class != source_class::EXTERNAL || !endpoints.contains(&flow.key.endpoint()) {
            return;
        }
        let ages = self.flows.entry(flow.key).or_default();
        if flow.opened_at_ns == 0 {
            ages.unknown += 1;
        } else {
            let age_ms = now_ns.saturating_sub(flow.opened_at_ns) / 1_000_000;
            *ages.buckets.entry(bucket(age_ms)).or_default() += 1;
        }
    }
}

/// Time from the begin of a walk that took so long to the begin of the next.
fn pause(took: Duration) -> Duration {
    (took * REST).max(SHORTEST)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use flowskew_agent_ebpf::PROTOCOL_TCP;

    use super::*;

    fn flow(port: u16, class: u8, opened_at_ns: u64) -> Flow {
        Flow {
            key: LedgerKey {
                port,
                protocol: PROTOCOL_TCP,
                ..LedgerKey::default()
            },
            source_class: class,
            opened_at_ns,
            ..Flow::default()
        }
    }

    #[test]
    fn only_external_flows_of_assigned_endpoints_are_put_into_buckets() {
        let now = boot_ns();
        let old = now.saturating_sub(3_600_000_000_000).max(1);
        let flows = [
            flow(80, source_class::EXTERNAL, now),
            flow(80, source_class::EXTERNAL, old),
            flow(80, source_class::EXTERNAL, 0),
            flow(80, source_class::NODE, now),
            flow(81, source_class::EXTERNAL, now),
        ];
        let endpoints = HashSet::from([flows[0].key.endpoint()]);
        let mut ages = Ages::default();
        let reading = ages.read(&endpoints, |visit| {
            flows.iter().for_each(visit);
            Ok::<_, Infallible>(())
        });
        let reading = reading.expect("cannot fail");
        assert_eq!(reading.flows.len(), 1, "{reading:?}");
        let of_80 = &reading.flows[&flows[0].key];
        assert_eq!((of_80.unknown, of_80.buckets.values().sum::<u64>()), (1, 2));
        let oldest = of_80.buckets.keys().max().copied().expect("two flows");
        let age_ms = boot_ns().saturating_sub(old) / 1_000_000;
        assert!(oldest.abs_diff(bucket(age_ms)) <= 1, "{oldest} for {age_ms} ms");
        assert!(now_ms().abs_diff(reading.read_at_ms) < 5_000);
    }

    #[test]
    fn what_was_read_a_moment_ago_is_not_read_again() {
        let endpoints = HashSet::from([flow(80, 1, 1).key.endpoint()]);
        let mut ages = Ages::default();
        let mut walks = 0;
        for _ in 0..3 {
            let read = ages.read(&endpoints, |_| {
                walks += 1;
                Ok::<_, Infallible>(())
            });
            read.expect("cannot fail");
        }
        assert_eq!(walks, 1);
        assert_eq!(pause(Duration::from_millis(1)), SHORTEST);
        assert_eq!(pause(Duration::from_millis(200)), Duration::from_secs(10));
    }

    #[test]
    fn a_walk_that_failed_tells_no_ages() {
        let found = flow(80, source_class::EXTERNAL, 1);
        let mut ages = Ages::default();
        let endpoints = HashSet::from([found.key.endpoint()]);
        let read = ages.read(&endpoints, |visit| {
            visit(&found);
            Err("broken")
        });
        assert_eq!(read.expect_err("it failed"), "broken");
        assert!(ages.reading.flows.is_empty());
    }
}
