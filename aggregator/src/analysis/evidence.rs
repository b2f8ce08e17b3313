//! Is the pod with most flows also the busiest? A split with the pods' loads enters; a sentence leaves when it is.

use super::shares::Split;
use super::words::{count, percent};

/// A pod is hot when it uses this much more CPU than the mean.
const HOT: f64 = 1.25;
/// Pods with at least this part of the largest share are as loaded with flows as that with the largest.
const NEAR_PEAK: f64 = 0.9;
/// A CPU limit that holds a pod up for less of its time is not worth a word.
const THROTTLED: f64 = 0.01;

/// "The hot pod really is hot", with numbers, when the pod that uses most CPU is one of those with most flows. `None` when
/// it is not, or when the CPU of a pod is not known.
pub(super) fn hot_pod(split: &Split) -> Option<String> {
    let cores: Vec<f64> = split
        .endpoints
        .iter()
        .map(|endpoint| endpoint.load?.cpu_cores)
        .collect::<Option<_>>()?;
    let mean = cores.iter().sum::<f64>() / cores.len() as f64;
    let hottest = (0..cores.len()).max_by(|a, b| cores[*a].total_cmp(&cores[*b]).then(b.cmp(a)))?;
    let largest = split.shares.iter().copied().fold(0.0, f64::max);
    if mean <= 0.0 || cores[hottest] < HOT * mean || split.shares[hottest] < NEAR_PEAK * largest {
        return None;
    }
    let pod = &split.endpoints[hottest];
    let load = pod.load?;
    let mut sentence = format!(
        "The hot pod really is hot: {} uses {:.2} CPUs against a mean of {mean:.2}",
        pod.pod, cores[hottest]
    );
    if let Some(share) = load.throttled_share.filter(|share| *share >= THROTTLED) {
        sentence.push_str(&format!(", its CPU limit holds it up {} of the time", percent(share)));
    }
    if let Some(overflows) = load.listen_overflows.filter(|overflows| *overflows > 0) {
        sentence.push_str(&format!(", its accept queue was full {} times", count(overflows)));
    }
    sentence.push('.');
    Some(sentence)
}
