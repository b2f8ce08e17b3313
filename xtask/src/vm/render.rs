//! Results for people. In: a report. Out: text for the terminal, with the output of what failed; the page for docs/.

use super::event::Outcome;
use super::grid::{grid, row};
use super::init::CHECK;
use super::table::{Cell, Column, Report, Tested, name};

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
            let output: String = check_output(column)
                .iter()
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
        head.extend(self.columns.iter().map(label));
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
        let [mut limited, mut skipped, mut surprising, mut failed] = [const { Vec::new() }; 4];
        for (test, kernel, cell) in self.cells() {
            let (remarks, reason) = match cell {
                Cell::Passed | Cell::NotChecked => continue,
                Cell::Limited(limitation) => (&mut limited, limitation.reason.to_owned()),
                Cell::Skipped(reason) => (&mut skipped, reason),
                Cell::Surprising(limitation) => (&mut surprising, limitation.reason.to_owned()),
                Cell::Failed(how) => (&mut failed, how),
            };
            add(remarks, kernel, format!("{test}: {reason}"));
        }
        let [mut less, mut not_checked, mut logs] = [const { Vec::new() }; 3];
        for column in &self.columns {
            match column {
                Err((kernel, why)) => add(&mut not_checked, kernel.name, why.clone()),
                Ok(column) => {
                    let name = column.kernel.name;
                    for line in check_output(column)
                        .iter()
                        .filter_map(|line| line.trim().strip_prefix("less "))
                    {
                        add(&mut less, name, line.split_whitespace().collect::<Vec<_>>().join(" "));
                    }
                    for line in column.run.kernel_complaints() {
                        add(&mut logs, name, format!("`{line}`"));
                    }
                }
            }
        }
        [
            ("What the agent itself says that it lacks", less),
            ("Limited", limited),
            ("Skipped", skipped),
            ("Declared as limited, but they pass", surprising),
            ("Failed", failed),
            ("NOT CHECKED", not_checked),
            ("What the kernels' logs complain about", logs),
        ]
        .into_iter()
        .filter(|(_, remarks)| !remarks.is_empty())
        .map(|(title, remarks)| {
            let line = |(kernels, what): (Vec<&str>, String)| format!("{}: {what}", kernels.join(", "));
            (title, remarks.into_iter().map(line).collect())
        })
        .collect()
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

/// The name of a column: the kernel's series, and what it is called on the command line where that is another word.
fn label(column: &Tested) -> String {
    let name = name(column);
    let Ok(column) = column else { return name.to_owned() };
    let series = column.version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    if series == name {
        series
    } else {
        format!("{series} ({name})")
    }
}

/// What `flowskew-agent check` printed.
fn check_output(column: &Column) -> &[String] {
    let check = column.run.tests.iter().find(|test| test.name == CHECK);
    check.map_or(&[], |test| &test.output)
}

/// Adds a kernel to those of which the same is said.
fn add(remarks: &mut Vec<(Vec<&'static str>, String)>, kernel: &'static str, what: String) {
    match remarks.iter_mut().find(|(_, said)| *said == what) {
        Some((kernels, _)) => kernels.push(kernel),
        None => remarks.push((vec![kernel], what)),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::kernels;
    use crate::vm::qemu::{Run, TestRun};

    fn column(kernel: usize, version: &str, outcome: Outcome) -> Tested {
        let test = |name: &str, outcome, output: &[&str]| TestRun {
            name: name.to_owned(),
            outcome: Some(outcome),
            output: output.iter().map(|line| (*line).to_owned()).collect(),
            seconds: 1.0,
        };
        let check = [" ok    BTF     yes", " less  expiry  flows   stay"];
        let run = Run {
            tests: vec![
                test(CHECK, Outcome::Passed, &check),
                test("kernel::a", outcome, &["why"]),
            ],
            ..Run::default()
        };
        Ok(Column {
            kernel: kernels::ALL[kernel],
            version: version.to_owned(),
            run,
        })
    }

    #[test]
    fn the_same_reason_is_said_once_for_all_kernels() {
        let skipped = || Outcome::Skipped("no IPVS".to_owned());
        let columns = vec![
            column(0, "5.10.2-1", skipped()),
            column(3, "7.2.13-1", skipped()),
            Err((kernels::ALL[1], "no mirror".to_owned())),
        ];
        assert_eq!(
            Report::new(columns, &[]).text(),
            "| test      | 5.10    | 7.2 (newest) | 6.1         |\n\
             |-----------|---------|--------------|-------------|\n\
             | check     | ok      | ok           | NOT CHECKED |\n\
             | kernel::a | skipped | skipped      | NOT CHECKED |\n\
             \nWhat the agent itself says that it lacks:\n- 5.10, newest: expiry flows stay\n\
             \nSkipped:\n- 5.10, newest: kernel::a: no IPVS\n\
             \nNOT CHECKED:\n- 6.1: no mirror\n"
        );
    }

    #[test]
    fn what_failed_is_shown_with_its_output() {
        let columns = vec![column(1, "6.1.2-1", Outcome::Failed("exit status: 101".to_owned()))];
        let text = Report::new(columns, &[]).text();
        assert!(
            text.starts_with("---- kernel 6.1, kernel::a: exit status: 101\nwhy\n"),
            "{text}"
        );
        assert!(text.contains("| kernel::a | FAILED |"), "{text}");
    }
}
