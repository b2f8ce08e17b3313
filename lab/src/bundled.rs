//! The scenario files that come with the program, so that it needs no checkout to run them.

use crate::scenario::{Scenario, ScenarioError};

/// The story of the demo.
pub const DEMO: Bundled = Bundled {
    file: "demo.yaml",
    yaml: include_str!("../scenarios/demo.yaml"),
};

/// What the suite runs.
pub const SUITE: [Bundled; 14] = [
    Bundled {
        file: "placement-3311111.yaml",
        yaml: include_str!("../scenarios/placement-3311111.yaml"),
    },
    Bundled {
        file: "spread-11-nodes.yaml",
        yaml: include_str!("../scenarios/spread-11-nodes.yaml"),
    },
    Bundled {
        file: "two-plus-one.yaml",
        yaml: include_str!("../scenarios/two-plus-one.yaml"),
    },
    Bundled {
        file: "single-leader.yaml",
        yaml: include_str!("../scenarios/single-leader.yaml"),
    },
    Bundled {
        file: "weighted-balancer.yaml",
        yaml: include_str!("../scenarios/weighted-balancer.yaml"),
    },
    Bundled {
        file: "even-few-flows.yaml",
        yaml: include_str!("../scenarios/even-few-flows.yaml"),
    },
    Bundled {
        file: "agent-restart.yaml",
        yaml: include_str!("../scenarios/agent-restart.yaml"),
    },
    Bundled {
        file: "agent-restart-pinned.yaml",
        yaml: include_str!("../scenarios/agent-restart-pinned.yaml"),
    },
    Bundled {
        file: "small-maps.yaml",
        yaml: include_str!("../scenarios/small-maps.yaml"),
    },
    Bundled {
        file: "address-reuse.yaml",
        yaml: include_str!("../scenarios/address-reuse.yaml"),
    },
    Bundled {
        file: "host-network.yaml",
        yaml: include_str!("../scenarios/host-network.yaml"),
    },
    Bundled {
        file: "two-services.yaml",
        yaml: include_str!("../scenarios/two-services.yaml"),
    },
    Bundled {
        file: "udp.yaml",
        yaml: include_str!("../scenarios/udp.yaml"),
    },
    Bundled {
        file: "no-endpoint-node.yaml",
        yaml: include_str!("../scenarios/no-endpoint-node.yaml"),
    },
];

/// What the suite runs once, since it takes long.
pub const SOAK: Bundled = Bundled {
    file: "soak-kill-20.yaml",
    yaml: include_str!("../scenarios/soak-kill-20.yaml"),
};

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
