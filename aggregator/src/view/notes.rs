//! What limits the figures of a report, in sentences.

use crate::node::Origin;
use crate::report::ServiceReport;

/// Names listed before "and 7 more".
const NAMED: usize = 3;

/// Pods whose parts of known flows differ by more have shares that cannot be compared.
const COMPARABLE: f64 = 0.02;

/// `coverage`: the least and the largest part of a pod's new flows whose Service is known.
pub(super) fn notes(report: &ServiceReport, coverage: Option<(f64, f64)>) -> Vec<String> {
    [shared(report, coverage), counting(report), changed(report)]
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

fn counting(report: &ServiceReport) -> Option<String> {
    let since_ms = report
        .counting_since_ms
        .filter(|since| *since > report.window.from_ms)?;
    let late = |row: &&crate::report::NodeRow| row.counting_since_ms.is_some_and(|ms| ms > report.window.from_ms);
    let late: Vec<_> = report.nodes.iter().filter(late).collect();
    let names: Vec<String> = late.iter().map(|row| row.node.clone()).collect();
    let migrated = late.iter().any(|row| row.origin == Origin::Migrated);
    Some(format!(
        "Counts since {}, less than the window: node{} {} began to count within it{}.",
        time(since_ms),
        if names.len() == 1 { "" } else { "s" },
        list(&names),
        if migrated {
            ", where an agent of another version counted before"
        } else {
            ""
        },
    ))
}

fn changed(report: &ServiceReport) -> Option<String> {
    let changed_ms = report.endpoints_changed_ms.filter(|at| *at > report.window.from_ms)?;
    Some(format!(
        "The ready pods changed within the window, last at {}: flows from before count for those that are still there.",
        time(changed_ms)
    ))
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
