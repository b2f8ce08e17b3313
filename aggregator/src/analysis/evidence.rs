//! What a finding rests on. A kind of flows and a cause enter; short sentences with numbers leave.

use super::bound::kept;
use super::causes::Part;
use super::shares::Split;
use super::subject::Subject;
use super::words::{chance, count, odds, percent, plural, ratio, sample};
use crate::report::{BalancerModel, FindingCode};

/// A pod is hot when it uses this much more CPU than the mean.
const HOT: f64 = 1.25;
/// Pods with at least this part of the largest share are as loaded with flows as that with the largest.
const NEAR_PEAK: f64 = 0.9;
/// A CPU limit that holds a pod up for less of its time is not worth a word.
const THROTTLED: f64 = 0.01;

/// What a cause of the skew of `subject` rests on, the most telling first.
pub(super) fn of(subject: &Subject, part: &Part) -> Vec<String> {
    let view = subject.view;
    let pods = view
        .and_then(|view| view.affinity.pod_tier)
        .map(|tier| kept("pod of its node", &tier));
    let nodes = view
        .and_then(|view| view.affinity.node_tier)
        .map(|tier| kept("node", &tier));
    let told = match part.code {
        FindingCode::PlacementSkew | FindingCode::LbUneven | FindingCode::LbSingleLeader | FindingCode::LbWeighted => {
            vec![not_chance(subject), balancer(subject), nodes]
        }
        FindingCode::ClientConcentration => vec![concentration(subject), nodes, pods],
        FindingCode::AffinityPinning => vec![pods, view.map(|view| view.affinity.sentence.clone())],
        FindingCode::EndpointIdle => {
            let p_value = chance(part.p_value);
            vec![
                Some(format!("Chance does not leave a pod with so little: {p_value}.")),
                pods,
            ]
        }
        _ => vec![not_chance(subject), pods],
    };
    told.into_iter().flatten().collect()
}

fn not_chance(subject: &Subject) -> Option<String> {
    let test = subject.skew.test?;
    let independent = if subject.skew.effective_flows < subject.split.flows as f64 {
        let flows = plural(subject.skew.effective_flows as u64, "independent one");
        format!(", which say as much as {flows}")
    } else {
        String::new()
    };
    Some(format!(
        "This is not chance: {} over {}{independent}, and by chance the peak ratio stays below {}.",
        chance(test.p_value),
        sample(subject),
        ratio(subject.skew.noise_floor),
    ))
}

/// The verdict on the balancer, with its Bayes factor.
fn balancer(subject: &Subject) -> Option<String> {
    let verdict = subject.balancer;
    let second = verdict.candidates.get(1);
    match (verdict.model, verdict.log_bayes_factor, second) {
        (BalancerModel::Undetermined, _, _) => None,
        (model, Some(factor), Some(second)) => Some(format!(
            "The balancer is measured, not assumed: {} is {} likelier than {} (Bayes factor).",
            model.code(),
            odds(factor),
            second.model.code(),
        )),
        _ => Some(format!("The balancer fits no known model: {}.", verdict.reason)),
    }
}

fn concentration(subject: &Subject) -> Option<String> {
    let clients = &subject.view?.clients;
    let (effective, top) = (clients.effective?, clients.top_share?);
    let pinned = clients.pinned_peak_ratio.map_or_else(String::new, |peak| {
        format!("; bound to pods at random they alone would give a peak ratio of {peak:.2}")
    });
    if clients.distinct.high < 1.5 {
        return Some(format!("One client opens all of them{pinned}."));
    }
    Some(format!(
        "{} clients open as unevenly as {:.1} equal ones, the ten heaviest open {}{pinned}.",
        count(clients.distinct.value.round() as u64),
        effective.value,
        percent(top.value),
    ))
}

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
