//! A report enters; one screen of plain text leaves.

use std::collections::HashSet;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::clients;
use super::evidence::{self, front_doors, gone, unserved};
use super::number::{count, decimal, percent, plural, span};
use crate::report::{EndpointRow, Finding, NodeRow, ServiceReport, Skew};

/// More endpoints than this do not fit a screen: then the highest and the lowest shares are shown. Lines about anything
/// else take room from them.
const MAX_ROWS: usize = 40;
const MIN_ROWS: usize = 20;
const MAX_NODES: usize = 12;
/// Columns of numbers begin here.
const FIRST_NUMBER: usize = 2;
const HEADER: [&str; 8] = [
    "POD",
    "NODE",
    "NEW",
    "SHARE",
    "EXPECTED",
    "IDEAL",
    "ESTABLISHED",
    "SHARE",
];

/// Renders a report for people: who it is about, each pod's shares, the nodes, the parts of the skew, the verdict, what
/// else is known, the headline, and what is missing.
pub fn render_table(report: &ServiceReport) -> String {
    let beside: Vec<String> = [
        clients::lines(report),
        front_doors(report),
        gone(report),
        unserved(report),
    ]
    .concat();
    let missing: Vec<String> = findings(report)
        .into_iter()
        .chain(report.notes.iter().map(|note| format!("Note: {note}")))
        .chain(evidence::losses(&report.losses))
        .collect();
    let mut sections = vec![header(report)];
    if !report.endpoints.is_empty() {
        // The headline and the first line about losses are always there.
        let taken = beside.len() + missing.len() - 2;
        sections.push(endpoints(
            &report.endpoints,
            MAX_ROWS.saturating_sub(taken).max(MIN_ROWS),
        ));
        sections.push(format!("{}\n{}", nodes(&report.nodes), skews(report)));
    }
    if !beside.is_empty() {
        sections.push(beside.join("\n"));
    }
    sections.push(missing.join("\n"));
    let mut text = sections.join("\n\n");
    text.push('\n');
    text
}

fn header(report: &ServiceReport) -> String {
    let name = if report.port_name.is_empty() {
        String::new()
    } else {
        format!(" ({})", report.port_name)
    };
    format!(
        "Service {}/{}, port {}/{}{name}, externalTrafficPolicy {}, sessionAffinity {}\n\
         Window {} to {}: {}, {} now, {} on {}",
        report.namespace,
        report.service,
        report.port,
        report.protocol,
        report.external_traffic_policy,
        report.session_affinity,
        span(report.window.to_ms.saturating_sub(report.window.from_ms)),
        time(report.window.to_ms),
        plural(report.new.flows, "new flow"),
        format_args!("{} established", count(report.established.flows)),
        plural(report.endpoints.len() as u64, "ready pod"),
        plural(report.nodes.len() as u64, "node"),
    )
}

fn endpoints(rows: &[EndpointRow], room: usize) -> String {
    let mut table = Table::new();
    // Columns of which nothing is known, or that have nothing to say, are not shown.
    let cpu = rows.iter().any(|row| evidence::cpu(row) != "-");
    let trouble = rows.iter().any(|row| !evidence::trouble(row).is_empty());
    let clients = rows.iter().any(|row| row.clients.is_some());
    let header = HEADER.iter().copied();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(
            header
                .chain(clients.then_some("CLIENTS"))
                .chain(cpu.then_some("CPU"))
                .chain(trouble.then_some("TROUBLE")),
        );
    let shown = shown(rows, room);
    for (_, row) in rows.iter().enumerate().filter(|(position, _)| shown.contains(position)) {
        let figures = [
            row.pod.clone(),
            row.node.clone(),
            count(row.new),
            percent(row.new_share),
            percent(Some(row.expected_share)),
            percent(Some(row.ideal_share)),
            count(row.established),
            percent(row.established_share),
        ];
        let distinct = |row: &EndpointRow| {
            row.clients
                .map_or_else(|| "-".to_owned(), |clients| count(clients.value.round() as u64))
        };
        let cpu = cpu.then(|| evidence::cpu(row));
        table.add_row(
            figures
                .into_iter()
                .chain(clients.then(|| distinct(row)))
                .chain(cpu)
                .chain(trouble.then(|| evidence::trouble(row))),
        );
    }
    let numbers = HEADER.len() + usize::from(clients) + usize::from(cpu) - FIRST_NUMBER;
    for column in table.column_iter_mut().skip(FIRST_NUMBER).take(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    text.truncate(text.trim_end().len());
    if shown.len() < rows.len() {
        let left_out = plural((rows.len() - shown.len()) as u64, "pod");
        // Writing to a string does not fail.
        let _written = write!(
            text,
            "\n ({left_out} with shares between these left out; -o json has all)"
        );
    }
    text
}

/// Positions of the rows to show.
fn shown(rows: &[EndpointRow], room: usize) -> HashSet<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    if order.len() > room {
        order.sort_by_key(|&position| (rows[position].new, rows[position].established));
        order.drain(room / 2..rows.len() - room.div_ceil(2));
    }
    order.into_iter().collect()
}

