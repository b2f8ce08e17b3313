//! What the lab compares of the aggregator's report about a Service. A report enters; counts of pods, attempts and losses
//! leave.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use flowskew_aggregator::report::{ServiceReport, UnservedReason};
use serde_json::Value;

use super::observe::Flows;
use crate::apiserver::objects::PodView;

/// Reads the answer of the aggregator.
///
/// # Errors
/// It is not a report.
pub fn parse(text: &str) -> Result<ServiceReport> {
    serde_json::from_str(text).context("the aggregator's report has another shape than the lab knows")
}

/// The flows of a pod that is an endpoint.
pub fn ready(report: &ServiceReport, view: &PodView) -> Option<Flows> {
    let row = report.endpoints.iter().find(|row| row.pod_uid == view.uid)?;
    let placed = row.address.parse() == Ok(view.ip) && row.port == view.port && row.pod == view.name;
    placed.then_some(Flows {
        opened: row.opened_total,
        closed: row.closed_total,
        established: row.established,
    })
}

/// The flows of a pod that is an endpoint no more.
pub fn gone(report: &ServiceReport, view: &PodView) -> Option<Flows> {
    let row = report.gone_endpoints.iter().find(|row| row.pod_uid == view.uid)?;
    Some(Flows {
        opened: row.opened_total,
        closed: row.closed_total,
        established: row.established,
    })
}

/// Attempts that reached no pod, by node, for one reason.
pub fn unserved(report: &ServiceReport, reason: UnservedReason) -> BTreeMap<String, u64> {
    let mut nodes = BTreeMap::new();
    for row in report.unserved.iter().filter(|row| row.reason == reason) {
        *nodes.entry(row.node.clone()).or_default() += row.attempts;
    }
    nodes
}

/// The losses that are not 0, whatever kinds there are: one that the lab does not know must not go unseen.
///
/// # Errors
/// Never for a report that was read.
pub fn losses(report: &ServiceReport) -> Result<BTreeMap<String, u64>> {
    let losses = serde_json::to_value(&report.losses).context("the losses of a report")?;
    let kinds = losses.as_object().into_iter().flatten();
    let count = |count: &Value| count.as_u64().filter(|count| *count > 0);
    Ok(kinds
        .filter_map(|(kind, value)| Some((kind.clone(), count(value)?)))
        .collect())
}
