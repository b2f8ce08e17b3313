//! The programs that run in the virtual machines. In: the workspace. Out: static programs: the agent, its tests of the
//! kernel, and this program, which is the first process of the machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::unpack::remove;
use crate::workspace::Workspace;
use crate::{image, shell};

/// The tests of the agent that need a kernel: files or folders in agent/tests.
const TESTS: [&str; 5] = ["doors", "ipvs", "kernel", "pins", "pods"];

/// Where the programs are.
#[derive(Debug, Clone)]
pub struct Programs {
    /// This program.
    pub init: PathBuf,
    /// The agent.
    pub agent: PathBuf,
    /// Test programs by the name of their file in agent/tests.
    pub tests: Vec<(String, PathBuf)>,
}

/// Builds all. A target of its own keeps what `cargo build` and `cargo test` made.
pub fn build(workspace: &Workspace, folder: &Path) -> Result<Programs> {
    let host = image::host()?;
    let collected = folder.join("tests");
    remove(&collected)?;
    std::fs::create_dir_all(&collected).with_context(|| format!("cannot make {}", collected.display()))?;
    // Cargo names the test programs only to the runner that it starts for each.
    let runner = format!(
        "target.{host}.runner=['cp', '--target-directory', '{}']",
        collected.display()
    );
    let mut tests = static_cargo(workspace, "test", &host);
    tests.args(["--config", &runner, "--package", "flowskew-agent"]);
    for test in TESTS {
        tests.args(["--test", test]);
    }
    shell::run(&mut tests)?;
    shell::run(static_cargo(workspace, "build", &host).args(["--package", "xtask"]))?;
    let built = workspace.target.join(&host).join("debug");
    Ok(Programs {
        init: built.join("xtask"),
        agent: built.join("flowskew-agent"),
        tests: test_programs(&collected)?,
    })
}

/// With a target, flags reach neither build scripts nor procedural macros, which cannot be static.
fn static_cargo(workspace: &Workspace, subcommand: &str, host: &str) -> Command {
    let mut command = workspace.cargo();
    command
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            "-Ctarget-feature=+crt-static\x1f-Cstrip=debuginfo",
        )
        .args([subcommand, "--target", host]);
    command
}

/// The files in the folder, by name without the hash that cargo puts behind it.
fn test_programs(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut programs = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some((name, _hash)) = name.rsplit_once('-') {
            programs.push((name.to_owned(), path.clone()));
        }
    }
    programs.sort();
    if programs.len() != TESTS.len() {
        bail!("cargo built {} test programs, not {}", programs.len(), TESTS.len());
    }
    Ok(programs)
}