fn nodes(rows: &[NodeRow]) -> String {
    let node = |row: &NodeRow| {
        let silent = if row.agent_reporting { "" } else { ", agent silent" };
        format!(
            "{} {} ({}{silent})",
            row.node,
            percent(row.new_share),
            plural(row.endpoints, "pod")
        )
    };
    let mut parts: Vec<String> = rows.iter().take(MAX_NODES).map(node).collect();
    if rows.len() > MAX_NODES {
        parts.push(format!("and {} more", rows.len() - MAX_NODES));
    }
    format!("Shares of new flows by node: {}", parts.join(", "))
}

fn skews(report: &ServiceReport) -> String {
    let mut text = String::new();
    for (name, skew) in [("New flows", &report.new), ("Established flows", &report.established)] {
        text.push_str(&self::skew(name, skew));
        if skew.flows > 0
            && let Some(causes) = clients::causes(report, skew.kind)
        {
            text.push_str(&format!("  {causes}\n"));
        }
    }
    if let Some(windows) = clients::windows(report) {
        text.push_str(&format!("{windows}\n"));
    }
    format!(
        "{text}Load balancer: {}, {}",
        report.balancer.model.code(),
        report.balancer.reason
    )
}

fn skew(name: &str, skew: &Skew) -> String {
    let Some(theil) = skew.theil else {
        return format!("{name}: none\n");
    };
    let chance = match skew.test {
        Some(test) if skew.significant && test.p_value < 1e-4 => "more than chance, p < 0.0001".to_owned(),
        Some(test) if skew.significant => format!("more than chance, p {:.4}", test.p_value),
        Some(test) => format!("no more than chance, p {:.4}", test.p_value),
        None => "not tested".to_owned(),
    };
    format!(
        "{name}: peak ratio {} (chance alone: up to {}), max/min {}, Jain {}; {chance}\n  \
         Theil {:.4} = load balancer {:.4} + placement {:.4} + within node {:.4}\n",
        decimal(skew.peak_ratio, 3),
        decimal(skew.noise_floor, 3),
        decimal(skew.max_min, 2),
        decimal(skew.jain, 3),
        theil.total,
        theil.load_balancer,
        theil.placement,
        theil.within_node,
    )
}

/// What is found, each finding with its evidence; or the headline, when it says something else.
fn findings(report: &ServiceReport) -> Vec<String> {
    let told = |finding: &&Finding| report.headline.starts_with(&finding.sentence);
    let mut lines = Vec::new();
    if report.findings.first().is_none_or(|first| !told(&first)) {
        lines.push(report.headline.clone());
    }
    for (position, finding) in report.findings.iter().enumerate() {
        if lines.is_empty() {
            lines.push(finding.sentence.clone());
        } else if position > 0 {
            lines.push(format!("Also: {}", finding.sentence));
        } else {
            // The headline stands for it.
            continue;
        }
        lines.extend(finding.evidence.iter().map(|evidence| format!("  - {evidence}")));
    }
    lines
}

fn time(ms: u64) -> String {
    i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .map_or_else(
            || ms.to_string(),
            |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        )
}
