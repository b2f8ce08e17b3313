//! `flowskew-agent top`: a live table of flows by local address and port, on any machine. In, the kernel's counters; out,
//! a table on standard output.

use std::{
    collections::HashMap,
    io::{IsTerminal, Write},
    time::Instant,
};

use comfy_table::{CellAlignment, Table, presets};
use flowskew_agent_ebpf::{Address, LedgerValue};

use crate::{
    config::TopConfig,
    kernel::{Kernel, KernelLosses, Snapshot},
    metrics::address_text,
};

/// Flows of one local address and port, all source classes and cgroups together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Totals {
    opened: u64,
    closed: u64,
    established: i64,
}

type ByPort = HashMap<(Address, u16), Totals>;

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    local: String,
    opened_per_second: f64,
    closed_per_second: f64,
    established: i64,
    opened: u64,
}

/// Runs until Ctrl-C, or for as many tables as asked for.
pub async fn run(config: TopConfig) -> anyhow::Result<()> {
    let mut kernel = Kernel::start(&config.maps, None)?;
    if let Err(error) = kernel.seed() {
        eprintln!("flows that are already open are not shown: {error}");
    }
    let live = std::io::stdout().is_terminal();
    let mut before = totals(&kernel.snapshot()?, config.port);
    let mut taken = Instant::now();
    let mut shown = 0;
    while config.count.is_none_or(|count| shown < count) {
        tokio::select! {
            () = tokio::time::sleep(config.interval) => {}
            _ = tokio::signal::ctrl_c() => break,
        }
        let snapshot = kernel.snapshot()?;
        let now = totals(&snapshot, config.port);
        let text = render(
            &rows(&before, &now, taken.elapsed().as_secs_f64()),
            config.rows,
            snapshot.losses,
        );
        taken = Instant::now();
        before = now;
        shown += 1;
        let clear = if live { "\x1b[2J\x1b[H" } else { "" };
        // A closed pipe, as of `| head`, is an end like Ctrl-C.
        if writeln!(std::io::stdout().lock(), "{clear}{text}").is_err() {
            break;
        }
    }
    Ok(())
}

fn totals(snapshot: &Snapshot, port: Option<u16>) -> ByPort {
    let mut totals = ByPort::new();
    for (key, LedgerValue { classes }) in &snapshot.entries {
        if port.is_some_and(|port| port != key.port) {
            continue;
        }
        let sum = totals.entry((key.address, key.port)).or_default();
        for counts in classes {
            sum.opened += counts.opened;
            sum.closed += counts.closed.iter().sum::<u64>();
            sum.established += counts.established;
        }
    }
    totals
}

/// Busiest first: most established, then most opened in the interval.
fn rows(before: &ByPort, now: &ByPort, seconds: f64) -> Vec<Row> {
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds.max(f64::EPSILON);
    let mut rows: Vec<Row> = now
        .iter()
        .map(|((address, port), now_totals)| {
            let earlier = before.get(&(*address, *port)).copied().unwrap_or_default();
            let text = address_text(address);
            Row {
                local: if text.contains(':') {
                    format!("[{text}]:{port}")
                } else {
                    format!("{text}:{port}")
                },
                opened_per_second: rate(now_totals.opened, earlier.opened),
                closed_per_second: rate(now_totals.closed, earlier.closed),
                established: now_totals.established.max(0),
                opened: now_totals.opened,
            }
        })
        .collect();
    rows.sort_by(|a, b| {
        (b.established.cmp(&a.established))
            .then(b.opened_per_second.total_cmp(&a.opened_per_second))
            .then(a.local.cmp(&b.local))
    });
    rows
}

fn render(rows: &[Row], limit: usize, losses: KernelLosses) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["local address", "opened/s", "closed/s", "established", "opened"]);
    for row in rows.iter().take(limit) {
        table.add_row([
            row.local.clone(),
            format!("{:.1}", row.opened_per_second),
            format!("{:.1}", row.closed_per_second),
            row.established.to_string(),
            row.opened.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = table.to_string();
    if rows.is_empty() {
        text += "\nno TCP flow has arrived yet";
    }
    if rows.len() > limit {
        text += &format!("\n{} more; see --rows", rows.len() - limit);
    }
    if losses.flows_full > 0 || losses.ledger_full > 0 {
        text += &format!(
            "\nlost: {} flows not tracked (raise --max-flows), {} not counted (raise --max-ledger)",
            losses.flows_full, losses.ledger_full
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(last: u8) -> (Address, u16) {
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last], 80)
    }

    #[test]
    fn rates_are_over_the_interval_and_the_busiest_comes_first() {
        let before = ByPort::from([(
            key(1),
            Totals {
                opened: 10,
                closed: 4,
                established: 6,
            },
        )]);
        let now = ByPort::from([
            (
                key(1),
                Totals {
                    opened: 30,
                    closed: 8,
                    established: 22,
                },
            ),
            (
                key(2),
                Totals {
                    opened: 5,
                    closed: 0,
                    established: 50,
                },
            ),
        ]);
        let rows = rows(&before, &now, 2.0);
        assert_eq!(rows[0].local, "10.0.0.2:80");
        assert_eq!(
            (
                rows[1].opened_per_second,
                rows[1].closed_per_second,
                rows[1].established
            ),
            (10.0, 2.0, 22)
        );
        let text = render(
            &rows,
            1,
            KernelLosses {
                flows_full: 3,
                ..KernelLosses::default()
            },
        );
        assert!(
            text.contains("10.0.0.2:80") && !text.contains("10.0.0.1:80") && text.contains("1 more"),
            "{text}"
        );
        assert!(text.contains("3 flows not tracked"), "{text}");
    }
}
