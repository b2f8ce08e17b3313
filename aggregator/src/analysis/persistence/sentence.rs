//! What is known of the age of established flows enters; a sentence for people leaves.

use super::super::ServiceInput;
use super::super::input::AgesInput;
use super::super::words::{about, list, percent, plural, ratio};
use super::ages;
use super::outlook::{Basis, Course, Outlook};
use crate::report::Persistence;

const HOUR_SECONDS: f64 = 3_600.0;

const REMEDY: &str = "a maximum connection age or a staggered restart of all pods is quicker";

/// How old, which pods, when even, and what to do.
pub(super) fn sentence(input: &ServiceInput, found: &Persistence, outlook: &Outlook, mixed: bool) -> String {
    let mut parts = vec![age(input, found)];
    if outlook.course != Course::Even {
        parts.extend(late_comers(input));
    }
    if found.left_on_gone > 0 {
        parts.push(format!(
            "{} still open on pods that are not ready any more",
            plural(found.left_on_gone, "more flow")
        ));
    }
    parts.push(when(found, outlook, mixed));
    parts.join("; ") + "."
}

/// "Of 9,000 established flows half are older than 3.2 h, and 41.0 % opened before the ready pods last changed 20 min ago".
fn age(input: &ServiceInput, found: &Persistence) -> String {
    let flows = plural(found.flows, "established flow");
    if found.flows == 0 {
        return "No flow is established".to_owned();
    }
    let mut all = AgesInput::default();
    for ages in input.endpoints.iter().filter_map(|endpoint| endpoint.ages.as_ref()) {
        all.buckets.extend(&ages.buckets);
        all.unknown = all.unknown.saturating_add(ages.unknown);
    }
    all.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let old = match ages::quantile(&all, 0.5) {
        Some(median) => format!("half are older than about {}", about(median.value)),
        None => "half or more opened before counting began".to_owned(),
    };
    let before = found
        .before_change
        .zip(input.endpoints_changed_ms)
        .map(|(before, changed)| {
            let ago = input.window.to_ms.saturating_sub(changed) as f64 / 1000.0;
            format!(
                ", and {} opened before the ready pods last changed {} ago",
                percent(before.value),
                about(ago)
            )
        });
    format!("Of {flows} {old}{}", before.unwrap_or_default())
}

/// "pod gw-9 came later and holds 1.1 % of them".
fn late_comers(input: &ServiceInput) -> Option<String> {
    let all: u128 = input
        .endpoints
        .iter()
        .map(|endpoint| u128::from(endpoint.established))
        .sum();
    let ideal = all as f64 / input.endpoints.len() as f64;
    let late = |at: &&super::super::EndpointInput| at.ready_since_ms.is_some() && (at.established as f64) < ideal;
    let late: Vec<_> = input.endpoints.iter().filter(late).collect();
    let held: u128 = late.iter().map(|endpoint| u128::from(endpoint.established)).sum();
    let mut names: Vec<&str> = late.iter().map(|endpoint| endpoint.pod.as_str()).collect();
    names.sort_unstable();
    let hold = if names.len() == 1 { "holds" } else { "hold" };
    (!names.is_empty() && all > 0).then(|| {
        format!(
            "{} came later and {hold} {} of them",
            list("pod", &names),
            percent(held as f64 / all as f64)
        )
    })
}

/// `mixed`: the rate at which flows close is that of short and long ones together.
fn when(found: &Persistence, outlook: &Outlook, mixed: bool) -> String {
    let of = if mixed {
        "open flows, short and long ones together,"
    } else {
        "flows that were open when the window began"
    };
    let of_them = if mixed {
        ""
    } else {
        "of those that were open when the window began "
    };
    let target = ratio(Some(found.target_peak_ratio));
    let peak = ratio(outlook.peak);
    let hours = |hours: f64| about(hours * HOUR_SECONDS);
    match outlook.course {
        Course::Empty => "so nothing can be uneven".to_owned(),
        Course::Silent => "an agent does not report, so nobody knows when they will be even".to_owned(),
        Course::Even => format!("they are even already: their peak ratio is {peak}, below {target}"),
        Course::Chance => format!("their peak ratio of {peak} is no more than chance in so few flows"),
        Course::Still => format!("no flow opened within the window, so their peak ratio stays at {peak}; {REMEDY}"),
        Course::Renewed => {
            let why = match outlook.basis {
                Basis::Expected => {
                    "for equal shares of the nodes leave new flows uneven too (these are too few to measure)"
                }
                Basis::Measured | Basis::Ideal => "for new flows are uneven too",
            };
            format!(
                "their peak ratio of {peak} does not fall below {target} by itself, {why}: what makes those uneven comes first"
            )
        }
        Course::Held => {
            let least = outlook
                .low
                .map(|low| format!(", but not within {} {}", hours(low), basis(outlook.basis)));
            format!(
                "none {of_them}closed in {:.1} flow-hours, so nobody knows when their peak ratio of {peak} is below {target}{}; {REMEDY}",
                found.flow_hours,
                least.unwrap_or_default(),
            )
        }
        Course::Waning => {
            let interval = match (outlook.low, outlook.high) {
                (Some(low), Some(high)) => format!(" ({} to {})", hours(low), hours(high)),
                _ => String::new(),
            };
            format!(
                "each hour {} of the {of} close ({} seen), so their peak ratio of {peak} is below {target} in about \
                 {}{interval} {}; {REMEDY}",
                percent(found.hazard_per_hour.map_or(0.0, |hazard| hazard.value)),
                plural(found.closes, "close"),
                outlook.hours.map_or_else(|| "an unknown time".to_owned(), hours),
                basis(outlook.basis),
            )
        }
    }
}

fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "if new flows go on as in the window",
        Basis::Ideal => "if new flows stay as even as they are",
        Basis::Expected => "if nodes get equal shares of new flows, which are too few to measure",
    }
}
