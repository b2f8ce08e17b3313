//! `cargo xtask bench`. In: what to measure, and how long. Out: this process becomes the benchmark, with what it compares
//! with installed where that is possible.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::need::Purpose;
use crate::workspace::Workspace;
use crate::{ebpf, setup, shell};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// What the kernel programs cost: time per open and close, connections per second, processor time, memory
    #[command(
        long_about = "What the kernel programs cost: time per open and close, connections per second, processor time, memory.

Real connections, on loopback in a network namespace of its own, seen by the agent, an empty program, tcplife, a \
                      bpftrace script and conntrack in turn; ratios are taken within each round. Needs root. On a machine \
                      that does other work nanoseconds and rates are noisy, ratios less so. Nothing stays behind, also \
                      after Ctrl-C. Exits 1 if a goal is missed.",
        after_help = "Examples:
  cargo xtask bench kernel                      all figures, about 12 minutes
  cargo xtask bench kernel --quick              shows that all can be measured, in half a minute; no goals
  cargo xtask bench kernel --rounds 40          narrower intervals
  cargo xtask bench kernel --json /tmp/k.json   figures, and the samples of each round
  cargo xtask bench kernel --write-docs         also writes docs/benchmarks.md"
    )]
    Kernel(Kernel),
}

/// Options of the benchmark of the kernel programs.
#[derive(Debug, Args)]
pub struct Kernel {
    /// Measure each figure once, in short, with an unoptimised agent; hold nothing against the goals
    #[arg(long)]
    quick: bool,
    /// Rounds of each comparison [default: 15, or 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    rounds: Option<u16>,
    /// Where to write the figures [default: target/bench/kernel.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write docs/benchmarks.md
    #[arg(long, conflicts_with = "quick")]
    write_docs: bool,
}

/// Builds what is measured, and measures it.
pub fn run(workspace: &Workspace, bench: Bench) -> Result<()> {
    let Bench::Kernel(options) = bench;
    if !setup::is_root() {
        bail!("`cargo xtask bench kernel` needs root: it loads eBPF programs and makes namespaces");
    }
    let tools = setup::ebpf_tools(workspace, &[Purpose::Ebpf, Purpose::Lab])?;
    if let Err(error) = setup::ensure(workspace, &[Purpose::Peers]) {
        println!("note: {error:#}; what is missing is not compared with");
    }
    ebpf::build(workspace, &tools)?;
    ebpf::build_empty(workspace, &tools)?;

    let json = match options.json {
        // The benchmark starts in the folder of its package.
        Some(path) => std::path::absolute(path).context("--json")?,
        None => workspace.target.join("bench/kernel.json"),
    };
    let mut cargo = workspace.cargo();
    cargo
        .args(["bench", "--package", "flowskew-agent", "--bench", "kernel"])
        // What is short need not be optimised, and is built already.
        .args(["--profile", if options.quick { "dev" } else { "release" }, "--"])
        .arg("--empty-object")
        .arg(workspace.empty_ebpf_object())
        .arg("--json")
        .arg(json);
    if options.quick {
        cargo.arg("--quick");
    }
    if let Some(rounds) = options.rounds {
        cargo.arg("--rounds").arg(rounds.to_string());
    }
    if options.write_docs {
        cargo.arg("--write-docs").arg(workspace.root.join("docs/benchmarks.md"));
    }
    Err(shell::exec(&mut cargo))
}
