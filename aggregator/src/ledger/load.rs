//! How busy each pod is: cumulative counters enter, report by report; rates over a span of time leave.
//!
//! Memory for one node, at most: [`MAX_PODS`] pods with about 60 samples of 100 bytes each.

use std::collections::{HashMap, VecDeque};

use super::RETENTION_MS;
use super::report::{PodLoad, PodUid};

/// Pods kept for one node.
pub const MAX_PODS: usize = 1024;
/// Of samples of this age, one is kept in an eighth of it: a window is missed by at most that part of its length.
const SPACING: u64 = 8;

#[derive(Debug, Clone, Copy)]
struct Sample {
    at_ms: u64,
    load: PodLoad,
}

/// How busy a pod was between two moments. `None` is not known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadRates {
    /// Time between the two reports, in milliseconds.
    pub span_ms: u64,
    /// CPUs used, on average.
    pub cpu_cores: Option<f64>,
    /// Part of the time in which its CPU limit kept it waiting, 0 to 1.
    pub throttled_share: Option<f64>,
    /// Connections that found an accept queue full.
    pub listen_overflows: Option<u64>,
    /// Connections dropped at a listener for any reason.
    pub listen_drops: Option<u64>,
    /// SYN cookies sent.
    pub syn_cookies: Option<u64>,
    /// The last three are of the whole node.
    pub shares_network: bool,
}

/// The loads of one node's pods.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Oldest first.
    pods: HashMap<PodUid, VecDeque<Sample>>,
}

impl Loads {
    pub(super) fn take(&mut self, pods: &[(PodUid, PodLoad)], at_ms: u64) {
        for (pod, load) in pods {
            if !self.pods.contains_key(pod) && self.pods.len() >= MAX_PODS {
                continue;
            }
            let samples = self.pods.entry(pod.clone()).or_default();
            if samples.back().is_none_or(|newest| newest.at_ms < at_ms) {
                samples.push_back(Sample { at_ms, load: *load });
                thin(samples, at_ms);
            }
        }
    }

    /// The newest counters of a pod.
    pub(super) fn newest(&self, pod: &str) -> Option<PodLoad> {
        self.pods.get(pod)?.back().map(|sample| sample.load)
    }

    /// Over the reports since a moment; `None` with fewer than two.
    pub(super) fn rates(&self, pod: &str, from_ms: u64) -> Option<LoadRates> {
        let samples = self.pods.get(pod)?;
        let start = samples.partition_point(|sample| sample.at_ms < from_ms);
        let within: Vec<Sample> = samples.range(start..).copied().collect();
        let (first, last) = (within.first()?, within.last()?);
        let span_ms = last.at_ms - first.at_ms;
        if span_ms == 0 {
            return None;
        }
        let of_time = |us: Option<u64>| us.map(|us| us as f64 / 1000.0 / span_ms as f64);
        Some(LoadRates {
            span_ms,
            cpu_cores: of_time(growth(&within, |load| load.cpu_usage_us)),
            throttled_share: of_time(growth(&within, |load| load.cpu_throttled_us)).map(|share| share.min(1.0)),
            listen_overflows: growth(&within, |load| load.listen_overflows),
            listen_drops: growth(&within, |load| load.listen_drops),
            syn_cookies: growth(&within, |load| load.syn_cookies),
            shares_network: last.load.shares_network,
        })
    }

    pub(super) fn expire(&mut self, now_ms: u64) {
        let before = now_ms.saturating_sub(RETENTION_MS);
        self.pods.retain(|_, samples| {
            while samples.front().is_some_and(|oldest| oldest.at_ms < before) {
                samples.pop_front();
            }
            !samples.is_empty()
        });
    }
}

/// Drops samples that are closer to each other than their age asks for.
fn thin(samples: &mut VecDeque<Sample>, now_ms: u64) {
    let mut kept: VecDeque<Sample> = VecDeque::with_capacity(samples.len());
    for position in 0..samples.len() {
        let sample = samples[position];
        let spacing = now_ms.saturating_sub(sample.at_ms) / SPACING;
        let next = samples.get(position + 1).map_or(u64::MAX, |next| next.at_ms);
        // The ends always stay; between them one stays when the gap without it would be too wide.
        let gap = kept.back().map_or(u64::MAX, |before| next - before.at_ms);
        if gap > spacing {
            kept.push_back(sample);
        }
    }
    *samples = kept;
}

/// What a counter has grown by. One that was set back has begun anew from zero. `None` unless it was there all the time.
fn growth(samples: &[Sample], counter: impl Fn(&PodLoad) -> Option<u64>) -> Option<u64> {
    let mut sum: u64 = 0;
    for pair in samples.windows(2) {
        let (before, now) = (counter(&pair[0].load)?, counter(&pair[1].load)?);
        sum = sum.saturating_add(now.checked_sub(before).unwrap_or(now));
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(cpu_us: u64, overflows: u64) -> PodLoad {
        PodLoad {
            cpu_usage_us: Some(cpu_us),
            listen_overflows: Some(overflows),
            ..Default::default()
        }
    }

    fn taken(samples: &[(u64, PodLoad)]) -> Loads {
        let mut loads = Loads::default();
        samples
            .iter()
            .for_each(|&(at_ms, load)| loads.take(&[("p".into(), load)], at_ms));
        loads
    }

    #[test]
    fn rates_are_differences() {
        let loads = taken(&[
            (1000, load(5_000_000, 7)),
            (2000, load(6_000_000, 7)),
            (3000, load(9_000_000, 10)),
        ]);
        let rates = loads.rates("p", 0).unwrap();
        assert_eq!(
            (rates.span_ms, rates.cpu_cores, rates.listen_overflows),
            (2000, Some(2.0), Some(3))
        );
        assert_eq!((rates.throttled_share, rates.syn_cookies), (None, None));
        assert_eq!(loads.rates("p", 1500).unwrap().cpu_cores, Some(3.0));
        assert_eq!(loads.newest("p").unwrap().listen_overflows, Some(10));
        // One report, or none, says nothing.
        assert_eq!(loads.rates("p", 2500), None);
        assert_eq!(loads.rates("q", 0), None);
    }

    #[test]
    fn a_counter_that_begins_anew_loses_nothing() {
        let loads = taken(&[(0, load(0, 5)), (1000, load(0, 2)), (2000, load(0, 4))]);
        assert_eq!(loads.rates("p", 0).unwrap().listen_overflows, Some(4));
    }

    #[test]
    fn an_hour_of_reports_is_a_few_samples_and_keeps_its_sum() {
        let seconds = 3600;
        let samples: Vec<(u64, PodLoad)> = (0..=seconds).map(|s| (s * 1000, load(s * 500_000, s))).collect();
        let loads = taken(&samples);
        let kept = loads.pods["p"].len();
        assert!((20..80).contains(&kept), "{kept}");
        for window in [10, 60, 300, 900, 3600] {
            let rates = loads.rates("p", (seconds - window) * 1000).unwrap();
            assert!(rates.span_ms >= window * 850, "{window} s: {} ms", rates.span_ms);
            assert_eq!(rates.cpu_cores, Some(0.5));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut loads = Loads::default();
        for n in 0..MAX_PODS + 9 {
            loads.take(&[(n.to_string().into(), load(1, 1))], 1000);
        }
        assert_eq!(loads.pods.len(), MAX_PODS);
        loads.expire(RETENTION_MS + 1001);
        assert!(loads.pods.is_empty());
    }
}
