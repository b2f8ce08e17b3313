//! The explanation of a report against what a check expects of it. A check and an observation enter; rows of expected and got
//! leave. Pure.

use std::ops::Add;

use flowskew_aggregator::report::{Cause, Estimate, Finding, FlowKind, ServiceReport, Skew, Stickiness};

use super::client_truth::ClientTruth;
use super::evaluate::{Row, bounded, code};
use super::observe::Observation;
use crate::scenario::Check;
use crate::scenario::expect::Exactness;
use crate::scenario::expect_why::{ClientsRule, CpuRule, Hours, PersistenceRule, Saying};
use crate::scenario::value::Bound;

/// Parts add up to the whole within this, in nats: what is left is rounding.
const ROUNDING: f64 = 1e-9;

/// An interval of 95 % is as wide as 1.96 standard errors to each side. A test that looks at it in each run needs five.
const WIDER: f64 = 5.0 / 1.96;

/// All rows.
pub fn rows(check: &Check, seen: &Observation) -> Vec<Row> {
    let report = &seen.report;
    let mut rows = Vec::new();
    for (skew, causes, bounds) in [
        (&report.new, &report.causes, &check.causes.new),
        (
            &report.established,
            &report.established_causes,
            &check.causes.established,
        ),
    ] {
        if check.causes_add_up == Exactness::Exact {
            rows.extend(sum(skew, causes));
        }
        rows.extend(bounds.iter().flatten().map(|(wanted, bound)| {
            let share = causes.iter().filter(|cause| cause.code == Some(*wanted));
            let share = share.filter_map(|cause| cause.share).fold(0.0, Add::add);
            let what = format!("{} part of the skew, {}", wanted.code(), kind(skew.kind));
            bounded(what, bound, skew.theil.map(|_| share * 100.0), " %")
        }));
    }
    rows.extend(check.says.iter().map(|saying| says(&saying.value, &report.findings)));
    affinity(check, report, &mut rows);
    if let Some(rule) = &check.clients {
        clients(&rule.value, seen, &mut rows);
    }
    persistence(&check.persistence, report, &mut rows);
    rows.extend(check.cpu.map(|rule| cpu(rule, report)));
    rows
}

fn kind(kind: FlowKind) -> &'static str {
    match kind {
        FlowKind::New => "new",
        FlowKind::Established => "established",
    }
}

fn sum(skew: &Skew, causes: &[Cause]) -> Option<Row> {
    let total = skew.theil?.total;
    // A sum of no floating-point numbers is -0.
    let parts = causes.iter().map(|cause| cause.nats).fold(0.0, Add::add);
    let what = format!("causes of the skew, {}", kind(skew.kind));
    let holds = (parts - total).abs() <= ROUNDING;
    Some(Row::new(
        what,
        format!("{total:.6} nats in all"),
        format!("{parts:.6} nats"),
        holds,
    ))
}

fn says(saying: &Saying, findings: &[Finding]) -> Row {
    let Saying {
        code,
        confidence,
        words,
    } = saying;
    let expected: Vec<String> = confidence
        .iter()
        .map(|confidence| confidence.code().to_owned())
        .chain(words.iter().map(|word| format!("'{word}'")))
        .collect();
    let what = format!("finding {}", code.code());
    let Some(finding) = findings.iter().find(|finding| finding.code == *code) else {
        return Row::new(what, expected.join(", "), "not there", false);
    };
    let said = |word: &&String| {
        let text = |text: &String| text.contains(word.as_str());
        text(&finding.sentence) || finding.evidence.iter().any(text)
    };
    let unsaid: Vec<&String> = words.iter().filter(|word| !said(word)).collect();
    let sure = confidence.is_none_or(|confidence| confidence == finding.confidence);
    let got = format!("{}: {}", finding.confidence.code(), finding.sentence);
    Row::new(what, expected.join(", "), got, sure && unsaid.is_empty())
}

fn affinity(check: &Check, report: &ServiceReport, rows: &mut Vec<Row>) {
    let affinity = report.affinity.as_ref();
    rows.extend(check.affinity.map(|expected| {
        let got = affinity.map(|affinity| affinity.code);
        let word = got.map_or_else(unknown, |got| code(&got));
        Row::new("session affinity", code(&expected), word, got == Some(expected))
    }));
    rows.extend(check.affinity_list_limit.map(|expected| {
        let got = affinity.map(|affinity| affinity.breaks.is_some_and(|breaks| breaks.list_limit));
        yes_or_no("broken by the limit of lists", expected, got)
    }));
    let tiers: [(&str, Option<Bound>, Option<Stickiness>); 2] = [
        (
            "pods",
            check.stickiness.pods,
            affinity.and_then(|affinity| affinity.pod_tier),
        ),
        (
            "nodes",
            check.stickiness.nodes,
            affinity.and_then(|affinity| affinity.node_tier),
        ),
    ];
    for (tier, bound, stickiness) in tiers {
        let kappa = stickiness.and_then(|stickiness| stickiness.kappa);
        rows.extend(bound.map(|bound| bounded(format!("stickiness to {tier}"), &bound, value(kappa), "")));
    }
}

