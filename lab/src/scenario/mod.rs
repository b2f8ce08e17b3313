//! Scenario files. A YAML file enters; a checked [`Scenario`] leaves, or an error that names file, line, what is wrong and
//! what is allowed.

mod check;
mod check_steps;
pub mod expect;
pub mod lists;
mod placement;
pub mod spec;
pub mod value;

use std::fmt;
use std::path::Path;

use serde_saphyr::{Location, MessageFormatter, UserMessageFormatter};

pub use expect::Check;
pub use placement::{Placed, PodSet, Scaling};
use spec::{AddressFamily, Service, Step};

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
    /// The pods at the start.
    pub pods: PodSet,
    /// The Service.
    pub service: Service,
    /// How the external balancer picks a node.
    pub balancer: crate::net::Balancer,
    /// What happens, in order. The last is a check.
    pub steps: Vec<Step>,
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
