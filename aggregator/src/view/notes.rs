//! What limits the figures of a report, in sentences.

use crate::node::Origin;
use crate::report::ServiceReport;

/// Names listed before "and 7 more".
const NAMED: usize = 3;

/// Pods whose parts of known flows differ by more have shares that cannot be compared.
const COMPARABLE: f64 = 0.02;

/// `coverage`: the least and the largest part of a pod's new flows whose Service is known.
pub(super) fn notes(report: &ServiceReport, coverage: Option<(f64, f64)>) -> Vec<String> {
    [shared(report, coverage), begins_later(report)]
        .into_iter()
        .flatten()
        .collect()
}

fn shared(report: &ServiceReport, coverage: Option<(f64, f64)>) -> Option<String> {
    if report.shared_with.is_empty() {
        return None;
    }
    let mut sentence = format!(
        "{}/{} {}/{} shares its pods with {}: only flows that came through its own front doors count.",
        report.namespace,
        report.service,
        report.port,
        report.protocol,
        list(&report.shared_with),
    );
    let losses = &report.losses;
    if losses.unattributed.max(losses.unattributed_established) > 0 {
        sentence.push_str(&format!(
            " Shares rest on the doors that were found: {} new and {} open flows of these pods have none that is known, \
             next to {} and {} that count.",
            losses.unattributed, losses.unattributed_established, report.new.flows, report.established.flows
        ));
    }
    if let Some((least, most)) = coverage.filter(|(least, most)| most - least > COMPARABLE) {
        sentence.push_str(&format!(
            " They were found for {:.0} % to {:.0} % of a pod's flows: where fewer were found, the share is too small.",
            least * 100.0,
            most * 100.0
        ));
    }
    Some(sentence)
}

/// Why the window begins later than it was asked to.
fn begins_later(report: &ServiceReport) -> Option<String> {
    let window = report.window;
    if window.from_ms <= report.asked_from_ms {
        return None;
    }
    let within = |at_ms: &u64| *at_ms > report.asked_from_ms;
    let changed_ms = report.endpoints_changed_ms.filter(within);
    let reporting = report.nodes.iter().filter(|row| row.agent_reporting);
    let late: Vec<_> = reporting
        .filter(|row| row.counting_since_ms.as_ref().is_some_and(within))
        .collect();
    let counting_ms = late.iter().filter_map(|row| row.counting_since_ms).max();
    // It begins after the last of them, so what came before does not matter.
    let (at_ms, what) = if counting_ms > changed_ms {
        let last: Vec<String> = late
            .iter()
            .filter(|row| row.counting_since_ms > changed_ms)
            .map(|row| row.node.clone())
            .collect();
        let migrated = late.iter().any(|row| row.origin == Origin::Migrated);
        let what = format!(
            "flows on {} began to be counted{}",
            list(&last),
            if migrated {
                ", where an agent of another version counted before"
            } else {
                ""
            }
        );
        (counting_ms?, what)
    } else {
        (changed_ms?, "the ready pods changed".to_owned())
    };
    Some(format!(
        "The window begins where {what}, which is {} ago ({}): flows from before would show a skew that is none.",
        ago(window.to_ms.saturating_sub(at_ms)),
        time(at_ms)
    ))
}

/// "40 seconds", "12 minutes".
fn ago(ms: u64) -> String {
    let (number, unit) = match ms / 1000 {
        seconds @ 0..120 => (seconds, "second"),
        seconds => (seconds / 60, "minute"),
    };
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}

fn list(names: &[String]) -> String {
    match names.len() {
        0..=NAMED => names.join(", "),
        many => format!("{} and {} more", names[..NAMED].join(", "), many - NAMED),
    }
}

/// "12:03:11Z".
fn time(ms: u64) -> String {
    i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .map_or_else(|| ms.to_string(), |time| time.strftime("%H:%M:%SZ").to_string())
}