fn clients(rule: &ClientsRule, seen: &Observation, rows: &mut Vec<Row>) {
    let clients = seen.report.clients.as_ref();
    let distinct = clients.map(|clients| clients.distinct);
    let effective = clients.and_then(|clients| clients.effective);
    let top = clients.and_then(|clients| clients.top_share).map(|top| Estimate {
        value: top.value * 100.0,
        low: top.low * 100.0,
        high: top.high * 100.0,
    });
    let truth = seen.clients.unwrap_or_default();
    let ClientTruth {
        flows,
        clients: number,
        effective: real_effective,
        top_share: real_top,
    } = truth;
    let figures = [
        ("distinct clients", "", rule.distinct, distinct, number as f64),
        ("effective clients", "", rule.effective, effective, real_effective),
        ("share of ten clients", " %", rule.top_share, top, real_top * 100.0),
    ];
    for (what, unit, bound, figure, truth) in figures {
        rows.extend(bound.map(|bound| bounded(what.to_owned(), &bound, value(figure), unit)));
        if rule.covered {
            rows.push(covered(what, unit, figure, truth));
        }
    }
    rows.extend(rule.sampled.map(|expected| {
        let got = clients.map(|clients| clients.sampling_shift > 0);
        yes_or_no("clients are sampled", expected, got)
    }));
    if rule.exact {
        let words = |clients, flows, missing| format!("{clients} with {flows} flows, {missing} lost");
        let got = clients.map(|clients| (clients.seen, clients.flows, clients.missing));
        let pass = got == Some((number, flows, 0));
        let got = got.map_or_else(unknown, |(clients, flows, missing)| words(clients, flows, missing));
        rows.push(Row::new("clients told one by one", words(number, flows, 0), got, pass));
    }
}

fn covered(what: &str, unit: &str, figure: Option<Estimate>, truth: f64) -> Row {
    let Some(Estimate { value, low, high }) = figure else {
        return Row::new(
            format!("{what} by interval"),
            format!("{truth:.2}{unit}"),
            unknown(),
            false,
        );
    };
    let (low, high) = (value - (value - low) * WIDER, value + (high - value) * WIDER);
    let holds = low - ROUNDING <= truth && truth <= high + ROUNDING;
    Row::new(
        format!("{what} by interval"),
        format!("{truth:.2}{unit}"),
        format!("{low:.2} to {high:.2}{unit}"),
        holds,
    )
}

fn persistence(rule: &PersistenceRule, report: &ServiceReport, rows: &mut Vec<Row>) {
    let persistence = report.persistence.as_ref();
    rows.extend(rule.before_change.map(|bound| {
        let share = persistence.and_then(|persistence| persistence.before_change);
        let what = "established flows from before the change".to_owned();
        bounded(what, &bound, value(share).map(|share| share * 100.0), " %")
    }));
    rows.extend(rule.hours_to_even.map(|expected| {
        let what = "hours until flows are even".to_owned();
        let hours = persistence.and_then(|persistence| persistence.hours_to_even);
        match expected {
            Hours::Bound(bound) => bounded(what, &bound, hours, ""),
            Hours::Unknown => {
                let got = hours.map_or_else(unknown, |hours| format!("{hours:.3}"));
                Row::new(what, unknown(), got, persistence.is_some() && hours.is_none())
            }
        }
    }));
    rows.extend(rule.left_on_gone.map(|expected| {
        let got = persistence.map(|persistence| persistence.left_on_gone);
        Row::new(
            "flows left on pods that are no endpoints",
            expected.get().to_string(),
            got.map_or_else(unknown, |got| got.to_string()),
            got == Some(expected.get()),
        )
    }));
}

/// Each pod's part of the CPU of all against its share of new flows.
fn cpu(rule: CpuRule, report: &ServiceReport) -> Row {
    let within = rule.follows_shares.get();
    let what = "CPU of each pod follows its share of new flows";
    let expected = format!("within {within} points");
    let endpoints = report.endpoints.iter();
    let known: Option<Vec<(&str, f64, f64)>> = endpoints
        .map(|row| Some((row.pod.as_str(), row.load.as_ref()?.cpu_cores?, row.new_share?)))
        .collect();
    let Some(known) = known.filter(|known| !known.is_empty()) else {
        return Row::new(what, expected, unknown(), false);
    };
    let all: f64 = known.iter().map(|(_, cores, _)| cores).sum();
    let parts: Vec<String> = known
        .iter()
        .map(|(pod, cores, share)| format!("{pod} {:.1} % for {:.1} %", cores / all * 100.0, share * 100.0))
        .collect();
    // Without any CPU time the parts are no numbers, and hold no bound.
    let holds = known
        .iter()
        .all(|(_, cores, share)| (cores / all - share).abs() * 100.0 <= within);
    Row::new(what, expected, parts.join(", "), holds)
}

fn value(estimate: Option<Estimate>) -> Option<f64> {
    estimate.map(|estimate| estimate.value)
}

fn yes_or_no(what: &str, expected: bool, got: Option<bool>) -> Row {
    let word = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    Row::new(
        what,
        word(expected),
        got.map_or_else(unknown, word),
        got == Some(expected),
    )
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
