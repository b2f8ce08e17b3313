//! What the virtual machine tells us over its second serial line. In: events of the first process in the machine. Out: a line
//! of text for each, and events again from such lines.

use std::fmt;

/// Version of the lines; the first event carries it.
const HELLO: &str = "flowskew-vm-1";

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The first process runs, so many seconds after the kernel's start.
    Up(f64),
    /// A test will be run. All are planned before the first runs.
    Planned(String),
    /// It starts.
    Started(String),
    /// A line of its output.
    Output(String),
    /// It ended, after so many seconds.
    Ended(Outcome, f64),
    /// Nothing more will come.
    Done,
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Passed,
    /// It could not run, and why.
    Skipped(String),
    /// It failed, and how.
    Failed(String),
}

impl Outcome {
    /// For people.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Skipped(_) => "skipped",
            Self::Failed(_) => "FAILED",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up(seconds) => write!(f, "{HELLO}\t{seconds:.1}"),
            Self::Planned(test) => write!(f, "planned\t{test}"),
            Self::Started(test) => write!(f, "started\t{test}"),
            Self::Output(line) => write!(f, "output\t{line}"),
            Self::Ended(Outcome::Passed, seconds) => write!(f, "ok\t{seconds:.1}"),
            Self::Ended(Outcome::Skipped(reason), seconds) => write!(f, "skipped\t{seconds:.1}\t{reason}"),
            Self::Ended(Outcome::Failed(reason), seconds) => write!(f, "failed\t{seconds:.1}\t{reason}"),
            Self::Done => f.write_str("done"),
        }
    }
}

impl Event {
    /// The event of a line; nothing for a line that is none.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim_end_matches(['\r', '\n']);
        let (word, rest) = line.split_once('\t').unwrap_or((line, ""));
        let ended = |outcome: fn(String) -> Outcome| {
            let (seconds, reason) = rest.split_once('\t').unwrap_or((rest, ""));
            Some(Self::Ended(outcome(reason.to_owned()), seconds.parse().ok()?))
        };
        match word {
            HELLO => Some(Self::Up(rest.parse().ok()?)),
            "planned" => Some(Self::Planned(rest.to_owned())),
            "started" => Some(Self::Started(rest.to_owned())),
            "output" => Some(Self::Output(rest.to_owned())),
            "ok" => ended(|_| Outcome::Passed),
            "skipped" => ended(Outcome::Skipped),
            "failed" => ended(Outcome::Failed),
            "done" => Some(Self::Done),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_survives_the_line() {
        let events = [
            Event::Up(12.5),
            Event::Planned("kernel::a".into()),
            Event::Started("kernel::a".into()),
            Event::Output("a\tb".into()),
            Event::Ended(Outcome::Passed, 0.1),
            Event::Ended(Outcome::Skipped("no\tIPVS".into()), 2.0),
            Event::Ended(Outcome::Failed("exit status: 101".into()), 3.0),
            Event::Done,
        ];
        for event in events {
            assert_eq!(Event::parse(&format!("{event}\r\n")), Some(event));
        }
        assert_eq!(Event::parse("[    1.0] random: crng init done"), None);
        assert_eq!(Event::parse("ok\tsoon"), None);
    }
}
