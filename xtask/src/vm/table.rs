//! Results of all kernels together. In: what each machine ran, and the known limitations. Out: a cell for each test and
//! kernel, and all that is wrong.

use super::event::Outcome;
use super::kernels::Kernel;
use super::limits::{self, Limitation};
use super::qemu::{Run, TestRun};

/// A kernel that was tested.
#[derive(Debug, Clone)]
pub struct Column {
    /// The kernel.
    pub kernel: Kernel,
    /// Debian's version of its package.
    pub version: String,
    /// What came of it.
    pub run: Run,
}

/// A kernel that was tested, or one that could not be, with the reason.
pub type Tested = Result<Column, (Kernel, String)>;

/// What a test came to on a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// It passed.
    Passed,
    /// It passed although it is declared not to.
    Surprising(Limitation),
    /// It could not run there, and why.
    Skipped(String),
    /// It failed, as it is declared to.
    Limited(Limitation),
    /// It failed, and how.
    Failed(String),
    /// The kernel was not tested, or the test is not among those that it ran.
    NotChecked,
}

impl Cell {
    fn of(kernel: &str, test: &TestRun, limitations: &[Limitation]) -> Self {
        let limitation = limits::find(limitations, kernel, &test.name);
        match (&test.outcome, limitation) {
            (Some(Outcome::Passed), None) => Self::Passed,
            (Some(Outcome::Passed), Some(limitation)) => Self::Surprising(limitation),
            (Some(Outcome::Skipped(reason)), _) => Self::Skipped(reason.clone()),
            (Some(Outcome::Failed(_)), Some(limitation)) => Self::Limited(limitation),
            (Some(Outcome::Failed(how)), None) => Self::Failed(how.clone()),
            (None, _) => Self::Failed("not run: the machine ended first".to_owned()),
        }
    }
}

/// All kernels.
#[derive(Debug)]
pub struct Report {
    /// One a kernel, oldest first.
    pub columns: Vec<Tested>,
    limitations: &'static [Limitation],
}

impl Report {
    /// Puts results and limitations together.
    pub fn new(columns: Vec<Tested>, limitations: &'static [Limitation]) -> Self {
        Self { columns, limitations }
    }

    /// The names of all tests, in the order in which they ran.
    pub fn tests(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for test in self.columns.iter().flatten().flat_map(|column| &column.run.tests) {
            if !names.contains(&test.name.as_str()) {
                names.push(&test.name);
            }
        }
        names
    }

    /// The result of a test on a kernel.
    pub fn cell(&self, column: &Tested, test: &str) -> Cell {
        let Ok(column) = column else { return Cell::NotChecked };
        let found = column.run.tests.iter().find(|run| run.name == test);
        found.map_or(Cell::NotChecked, |run| {
            Cell::of(column.kernel.name, run, self.limitations)
        })
    }

    /// All cells with the names of test and kernel.
    pub fn cells(&self) -> impl Iterator<Item = (&str, &'static str, Cell)> {
        self.tests().into_iter().flat_map(move |test| {
            self.columns
                .iter()
                .map(move |column| (test, name(column), self.cell(column, test)))
        })
    }

    /// True when every kernel was tested to the end.
    pub fn is_complete(&self) -> bool {
        self.columns
            .iter()
            .all(|column| column.as_ref().is_ok_and(|column| column.run.broken.is_none()))
    }

    /// What is wrong, for the command's error; empty when nothing is.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for column in &self.columns {
            match column {
                Err((kernel, _)) => problems.push(format!("kernel {} NOT CHECKED", kernel.name)),
                Ok(column) => {
                    let name = column.kernel.name;
                    if let Some(why) = &column.run.broken {
                        problems.push(format!("kernel {name}: {why}"));
                    }
                    if column.run.tests.is_empty() {
                        problems.push(format!("kernel {name}: no test of that name"));
                    }
                }
            }
        }
        let failed = self
            .cells()
            .filter(|(_, _, cell)| matches!(cell, Cell::Failed(_)))
            .count();
        if failed > 0 {
            problems.push(format!("{failed} tests failed"));
        }
        problems
    }
}

/// The name of a column's kernel.
pub fn name(column: &Tested) -> &'static str {
    match column {
        Ok(column) => column.kernel.name,
        Err((kernel, _)) => kernel.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::kernels;

    const LIMITATIONS: &[Limitation] = &[Limitation {
        kernels: &["5.10"],
        test: "kernel::limited",
        reason: "5.10 lacks it",
    }];

    fn test(name: &str, outcome: Option<Outcome>) -> TestRun {
        TestRun {
            name: name.to_owned(),
            outcome,
            output: Vec::new(),
            seconds: 0.0,
        }
    }

    fn column(kernel: usize, tests: Vec<TestRun>) -> Tested {
        let run = Run {
            tests,
            ..Run::default()
        };
        Ok(Column {
            kernel: kernels::ALL[kernel],
            version: "1".to_owned(),
            run,
        })
    }

    #[test]
    fn a_declared_failure_is_no_problem_where_it_is_declared() {
        let failed = || {
            vec![test(
                "kernel::limited",
                Some(Outcome::Failed("exit status: 101".into())),
            )]
        };
        let old = Report::new(vec![column(0, failed())], LIMITATIONS);
        assert!(old.problems().is_empty());
        assert_eq!(
            old.cell(&old.columns[0], "kernel::limited"),
            Cell::Limited(LIMITATIONS[0])
        );
        let new = Report::new(vec![column(1, failed())], LIMITATIONS);
        assert_eq!(new.problems(), ["1 tests failed"]);
        let passed = vec![test("kernel::limited", Some(Outcome::Passed))];
        let surprising = Report::new(vec![column(0, passed)], LIMITATIONS);
        assert!(surprising.problems().is_empty());
        assert_eq!(
            surprising.cell(&surprising.columns[0], "kernel::limited"),
            Cell::Surprising(LIMITATIONS[0])
        );
    }

    #[test]
    fn a_kernel_that_was_not_tested_is_no_success() {
        let passed = vec![test("kernel::a", Some(Outcome::Passed))];
        let columns = vec![column(0, passed), Err((kernels::ALL[1], "no mirror".to_owned()))];
        let report = Report::new(columns, &[]);
        assert_eq!(report.problems(), ["kernel 6.1 NOT CHECKED"]);
        assert!(!report.is_complete());
        assert_eq!(report.cell(&report.columns[1], "kernel::a"), Cell::NotChecked);
    }

    #[test]
    fn a_test_that_did_not_run_failed() {
        let report = Report::new(vec![column(0, vec![test("kernel::limited", None)])], &[]);
        assert_eq!(report.problems(), ["1 tests failed"]);
    }
}
