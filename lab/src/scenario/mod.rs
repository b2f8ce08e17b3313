//! Scenario files. A YAML file enters; a checked [`Scenario`] leaves, or an error that names file, line, what is wrong and
//! what is allowed.

pub mod agents;
mod check;
mod check_cluster;
mod check_open;
mod check_steps;
pub mod expect;
pub mod expect_why;
pub mod findings;
pub mod lists;
pub mod losses;
pub mod open;
mod placement;
pub mod service;
pub mod spec;
pub mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde_saphyr::{Location, MessageFormatter, UserMessageFormatter};

use agents::Agents;
pub use expect::Check;
pub use placement::{Placed, PodSet, Scaling};
use service::{OtherService, Service};
use spec::{AddressFamily, Step};
use value::Span;

/// A scenario that is right in itself: what it names exists at the time when it is named.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Short name.
    pub name: String,
    /// What it shows.
    pub description: String,
    /// Address family.
    pub family: AddressFamily,
    /// All nodes.
    pub nodes: Vec<String>,
    /// Zones of nodes that have one, by node.
    pub zones: BTreeMap<String, String>,
    /// The pods at the start.
    pub pods: PodSet,
    /// The Service.
    pub service: Service,
    /// More Services with the same pods.
    pub other_services: Vec<OtherService>,
    /// Pods that have their node's network namespace and address, and the port of each there.
    pub host_network: BTreeMap<String, u16>,
    /// Servers on nodes that are no pods, by name.
    pub processes: BTreeMap<String, Process>,
    /// CPU time that each TCP flow costs its pod.
    pub work: Duration,
    /// How the agents run.
    pub agents: Agents,
    /// How the external balancer picks a node.
    pub balancer: crate::net::Balancer,
    /// What nodes see of the balancer.
    pub delivery: crate::net::Delivery,
    /// What happens, in order. The last is a check.
    pub steps: Vec<Step>,
}

/// A server on a node that is no pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its node.
    pub node: String,
    /// Where it listens.
    pub port: u16,
}

/// Why a scenario file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read.
    #[error("cannot read the scenario file {path}: {source}")]
    Read {
        /// The path given.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not a scenario.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong(Vec<Mistake>),
}

/// One mistake in a scenario file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Name of the file.
    pub file: String,
    /// Line, from 1; 0 when unknown.
    pub line: u64,
    /// Column, from 1.
    pub column: u64,
    /// What is wrong and what is allowed.
    pub message: String,
    /// The line itself.
    pub text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "{}: {}", self.file, self.message);
        }
        let Self {
            file,
            line,
            column,
            message,
            text,
        } = self;
        write!(f, "{file}:{line}:{column}: {message}\n{line:>5} | {text}")
    }
}

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, is not YAML of the documented form, or names what does not exist.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let name = path.display().to_string();
        let yaml = std::fs::read_to_string(path).map_err(|source| ScenarioError::Read {
            path: name.clone(),
            source,
        })?;
        Self::parse(&name, &yaml)
    }

    /// Makes each `open` that has a time last so long. False if there is none.
    pub fn last(&mut self, time: Span) -> bool {
        let mut any = false;
        for step in &mut self.steps {
            if let Step::Open(open) = step
                && let Some(given) = &mut open.time
            {
                given.value = time;
                any = true;
            }
        }
        any
    }

    /// Reads and checks YAML text; `file` is only for messages.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn parse(file: &str, yaml: &str) -> Result<Self, ScenarioError> {
        let spec = serde_saphyr::from_str(yaml).map_err(|error| {
            let message = UserMessageFormatter
                .format_message(error.without_snippet())
                .into_owned();
            ScenarioError::Wrong(vec![mistake(
                file,
                yaml,
                error.location().unwrap_or(Location::UNKNOWN),
                message,
            )])
        })?;
        check::scenario(spec).map_err(|problems| {
            let mistakes = problems
                .into_iter()
                .map(|(location, message)| mistake(file, yaml, location, message));
            ScenarioError::Wrong(mistakes.collect())
        })
    }
}

fn mistake(file: &str, yaml: &str, location: Location, message: String) -> Mistake {
    let line = location.line();
    let index = usize::try_from(line).unwrap_or(0).wrapping_sub(1);
    let text = yaml.lines().nth(index).unwrap_or("").trim_end().to_owned();
    Mistake {
        file: file.to_owned(),
        line,
        column: location.column(),
        message,
        text,
    }
}

#[cfg(test)]
mod tests;
