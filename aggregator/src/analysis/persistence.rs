//! How old are established flows, and how long does their skew last? Open flows with their ages and the new flows of the window
//! enter; ages by endpoint leave, the rate at which flows close, and when they will be even.

mod ages;
mod outlook;
mod projection;
mod rate;
mod sentence;

#[cfg(test)]
mod tests;

use super::ServiceInput;
use super::shares::Split;
use crate::report::{EndpointAges, Estimate, Persistence};
use outlook::Outlook;
use rate::Rate;

/// Established flows with a peak ratio below this are taken for even.
pub(super) const EVEN_PEAK_RATIO: f64 = 1.2;

const HOUR_MS: f64 = 3_600_000.0;

/// Ages, hazard and the time until the peak ratio of established flows is below `target`; `new` are the new flows of the window.
/// `None` when nobody looked at ages.
///
/// The hazard is closes over flow-hours, its interval that of a Poisson count: each open flow closes at random at one rate, however
/// old it is. Flows that live until a server or a client restarts close in bursts instead: then the interval is too narrow.
pub(super) fn persistence(input: &ServiceInput, new: &Split, target: f64) -> Option<Persistence> {
    if input.endpoints.iter().all(|endpoint| endpoint.ages.is_none()) {
        return None;
    }
    let endpoints: Vec<EndpointAges> = input
        .endpoints
        .iter()
        .map(|endpoint| {
            let ages = endpoint.ages.as_ref();
            EndpointAges {
                pod: endpoint.pod.clone(),
                flows: ages.map_or(0, ages::flows),
                unknown: ages.map_or(0, |ages| ages.unknown),
                median_seconds: ages.and_then(|ages| ages::quantile(ages, 0.5)),
                p90_seconds: ages.and_then(|ages| ages::quantile(ages, 0.9)),
                before_change: ages
                    .zip(input.endpoints_changed_ms)
                    .map(|(ages, changed)| ages::before(ages, changed)),
            }
        })
        .collect();
    let flows = endpoints.iter().fold(0_u64, |sum, row| sum.saturating_add(row.flows));
    let before = endpoints.iter().filter_map(|row| row.before_change);
    let before = before.reduce(|a, b| Estimate {
        value: a.value + b.value,
        low: a.low + b.low,
        high: a.high + b.high,
    });
    let share = |of: f64| of / flows as f64;
    let rate = Rate::of(input);
    let outlook = Outlook::of(input, new, &rate, target);
    let mut found = Persistence {
        flows,
        before_change: before.filter(|_| flows > 0).map(|before| Estimate {
            value: share(before.value),
            low: share(before.low),
            high: share(before.high),
        }),
        endpoints,
        closes: rate.closes,
        flow_hours: rate.flow_hours,
        hazard_per_hour: rate.hazard,
        target_peak_ratio: target,
        hours_to_even: outlook.hours,
        hours_to_even_low: outlook.low,
        hours_to_even_high: outlook.high,
        left_on_gone: input
            .former
            .iter()
            .fold(0, |sum, former| sum.saturating_add(former.established)),
        sentence: String::new(),
    };
    found.sentence = sentence::sentence(input, &found, &outlook, rate.mixed);
    Some(found)
}
