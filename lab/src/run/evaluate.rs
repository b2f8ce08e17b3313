//! Expectations against what was seen. A check and an observation enter; rows of expected and got leave. Pure.

use flowskew_aggregator::report::Theil;
use serde::Serialize;

use super::exact::{self, Exact};
use super::losses;
use super::observe::{Observation, PodCounts};
use super::why;
use crate::scenario::expect::{Check, Shares, ZeroRule};
use crate::scenario::findings;
use crate::scenario::value::{Amount, Bound};

/// One expectation and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What is looked at.
    pub what: String,
    /// What should be.
    pub expected: String,
    /// What is.
    pub got: String,
    /// Does it hold?
    pub pass: bool,
}

impl Row {
    /// A row.
    pub fn new(what: impl Into<String>, expected: impl Into<String>, got: impl Into<String>, pass: bool) -> Self {
        Self {
            what: what.into(),
            expected: expected.into(),
            got: got.into(),
            pass,
        }
    }
}

/// All rows of `check`.
pub fn evaluate(check: &Check, seen: &Observation) -> Vec<Row> {
    let mut rows = exact::rows(Exact::of(check), seen);
    rows.extend(losses::rows(&check.losses, seen));
    if check.failures == ZeroRule::None {
        let failed: Vec<String> = seen
            .failed
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        rows.push(losses::none("attempts that failed", &failed));
    }
    let Check {
        peak_ratio,
        max_min,
        significant,
        ..
    } = check;
    for (kind, skew, peak, spread, chance) in [
        ("new", &seen.report.new, peak_ratio.new, max_min.new, significant.new),
        (
            "established",
            &seen.report.established,
            peak_ratio.established,
            max_min.established,
            significant.established,
        ),
    ] {
        rows.extend(peak.map(|bound| bounded(format!("peak ratio, {kind}"), &bound, skew.peak_ratio, "")));
        rows.extend(spread.map(|bound| bounded(format!("max/min, {kind}"), &bound, skew.max_min, "")));
        rows.extend(chance.map(|expected| {
            let word = |yes: bool| if yes { "more than chance" } else { "no more than chance" };
            let got = skew.significant;
            Row::new(
                format!("skew of {kind} flows"),
                word(expected),
                word(got),
                got == expected,
            )
        }));
    }
    theil(check, seen, &mut rows);
    for shares in &check.shares {
        share_rows(&shares.value, seen, &mut rows);
    }
    rows.extend(check.balancer.map(|expected| {
        let got = seen.report.balancer.model;
        Row::new("load balancer", code(&expected), code(&got), got == expected)
    }));
    rows.extend(check.findings.as_ref().map(|expected| {
        let got: Vec<_> = seen.report.findings.iter().map(|finding| finding.code).collect();
        Row::new(
            "findings",
            expected.to_string(),
            findings::words(&got),
            expected.hold(&got),
        )
    }));
    rows.extend(why::rows(check, seen));
    rows
}

/// A row about a number.
pub(super) fn bounded(what: String, bound: &Bound, measured: Option<f64>, unit: &str) -> Row {
    let expected = format!("{bound}{unit}");
    match measured {
        Some(measured) => Row::new(what, expected, format!("{measured:.3}{unit}"), bound.holds(measured)),
        None => Row::new(what, expected, "unknown", false),
    }
}

fn theil(check: &Check, seen: &Observation, rows: &mut Vec<Row>) {
    type Part = fn(&Theil) -> f64;
    let parts: [(&str, Option<Bound>, Part); 3] = [
        ("load balancer", check.theil.load_balancer, |theil| theil.load_balancer),
        ("placement", check.theil.placement, |theil| theil.placement),
        ("within node", check.theil.within_node, |theil| theil.within_node),
    ];
    for (name, bound, part) in parts {
        let percent = seen
            .report
            .new
            .theil
            .filter(|theil| theil.total > 0.0)
            .map(|theil| part(&theil) / theil.total * 100.0);
        rows.extend(bound.map(|bound| bounded(format!("{name} part of the skew"), &bound, percent, " %")));
    }
}

fn share_rows(shares: &Shares, seen: &Observation, rows: &mut Vec<Row>) {
    let named = |pod: &PodCounts| {
        shares.pods.iter().any(|name| name.value == pod.pod) || shares.nodes.iter().any(|name| name.value == pod.node)
    };
    let pods: Vec<&PodCounts> = seen.pods.iter().filter(|pod| named(pod)).collect();
    let who = match pods.as_slice() {
        [one] => one.pod.clone(),
        [first, .., last] => format!("{} to {} ({} pods)", first.pod, last.pod, pods.len()),
        [] => "no pod".to_owned(),
    };
    let row = |pod: &PodCounts| {
        let address = pod.address.to_string();
        seen.report
            .endpoints
            .iter()
            .find(move |row| row.pod == pod.pod && row.address == address)
    };
    type Share = fn(&flowskew_aggregator::report::EndpointRow) -> Option<f64>;
    let kinds: [(&str, Option<Amount>, Share); 3] = [
        ("new", shares.new, |row| row.new_share),
        ("established", shares.established, |row| row.established_share),
        ("expected", shares.expected, |row| Some(row.expected_share)),
    ];
    for (kind, value, share) in kinds {
        let Some(value) = value else { continue };
        let bound = Bound::around(value, shares.within);
        let measured: Vec<Option<f64>> = pods
            .iter()
            .map(|pod| row(pod).and_then(share).map(|share| share * 100.0))
            .collect();
        let pass = !measured.is_empty() && measured.iter().all(|percent| percent.is_some_and(|p| bound.holds(p)));
        let known: Vec<f64> = measured.iter().copied().flatten().collect();
        let got = if known.len() < measured.len() || known.is_empty() {
            "unknown for some".to_owned()
        } else {
            let low = known.iter().copied().fold(f64::INFINITY, f64::min);
            let high = known.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if known.len() == 1 {
                format!("{low:.2} %")
            } else {
                format!("{low:.2} to {high:.2} %")
            }
        };
        rows.push(Row::new(
            format!("{kind} share of {who}"),
            format!("{bound} %"),
            got,
            pass,
        ));
    }
}

/// The stable word of a verdict or finding, as files and programs spell it.
pub(super) fn code<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "evaluate_tests.rs"]
pub(super) mod tests;
