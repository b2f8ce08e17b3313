//! Figures as tables: in, results; out, Markdown, which a terminal shows as well.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

use crate::{
    contender::Contender,
    cost,
    footprint::LOADS,
    rate,
    results::{Goal, Results},
    statistics::Figure,
};

/// All tables.
pub fn all(results: &Results, goals: &[Goal]) -> String {
    [
        ("Goals", goals_table(goals)),
        ("Time in the kernel's programs, nanoseconds", cost_table(results)),
        ("The agent's programs one by one, per flow", programs_table(results)),
        ("Connections per second", rate_table(results)),
        ("Processor time of the agent, milliseconds", work_table(results)),
        ("Memory of the agent", memory_table(results)),
    ]
    .map(|(title, table)| format!("\n## {title}\n\n{table}\n"))
    .concat()
}

fn goals_table(goals: &[Goal]) -> Table {
    let mut table = new(&["figure", "goal", "measured", ""]);
    for goal in goals {
        let bound = if goal.at_most { "at most" } else { "at least" };
        let verdict = match (goal.met, goal.figure) {
            (Some(met), Some(figure)) => {
                let word = if met { "pass" } else { "FAIL" };
                let reaches_over = figure.low < goal.limit && goal.limit < figure.high;
                format!("{word}{}", if reaches_over { ", but too noisy to be sure" } else { "" })
            }
            (_, Some(_)) => "too short to say".into(),
            (_, None) => "NOT MEASURED".into(),
        };
        table.add_row([
            goal.what.clone(),
            format!("{bound} {}", goal.limit),
            goal.figure.map_or_else(|| "-".into(), ratio),
            verdict,
        ]);
    }
    table
}

fn cost_table(results: &Results) -> Table {
    let mut table = new(&["", "open", "close", "flow", "one run", "runs per flow"]);
    for contender in cost::CONTENDERS {
        let row = match results.cost_of(contender) {
            Some(cost) => [cost.open, cost.close, cost.flow, cost.event]
                .map(whole)
                .into_iter()
                .chain([format!("{:.1}", cost.events.median)])
                .collect(),
            None => vec![not_measured(&results.cost.failed, contender)],
        };
        table.add_row([contender.label().to_owned()].into_iter().chain(row));
    }
    align(&mut table, 1);
    table
}

fn programs_table(results: &Results) -> Table {
    let mut table = new(&["", "program", "runs", "nanoseconds"]);
    for contender in LOADS {
        // Those that take up open flows do not run by themselves.
        for (name, runs, ns) in results
            .programs_of(contender)
            .into_iter()
            .filter(|(_, runs, _)| *runs > 0.0)
        {
            table.add_row([
                contender.label().to_owned(),
                name,
                format!("{runs:.2}"),
                format!("{ns:.0}"),
            ]);
        }
    }
    align(&mut table, 2);
    table
}

fn rate_table(results: &Results) -> Table {
    let mut table = new(&[
        "with",
        "per second",
        "to those without",
        "processor time of a connection, to that without",
    ]);
    for contender in rate::CONTENDERS {
        let row = match results.rate_of(contender) {
            Some(rate) => vec![whole(rate.per_second), ratio(rate.ratio), ratio(rate.cpu_ratio)],
            None => vec![not_measured(&results.rate.failed, contender)],
        };
        table.add_row([contender.label().to_owned()].into_iter().chain(row));
    }
    align(&mut table, 1);
    table
}

fn work_table(results: &Results) -> Table {
    let mut table = new(&[
        "",
        "process, per 10,000 connections",
        "kernel programs, per 10,000 connections",
        "process, per second without connections",
        "measured at connections per second",
    ]);
    for (contender, work) in &results.agent.work {
        table.add_row([
            contender.label().to_owned(),
            format!("{:.2}", work.process_ms),
            format!("{:.2}", work.programs_ms),
            format!("{:.2}", work.idle_ms),
            format!("{:.0}", work.connections as f64 / work.seconds),
        ]);
    }
    align(&mut table, 1);
    table
}

fn memory_table(results: &Results) -> Table {
    let mut table = new(&[
        "open flows",
        "room for",
        "FLOWS",
        "of it per flow",
        "all maps",
        "process resident (anonymous, peak)",
        "machine's available memory went down by",
    ]);
    for memory in &results.agent.memory {
        let left = match memory.flows_at_end {
            left if left < memory.flows => format!(" ({} left by the agent)", thousands(left.into())),
            _ => String::new(),
        };
        table.add_row([
            thousands(memory.flows.into()) + &left,
            thousands(memory.max_flows.into()),
            megabytes(memory.flows_bytes),
            memory
                .per_flow()
                .map_or_else(|| "-".into(), |bytes| format!("{bytes:.0} bytes")),
            megabytes(memory.all_maps()),
            format!(
                "{} ({}, {})",
                megabytes(memory.resident),
                megabytes(memory.anonymous),
                megabytes(memory.peak_resident)
            ),
            format!("{:.1} MB", memory.machine as f64 / 1e6),
        ]);
    }
    align(&mut table, 0);
    table
}

fn new(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header);
    table
}

/// Numbers to the right, from this column on.
fn align(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn not_measured(failed: &BTreeMap<Contender, String>, contender: Contender) -> String {
    let reason = failed.get(&contender).map_or("no round was complete", String::as_str);
    format!("NOT MEASURED: {}", reason.replace(['\n', '|'], " "))
}

fn whole(figure: Figure) -> String {
    format!("{:.0} ({:.0} to {:.0})", figure.median, figure.low, figure.high)
}

fn ratio(figure: Figure) -> String {
    format!("{:.3} ({:.3} to {:.3})", figure.median, figure.low, figure.high)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}
