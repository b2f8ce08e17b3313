//! The only place that knows both the wire format and the plain types. Everything that arrives is checked here.

use std::collections::HashSet;
use std::net::Ipv6Addr;

use flowskew_proto::v1;

use crate::assignment::Assignment;
use crate::flow::{AgentLosses, ByClass, CloseCause, Counts, EndpointKey, Protocol, SourceClass};
use crate::ledger::{Entry, LedgerKey, NodeReport};

/// Longest name of a Node (RFC 1123 subdomain).
const MAX_NODE_NAME: usize = 253;
/// Longest text for people that is kept of an agent.
const MAX_TEXT: usize = 128;

/// Who speaks on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Name of the Node.
    pub node: String,
    /// Version of the agent.
    pub agent_version: String,
    /// Kernel it runs on.
    pub kernel_release: String,
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
    let text = |text: String| text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
    Ok(Hello {
        node: hello.node,
        agent_version: text(hello.agent_version),
        kernel_release: text(hello.kernel_release),
    })
}

/// Checks a report. Entries that make no sense are left out and counted.
///
/// # Errors
/// When the report as a whole makes no sense: a sentence for the agent's log.
pub fn report(report: v1::Report) -> Result<NodeReport, String> {
    if report.sequence == 0 {
        return Err(format!(
            "a report of epoch {} has sequence 0; the first is 1",
            report.epoch
        ));
    }
    let total = report.entries.len();
    let mut seen = HashSet::with_capacity(total);
    let entries: Vec<Entry> = report
        .entries
        .into_iter()
        .filter_map(entry)
        .filter(|entry| seen.insert(entry.key))
        .collect();
    let losses = report.losses.unwrap_or_default();
    Ok(NodeReport {
        epoch: report.epoch,
        sequence: report.sequence,
        taken_at_ms: report.taken_at_ms,
        sent_at_ms: report.sent_at_ms,
        invalid_entries: (total - entries.len()) as u64,
        entries,
        losses: AgentLosses {
            ring_full: losses.ring_full,
            flows_full: losses.flows_full,
            ledger_full: losses.ledger_full,
            orphan_close: losses.orphan_close,
            orphan_flow: losses.orphan_flow,
            reports_dropped: losses.reports_dropped,
        },
    })
}

fn entry(entry: v1::LedgerEntry) -> Option<Entry> {
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(entry.address.as_slice()).ok()?);
    let port = u16::try_from(entry.port).ok().filter(|&port| port != 0)?;
    let protocol = match v1::Protocol::try_from(entry.protocol).ok()? {
        v1::Protocol::Tcp => Protocol::Tcp,
        v1::Protocol::Udp => Protocol::Udp,
        v1::Protocol::Unspecified => return None,
    };
    let mut classes = ByClass::<Counts>::default();
    for counts in entry.classes {
        // A class that a newer agent knows is one that we cannot tell.
        let class = match v1::SourceClass::try_from(counts.source_class) {
            Ok(v1::SourceClass::External) => SourceClass::External,
            Ok(v1::SourceClass::Pod) => SourceClass::Pod,
            Ok(v1::SourceClass::Node) => SourceClass::Node,
            Ok(v1::SourceClass::Unspecified) | Err(_) => SourceClass::Unclassified,
        };
        let mut plain = Counts {
            opened: counts.opened,
            established: counts.established,
            seeded: counts.seeded,
            ..Default::default()
        };
        for closed in counts.closed {
            let cause = match v1::CloseCause::try_from(closed.cause) {
                Ok(v1::CloseCause::ClientFin) => CloseCause::ClientFin,
                Ok(v1::CloseCause::ServerFin) => CloseCause::ServerFin,
                Ok(v1::CloseCause::ClientRst) => CloseCause::ClientRst,
                Ok(v1::CloseCause::ServerRst) => CloseCause::ServerRst,
                Ok(v1::CloseCause::Timeout) => CloseCause::Timeout,
                Ok(v1::CloseCause::Unspecified) | Err(_) => CloseCause::Other,
            };
            let sum = &mut plain.closed[cause.index()];
            *sum = sum.saturating_add(closed.count);
        }
        classes[class.index()].add(&plain);
    }
    Some(Entry {
        key: LedgerKey {
            endpoint: EndpointKey {
                address,
                port,
                protocol,
            },
            cgroup_id: entry.cgroup_id,
        },
        classes,
    })
}

/// Acknowledges a report.
pub fn ack(epoch: u64, sequence: u64) -> v1::AggregatorMessage {
    message(v1::aggregator_message::Message::Ack(v1::Ack { epoch, sequence }))
}

/// Sends an assignment.
pub fn assignment(assignment: &Assignment) -> v1::AggregatorMessage {
    let endpoints = assignment.endpoints.iter().map(|key| v1::AssignedEndpoint {
        address: key.address.octets().to_vec(),
        port: key.port.into(),
        protocol: match key.protocol {
            Protocol::Tcp => v1::Protocol::Tcp,
            Protocol::Udp => v1::Protocol::Udp,
        }
        .into(),
    });
    let prefixes = assignment.prefixes.iter().map(|prefix| v1::ClassPrefix {
        address: prefix.network.addr().octets().to_vec(),
        prefix_length: prefix.network.prefix_len().into(),
        source_class: match prefix.class {
            SourceClass::External => v1::SourceClass::External,
            SourceClass::Pod => v1::SourceClass::Pod,
            SourceClass::Node => v1::SourceClass::Node,
            SourceClass::Unclassified => v1::SourceClass::Unspecified,
        }
        .into(),
    });
    message(v1::aggregator_message::Message::Assignment(v1::Assignment {
        version: assignment.version,
        endpoints: endpoints.collect(),
        prefixes: prefixes.collect(),
        report_interval_ms: assignment.report_interval_ms,
        ..Default::default()
    }))
}

fn message(message: v1::aggregator_message::Message) -> v1::AggregatorMessage {
    v1::AggregatorMessage { message: Some(message) }
}
