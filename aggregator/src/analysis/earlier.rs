//! Do established flows keep a split that new ones no longer have? Both kinds of flows and their ages enter; the part of the
//! established skew that is of the past leaves, with a sentence.

use super::models::expected_shares;
use super::shares::Split;
use super::significance::{REJECT, g_test, same_split};
use super::subject::Subject;
use super::theil::theil;
use super::words::{about, list, percent, plural, ratio, sample};
use crate::report::{Confidence, FlowKind, Persistence};

/// Where new flows are too few to tell, at least this part of the established ones must be older than the last change.
const MOSTLY: f64 = 0.5;

/// A skew of the past.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Earlier {
    /// Its part of the established skew, 0 to 1.
    pub share: f64,
    /// Probability that chance alone sets the established flows apart.
    pub p_value: f64,
    pub confidence: Confidence,
}

/// The part of the established skew that is of the past, if new flows show it: they are enough to be tested, are even or at
/// most half as uneven, and are seen not to follow the established split. When they are too few, ages may show it: most
/// established flows predate the last change of the endpoints, and are not split as this placement would split them.
pub(super) fn earlier(new: &Subject, established: &Subject, ages: Option<&Persistence>) -> Option<Earlier> {
    let then = established.skew.theil?.total;
    if new.skew.test.is_some() {
        let now = new.skew.theil?.total;
        let clearly_less = now < then && (!new.skew.significant || now <= then / 2.0);
        let deff = new.design.whole.max(established.design.whole);
        let p_value = same_split(&new.split.counts, &established.split.counts, deff);
        return (clearly_less && p_value < REJECT).then(|| Earlier {
            share: (1.0 - now / then).clamp(0.0, 1.0),
            p_value,
            confidence: Confidence::High,
        });
    }
    if ages?.before_change?.low < MOSTLY {
        return None;
    }
    let expected = expected_shares(new.balancer.model, new.split);
    if expected.iter().any(|share| *share <= 0.0) {
        return None;
    }
    let p_value = g_test(&established.split.counts, &expected, established.design.whole).p_value;
    // What this placement gives, on a scale of counts that rounds nothing away.
    let counts = expected
        .iter()
        .map(|share| (share * (1_u64 << 40) as f64) as u64)
        .collect();
    let due = theil(&Split::of_counts(new.input, FlowKind::Established, counts))?.total;
    (p_value < REJECT && due < then).then(|| Earlier {
        share: 1.0 - due / then,
        p_value,
        confidence: Confidence::Likely,
    })
}

/// What it means: who came later, what new flows do, how long it takes, what helps.
pub(super) fn sentence(new: &Subject, established: &Subject, ages: Option<&Persistence>) -> String {
    let now = match new.skew.peak_ratio {
        Some(peak) => format!("that of new flows is {} ({})", ratio(Some(peak)), sample(new)),
        None => format!("{} tell nothing", sample(new)),
    };
    let hours = ages.and_then(|ages| Some((ages.hours_to_even? * 3600.0, ages.target_peak_ratio)));
    let alone = match hours {
        Some((seconds, target)) if seconds > 0.0 => {
            format!("left alone they fall below {target:.2} in about {}", about(seconds))
        }
        _ => "left alone they stay so until these flows close".to_owned(),
    };
    format!(
        "{}: established flows keep an earlier split{}: their peak ratio is {} ({}), {now}; {alone}: a maximum connection age or \
         a staggered restart of all pods moves them, new flows alone do not.",
        new.input.service,
        late_comers(established),
        ratio(established.skew.peak_ratio),
        plural(established.split.flows, "flow"),
    )
}

/// Numbers behind it.
pub(super) fn evidence(ages: Option<&Persistence>) -> Vec<String> {
    let Some(ages) = ages else {
        return Vec::new();
    };
    let mut told = Vec::new();
    if let Some(before) = ages.before_change {
        told.push(format!(
            "{} of {} are older than the last change of the ready pods (between {} and {}).",
            percent(before.value),
            plural(ages.flows, "established flow"),
            percent(before.low),
            percent(before.high),
        ));
    }
    if let Some(hazard) = ages.hazard_per_hour {
        told.push(format!(
            "Each hour {} of the open flows close ({} in {:.1} flow-hours).",
            percent(hazard.value),
            plural(ages.closes, "close"),
            ages.flow_hours,
        ));
    }
    told
}

/// Pods that were seen to become ready and hold less than their ideal share: ", for pods a and b came 12 min ago and hold 3.0 %
/// where 18.2 % is ideal".
fn late_comers(established: &Subject) -> String {
    let (split, now) = (established.split, established.input.window.to_ms);
    let ideal = 1.0 / split.endpoint_count() as f64;
    let mut late: Vec<(u64, &str, f64)> = split
        .endpoints
        .iter()
        .zip(&split.shares)
        .filter(|(_, share)| **share < ideal)
        .filter_map(|(endpoint, share)| Some((endpoint.ready_since_ms?, endpoint.pod.as_str(), *share)))
        .collect();
    late.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let (Some(youngest), Some(oldest)) = (late.first(), late.last()) else {
        return match established.input.endpoints_changed_ms {
            Some(changed) => format!(", from before the ready pods changed {} ago", since(now, changed)),
            None => String::new(),
        };
    };
    let (from, to) = (since(now, youngest.0), since(now, oldest.0));
    let ago = if from == to { from } else { format!("{from} to {to}") };
    let names: Vec<&str> = late.iter().map(|(_, pod, _)| *pod).collect();
    format!(
        ", for {} came {ago} ago and {} {} where {} is ideal",
        list("pod", &names),
        if names.len() == 1 { "holds" } else { "hold" },
        percent(late.iter().map(|(_, _, share)| share).sum()),
        percent(ideal * names.len() as f64),
    )
}

fn since(now_ms: u64, then_ms: u64) -> String {
    about(now_ms.saturating_sub(then_ms) as f64 / 1000.0)
}
