//! `cargo xtask lab` and `cargo xtask demo`. In: arguments for flowskew-lab. Out: this process becomes flowskew-lab, so
//! that Ctrl-C and other signals reach the program that has to clean up.

use std::ffi::{OsStr, OsString};
use std::process::Command;

use anyhow::Result;

use crate::need::Purpose;
use crate::workspace::Workspace;
use crate::{ebpf, setup, shell};

/// The packages whose programs the lab runs.
const PACKAGES: [&str; 3] = ["flowskew-agent", "flowskew-aggregator", "flowskew-lab"];

/// Builds all that the lab runs, and runs it. Cleaning up needs neither agent nor eBPF object, so it builds neither.
pub fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<()> {
    if arguments.first().is_some_and(|first| first == "clean") {
        setup::ensure(workspace, &[Purpose::Lab])?;
        shell::run(workspace.cargo().args(["build", "--package", "flowskew-lab"]))?;
    } else {
        let tools = setup::ebpf_tools(workspace, &[Purpose::Ebpf, Purpose::Lab])?;
        ebpf::build(workspace, &tools)?;
        build_programs(workspace)?;
    }
    Err(shell::exec(lab(workspace).args(arguments)))
}

/// Builds agent, aggregator and lab, with the eBPF object inside.
pub fn build_programs(workspace: &Workspace) -> Result<()> {
    let packages = PACKAGES.iter().flat_map(|package| ["--package", package]);
    shell::run(workspace.cargo().arg("build").args(packages))
}

/// The lab's program.
pub fn lab(workspace: &Workspace) -> Command {
    Command::new(workspace.debug_program("flowskew-lab"))
}

/// Arguments of a subcommand of the lab, with the subcommand in front.
pub fn with_subcommand(name: &str, arguments: Vec<OsString>) -> Vec<OsString> {
    std::iter::once(OsStr::new(name).to_owned()).chain(arguments).collect()
}
