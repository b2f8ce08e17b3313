//! Results for people. In: a report. Out: text for the terminal, with the output of what failed; the page for docs/.

use std::fmt::Write;

use super::event::Outcome;
use super::init::CHECK;
use super::table::{Cell, Column, Report, name};

/// Lines of a console that are shown when something failed.
const CONSOLE_LINES: usize = 30;

impl Report {
    /// The table and, below, all that is not simply well.
    pub fn text(&self) -> String {
        let mut text = self.failures();
        text += &grid(&self.results());
        for (title, lines) in self.remarks() {
            text += &format!("\n{title}:\n");
            for line in lines {
                text += &format!("- {line}\n");
            }
        }
        text
    }

    /// The page.
    pub fn markdown(&self) -> String {
        let mut text = HEAD.to_owned();
        text += &grid(&self.machines());
        text += "\n## Results\n\n";
        text += &grid(&self.results());
        for (title, lines) in self.remarks() {
            text += &format!("\n## {title}\n\n");
            for line in lines {
                text += &format!("- {line}\n");
            }
        }
        text += "\n## What `flowskew-agent check` says\n";
        for column in self.columns.iter().flatten() {
            let check = column.run.tests.iter().find(|test| test.name == CHECK);
            let output: String = check
                .iter()
                .flat_map(|test| &test.output)
                .map(|line| format!("{}\n", line.trim_end()))
                .collect();
            text += &format!("\nOn {}:\n\n```text\n{output}```\n", column.kernel.name);
        }
        text
    }

    fn machines(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["kernel", "Debian", "package", "boot", "with all tests"])];
        for column in self.columns.iter().flatten() {
            let Column { kernel, version, run } = column;
            rows.push(vec![
                kernel.name.to_owned(),
                kernel.suite.to_owned(),
                version.clone(),
                format!("{:.0} s", run.boot),
                format!("{:.0} s", run.total),
            ]);
        }
        rows
    }

    fn results(&self) -> Vec<Vec<String>> {
        let mut head = row(["test"]);
        head.extend(self.columns.iter().map(|column| name(column).to_owned()));
        let mut rows = vec![head];
        for test in self.tests() {
            let mut cells = vec![test.to_owned()];
            cells.extend(
                self.columns
                    .iter()
                    .map(|column| word(&self.cell(column, test)).to_owned()),
            );
            rows.push(cells);
        }
        rows
    }

    /// Titles, and what is to be said below them. Titles without anything are left out.
    fn remarks(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut all = [
            ("Limitations", Vec::new()),
            ("Skipped", Vec::new()),
            ("Declared as limitations, but they pass", Vec::new()),
            ("Failed", Vec::new()),
            ("Not checked", Vec::new()),
            ("What the kernels' logs complain about", Vec::new()),
        ];
        for (test, kernel, cell) in self.cells() {
            let (place, reason) = match cell {
                Cell::Passed | Cell::NotChecked => continue,
                Cell::Limited(limitation) => (0, limitation.reason.to_owned()),
                Cell::Skipped(reason) => (1, reason),
                Cell::Surprising(limitation) => (2, limitation.reason.to_owned()),
                Cell::Failed(how) => (3, how),
            };
            all[place].1.push(format!("{kernel}, {test}: {reason}"));
        }
        for column in &self.columns {
            match column {
                Err((kernel, why)) => all[4].1.push(format!("{}: {why}", kernel.name)),
                Ok(column) => {
                    let complaints = column.run.kernel_complaints();
                    let lines = complaints
                        .iter()
                        .map(|line| format!("{}: `{line}`", column.kernel.name));
                    all[5].1.extend(lines);
                }
            }
        }
        all.into_iter().filter(|(_, lines)| !lines.is_empty()).collect()
    }

    /// The output of what failed, and the end of the consoles of machines that broke.
    fn failures(&self) -> String {
        let mut text = String::new();
        for column in self.columns.iter().flatten() {
            let Column { kernel, run, .. } = column;
            let mut failed = run.broken.is_some();
            for test in &run.tests {
                if let Some(Outcome::Failed(how)) = &test.outcome {
                    failed = true;
                    text += &format!("---- kernel {}, {}: {how}\n", kernel.name, test.name);
                    for line in &test.output {
                        text += &format!("{}\n", line.trim_end());
                    }
                }
            }
            if failed {
                text += &format!(
                    "---- kernel {}, end of {}\n{}\n\n",
                    kernel.name,
                    run.console.display(),
                    run.console_tail(CONSOLE_LINES)
                );
            }
        }
        text
    }
}

const HEAD: &str = "<!-- Written by `cargo xtask vm-test --write-docs`; do not edit. -->\n\
# Kernels\n\n\
The agent's tests of its kernel programs, on Debian's kernels for virtual machines, oldest to newest. `cargo xtask vm-test`\n\
boots each in QEMU with two emulated processors and 1 GiB of memory; it needs neither root nor hardware that helps, once the\n\
programs that it needs are installed (`apt-get` does that as root when the command runs first). `--kernel 6.1` picks a kernel,\n\
`--only NAME` picks tests, `--write-docs` writes this page. A test that is *skipped* cannot run on that kernel; one that is\n\
*limited* fails there, and we know why: the reasons are below. The times are those of one run on two cores.\n\n";

fn word(cell: &Cell) -> &'static str {
    match cell {
        Cell::Passed => "ok",
        Cell::Surprising(_) => "ok (declared as limited)",
        Cell::Skipped(_) => "skipped",
        Cell::Limited(_) => "limited",
        Cell::Failed(_) => "FAILED",
        Cell::NotChecked => "NOT CHECKED",
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// A table in Markdown that is aligned for reading as text, too. The first row is its head.
fn grid(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(String::len)
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(text, "| {cell:<width$} ");
        }
        text += "|\n";
        if number == 0 {
            for width in &widths {
                text += &format!("|{}", "-".repeat(width + 2));
            }
            text += "|\n";
        }
    }
    text
}
