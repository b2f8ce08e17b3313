//! The only place that knows both the wire format and the plain types. Everything that arrives is checked here, and
//! bounded: an agent may be broken, or no agent.

mod activity;
mod answer;
mod entry;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use flowskew_proto::v1;

use activity::activity;
pub use answer::{ack, assignment};
use entry::{entry, place};

use crate::ledger::{Entry, NodeReport, PodLoad, PodUid, Unserved, pod_uid};
use crate::node::{Degradation, DoorCoverage, NodeLosses, Origin};
use crate::report::UnservedReason;

/// Longest name of a Node (RFC 1123 subdomain).
const MAX_NODE_NAME: usize = 253;
/// Longest text for people that is kept of an agent.
const MAX_TEXT: usize = 128;
/// Degradations of one agent that are kept.
const MAX_DEGRADATIONS: usize = 16;
/// Longest sentence of a degradation that is kept.
const MAX_SENTENCE: usize = 512;

/// Who speaks on a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// Name of the Node.
    pub node: String,
    /// Version of the agent.
    pub agent_version: String,
    /// Version of the records that the agent shares with the kernel programs.
    pub abi_version: u32,
    /// Kernel it runs on.
    pub kernel_release: String,
    /// How the counters that follow began.
    pub origin: Origin,
}

/// Checks a greeting.
///
/// # Errors
/// A sentence for the agent's log.
pub fn hello(hello: v1::Hello) -> Result<Hello, String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    if hello.node.is_empty() || hello.node.len() > MAX_NODE_NAME || !hello.node.chars().all(is_name) {
        let shown: String = hello.node.chars().take(MAX_TEXT).collect();
        return Err(format!(
            "\"{}\" is not the name of a Node: start the agent with --node NAME",
            shown.escape_debug()
        ));
    }
    Ok(Hello {
        agent_version: text(&hello.agent_version, MAX_TEXT),
        abi_version: hello.abi_version,
        kernel_release: text(&hello.kernel_release, MAX_TEXT),
        origin: match hello.origin() {
            v1::Origin::Unspecified => Origin::Unknown,
            v1::Origin::Fresh => Origin::Fresh,
            v1::Origin::Adopted => Origin::Adopted,
            v1::Origin::Upgraded => Origin::Upgraded,
            v1::Origin::Migrated => Origin::Migrated,
        },
        node: hello.node,
    })
}

/// Checks a report. Entries that make no sense are left out and counted.
///
/// # Errors
/// When the report as a whole makes no sense: a sentence for the agent's log.
pub fn report(mut report: v1::Report) -> Result<NodeReport, String> {
    if report.sequence == 0 {
        return Err(format!(
            "a report of epoch {} has sequence 0; the first is 1",
            report.epoch
        ));
    }
    // Those of the kubelet's probes and of the cluster's own pods say nothing of the balancer.
    report
        .unserved
        .retain(|found| found.source_class() == v1::SourceClass::External);
    let total = report.entries.len() + report.pods.len() + report.unserved.len();
    let entries = once(report.entries.into_iter().filter_map(entry), |entry: &Entry| entry.key);
    let pods = once(report.pods.iter().filter_map(pod), |(uid, _)| uid.clone());
    let unserved = once(report.unserved.iter().filter_map(unserved), |found: &Unserved| {
        (found.at, found.reason)
    });
    let (activity, invalid_activity) = activity(report.activity);
    let coverage = report.door_coverage.unwrap_or_default();
    Ok(NodeReport {
        epoch: report.epoch,
        sequence: report.sequence,
        taken_at_ms: report.taken_at_ms,
        sent_at_ms: report.sent_at_ms,
        epoch_started_at_ms: report.epoch_started_at_ms,
        invalid_entries: (total - entries.len() - pods.len() - unserved.len()) as u64,
        entries,
        losses: losses(&report.losses.unwrap_or_default()),
        pods,
        unserved,
        door_coverage: DoorCoverage {
            found: coverage.found,
            not_found: coverage.not_found,
            skipped: coverage.skipped,
        },
        degradations: degradations(&report.degradations),
        activity,
        invalid_activity,
    })
}

/// The first of each key.
fn once<T, K: Eq + std::hash::Hash>(all: impl Iterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = HashSet::new();
    all.filter(|item| seen.insert(key(item))).collect()
}

fn losses(losses: &v1::Losses) -> NodeLosses {
    NodeLosses {
        ring_full: losses.ring_full,
        flows_full: losses.flows_full,
        ledger_full: losses.ledger_full,
        orphan_close: losses.orphan_close,
        orphan_flow: losses.orphan_flow,
        reports_dropped: losses.reports_dropped,
        recursion: losses.recursion,
        corrected: losses.corrected,
        unserved_full: losses.unserved_full,
        udp_flows_full: losses.udp_flows_full,
        activity_dropped: losses.activity_dropped,
        entries_dropped: 0,
    }
}

fn pod(load: &v1::PodLoad) -> Option<(PodUid, PodLoad)> {
    let uid = pod_uid(&load.pod_uid)?;
    let load = PodLoad {
        cpu_usage_us: load.cpu_usage_us,
        cpu_throttled_us: load.cpu_throttled_us,
        listen_overflows: load.listen_overflows,
        listen_drops: load.listen_drops,
        syn_cookies: load.syn_cookies_sent,
        shares_network: load.shares_network,
    };
    Some((uid, load))
}

fn unserved(found: &v1::Unserved) -> Option<Unserved> {
    Some(Unserved {
        at: place(&found.address, found.port, found.protocol)?,
        reason: match found.reason() {
            v1::UnservedReason::Dropped => UnservedReason::Dropped,
            v1::UnservedReason::Refused => UnservedReason::Refused,
            v1::UnservedReason::Unspecified => return None,
        },
        attempts: found.attempts,
    })
}

fn degradations(degradations: &[v1::Degradation]) -> Vec<Degradation> {
    let is_code = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let sane = degradations
        .iter()
        .filter(|found| !found.code.is_empty() && found.code.len() <= MAX_TEXT && found.code.chars().all(is_code));
    let mut kept: Vec<Degradation> = sane
        .take(MAX_DEGRADATIONS)
        .map(|found| Degradation {
            code: found.code.clone(),
            sentence: text(&found.sentence, MAX_SENTENCE),
        })
        .collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// Text for people: one line, and not too long.
fn text(text: &str, longest: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(longest).collect()
}
