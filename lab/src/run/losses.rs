//! What was lost against what may be. A rule and an observation enter; rows leave. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::evaluate::Row;
use super::observe::Observation;
use crate::scenario::losses::{LossBound, LossKind, LossRule, These};

/// A figure that is no loss in itself: the scenario ended those pods.
const NO_LOSS: &str = "flows_on_gone_endpoints";

/// Rows for the losses of agents and reports.
pub fn rows(rule: &LossRule, seen: &Observation) -> Vec<Row> {
    match rule {
        LossRule::Ignore => Vec::new(),
        LossRule::None => vec![none("losses", &others(seen, &BTreeSet::new()))],
        LossRule::These(These(kinds)) => {
            let named = kinds.keys().map(|kind| kind.word()).collect();
            let each = kinds
                .iter()
                .flat_map(|(&kind, bound)| [by_agents(seen, kind, bound), by_reports(seen, kind)]);
            each.chain([none("other losses", &others(seen, &named))]).collect()
        }
    }
}

/// A row for things of which there must be none.
pub fn none(what: &str, found: &[String]) -> Row {
    let got = if found.is_empty() {
        "none".to_owned()
    } else {
        found.join(", ")
    };
    Row::new(what, "none", got, found.is_empty())
}

fn count(kinds: Option<&BTreeMap<String, u64>>, kind: &str) -> u64 {
    kinds.and_then(|kinds| kinds.get(kind)).copied().unwrap_or(0)
}

/// The agents that run.
fn nodes(seen: &Observation) -> BTreeSet<&String> {
    seen.counted().map(|pod| &pod.node).collect()
}

/// Each agent has lost as much as it must.
fn by_agents(seen: &Observation, kind: LossKind, bound: &LossBound) -> Row {
    let word = kind.word();
    let (mut expected, mut got, mut pass) = (Vec::new(), Vec::new(), true);
    for node in nodes(seen) {
        let lost = count(seen.agent_losses.get(node), word);
        got.push(lost.to_string());
        match bound {
            LossBound::Bound(bound) => {
                expected.push(bound.to_string());
                // Counts are far below 2^53.
                pass &= bound.holds(lost as f64);
            }
            LossBound::Exact => {
                let due = seen.losses_due.get(node).and_then(|kinds| kinds.get(word));
                expected.push(due.map_or("unknown".to_owned(), u64::to_string));
                pass &= due == Some(&lost);
            }
        }
    }
    expected.dedup();
    Row::new(
        format!("{word}, by the agents"),
        expected.join(", "),
        got.join(", "),
        pass,
    )
}

/// Each report tells what the agents have lost together.
fn by_reports(seen: &Observation, kind: LossKind) -> Row {
    let word = kind.word();
    let sum: u64 = nodes(seen)
        .into_iter()
        .map(|node| count(seen.agent_losses.get(node), word))
        .sum();
    let told: Vec<u64> = seen
        .report_losses
        .values()
        .map(|kinds| count(Some(kinds), word))
        .collect();
    let got = told.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    Row::new(
        format!("{word}, in the report"),
        sum.to_string(),
        got,
        told.iter().all(|told| *told == sum),
    )
}

/// Whatever agents and reports say that they miss, but of some kinds. The silence of an agent that the scenario killed is
/// none.
fn others(seen: &Observation, but: &BTreeSet<&str>) -> Vec<String> {
    let counted = |kind: &str| !but.contains(kind) && kind != NO_LOSS;
    let kinds = |kinds: &BTreeMap<String, u64>, suffix: &str| -> Vec<String> {
        let kinds = kinds.iter().filter(|(kind, count)| counted(kind) && **count > 0);
        kinds.map(|(kind, count)| format!("{kind} {count}{suffix}")).collect()
    };
    let reported: BTreeSet<String> = seen
        .report_losses
        .values()
        .flat_map(|losses| kinds(losses, ""))
        .collect();
    let silent = seen.report.losses.silent_nodes.iter();
    let silent = silent
        .filter(|node| !seen.killed.contains(*node))
        .map(|node| format!("{node} is silent"));
    let by_agents = seen
        .agent_losses
        .iter()
        .flat_map(|(node, losses)| kinds(losses, &format!(" at the agent of {node}")));
    reported.into_iter().chain(silent).chain(by_agents).collect()
}
