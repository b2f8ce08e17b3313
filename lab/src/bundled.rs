//! The scenario files that come with the program, so that it needs no checkout to run them.

use crate::scenario::{Scenario, ScenarioError};

/// A file of this name.
macro_rules! bundled {
    ($name:literal) => {
        Bundled {
            file: concat!($name, ".yaml"),
            yaml: include_str!(concat!("../scenarios/", $name, ".yaml")),
        }
    };
}

/// The story of the demo.
pub const DEMO: Bundled = bundled!("demo");

/// What the suite runs.
pub const SUITE: [Bundled; 26] = [
    bundled!("placement-3311111"),
    bundled!("spread-11-nodes"),
    bundled!("two-plus-one"),
    bundled!("cpu-follows-share"),
    bundled!("single-leader"),
    bundled!("weighted-balancer"),
    bundled!("zone-equal"),
    bundled!("source-hash"),
    bundled!("even-few-flows"),
    bundled!("one-restarted-pod"),
    bundled!("rolling-restart"),
    bundled!("one-idle-pod"),
    bundled!("added-pods"),
    bundled!("client-ip-one-source"),
    bundled!("shared-address"),
    bundled!("client-ip-per-node"),
    bundled!("client-ip-list-limit"),
    bundled!("sampled-clients"),
    bundled!("agent-restart"),
    bundled!("agent-restart-pinned"),
    bundled!("small-maps"),
    bundled!("address-reuse"),
    bundled!("host-network"),
    bundled!("two-services"),
    bundled!("udp"),
    bundled!("no-endpoint-node"),
];

/// What the suite runs once, since it takes long.
pub const SOAK: Bundled = bundled!("soak-kill-20");

/// One file.
#[derive(Debug, Clone, Copy)]
pub struct Bundled {
    /// Its name.
    pub file: &'static str,
    yaml: &'static str,
}

impl Bundled {
    /// The scenario in it.
    ///
    /// # Errors
    /// The file is wrong; a test keeps this from happening.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        Scenario::parse(self.file, self.yaml)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_file_is_right_and_named_after_its_scenario() {
        for bundled in SUITE.iter().chain([&DEMO, &SOAK]) {
            let scenario = bundled.scenario().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(format!("{}.yaml", scenario.name), bundled.file);
            assert!(!scenario.description.is_empty(), "{}", bundled.file);
        }
    }

    #[test]
    fn no_file_is_forgotten() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
        let files = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let bundled = SUITE
            .iter()
            .chain([&DEMO, &SOAK])
            .map(|bundled| bundled.file.to_owned());
        assert_eq!(files.collect::<BTreeSet<_>>(), bundled.collect::<BTreeSet<_>>());
    }

    #[test]
    fn the_example_of_the_readme_is_right() {
        let readme = include_str!("../README.md");
        let (_, rest) = readme.split_once("```yaml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        let scenario = Scenario::parse("README.md", example).unwrap_or_else(|error| panic!("{error}"));
        assert!(scenario.steps.len() > 5);
    }
}
