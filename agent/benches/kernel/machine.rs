//! Where the figures come from: out, kernel, processor and versions, for people.

use std::{fs, process::Command, thread};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A machine, and the programs on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: String,
    /// Architecture.
    pub architecture: String,
    /// Name of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Load average of the minute before the start: more than about 0.3 means that others were at work.
    pub load_average: String,
    /// How the agent was built.
    pub build: String,
    /// Versions of the peers that are there.
    pub peers: Vec<String>,
}

/// Describes this machine.
pub fn describe(quick: bool) -> Result<Machine> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let field = |text: &str, name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default();
        line.trim_start_matches([' ', '\t', ':']).to_owned()
    };
    let memory = field(&read("/proc/meminfo")?, "MemTotal");
    let kilobytes: u64 = memory
        .trim_end_matches(" kB")
        .parse()
        .context("/proc/meminfo: MemTotal")?;
    Ok(Machine {
        kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        processor: field(&read("/proc/cpuinfo")?, "model name"),
        processors: thread::available_parallelism().map_or(1, usize::from),
        memory: kilobytes * 1_024,
        load_average: read("/proc/loadavg")?.split(' ').next().unwrap_or_default().to_owned(),
        build: if quick { "unoptimised" } else { "release" }.to_owned(),
        peers: [
            said("dpkg-query", &["-W", "-f", "libbpf-tools ${Version}", "libbpf-tools"]),
            said("bpftrace", &["--version"]),
            said("conntrack", &["--version"]),
        ]
        .into_iter()
        .flatten()
        .collect(),
    })
}

/// First line that a program prints, if it is there and succeeds.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .next()
        .filter(|_| output.status.success())
        .map(str::to_owned)
}
