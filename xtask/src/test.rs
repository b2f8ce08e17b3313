//! `cargo xtask test`. In: the tiers to run. Out: each tier's output, a summary with times, and an error if one failed.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::need::Purpose;
use crate::workspace::Workspace;
use crate::{deploy, ebpf, lab, setup, shell};

/// A part of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Tier {
    /// Tests of every crate, with those that need root and the kernel.
    Unit,
    /// Scenarios in the lab, on real connections.
    Lab,
    /// Manifests, alert rules and dashboards.
    Deploy,
}

impl Tier {
    /// In the order in which they run.
    const ALL: [Self; 3] = [Self::Unit, Self::Deploy, Self::Lab];

    /// What it needs. Without root nothing of the lab runs.
    fn purposes(self, root: bool) -> &'static [Purpose] {
        match self {
            Self::Unit | Self::Lab if root => &[Purpose::Ebpf, Purpose::Lab],
            Self::Unit => &[Purpose::Ebpf],
            Self::Lab => &[],
            Self::Deploy => &[Purpose::Deploy],
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unit => "unit",
            Self::Lab => "lab",
            Self::Deploy => "deploy",
        })
    }
}

/// How a tier ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Skipped(&'static str),
    Failed(String),
}

/// Runs the tiers, all of them if none is named. A tier that fails does not keep the others from running.
pub fn run(workspace: &Workspace, only: &[Tier]) -> Result<()> {
    let tiers: Vec<Tier> = Tier::ALL
        .into_iter()
        .filter(|tier| only.is_empty() || only.contains(tier))
        .collect();
    let purposes: Vec<Purpose> = tiers
        .iter()
        .flat_map(|tier| tier.purposes(setup::is_root()))
        .copied()
        .collect();
    if let Some(tools) = setup::ensure(workspace, &purposes)?.ebpf {
        ebpf::build(workspace, &tools)?;
    }
    let results: Vec<(Tier, Outcome, Duration)> = tiers
        .into_iter()
        .map(|tier| {
            println!("\n==> tests: {tier}");
            let start = Instant::now();
            let outcome = run_tier(workspace, tier).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
            (tier, outcome, start.elapsed())
        })
        .collect();
    println!("\n{}", summary(&results));
    if results
        .iter()
        .any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)))
    {
        bail!("tests failed");
    }
    Ok(())
}

fn run_tier(workspace: &Workspace, tier: Tier) -> Result<Outcome> {
    match tier {
        Tier::Unit => {
            if !setup::is_root() {
                println!("not root: tests that load eBPF programs or make namespaces skip themselves");
            }
            shell::run(workspace.cargo().args(["test", "--workspace"]))?;
        }
        Tier::Lab => {
            if !setup::is_root() {
                return Ok(Outcome::Skipped(
                    "needs root: it makes network namespaces and loads eBPF programs",
                ));
            }
            lab::build_programs(workspace)?;
            shell::run(lab::lab(workspace).arg("suite"))?;
        }
        Tier::Deploy => deploy::check(workspace)?,
    }
    Ok(Outcome::Passed)
}

fn summary(results: &[(Tier, Outcome, Duration)]) -> String {
    let line = |(tier, outcome, duration): &(Tier, Outcome, Duration)| {
        let (word, reason) = match outcome {
            Outcome::Passed => ("passed", String::new()),
            Outcome::Skipped(reason) => ("SKIPPED", format!("  {reason}")),
            Outcome::Failed(reason) => ("FAILED", format!("  {reason}")),
        };
        format!("{tier:<7} {word:<8} {:>6.1} s{reason}", duration.as_secs_f64())
    };
    results.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_how_each_tier_ended_and_why() {
        let results = [
            (
                Tier::Unit,
                Outcome::Failed("`cargo test` failed".into()),
                Duration::from_millis(12_340),
            ),
            (Tier::Deploy, Outcome::Passed, Duration::from_millis(500)),
            (Tier::Lab, Outcome::Skipped("needs root"), Duration::ZERO),
        ];
        assert_eq!(
            summary(&results),
            "unit    FAILED     12.3 s  `cargo test` failed\n\
             deploy  passed      0.5 s\n\
             lab     SKIPPED     0.0 s  needs root"
        );
    }
}
