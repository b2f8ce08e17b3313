//! `cargo xtask vm-test`. In: kernels to test, tests to run. Out: the agent's tests of the kernel, run on each kernel in a
//! virtual machine, as a table; an error if one fails that is not known to.

mod apt;
mod build;
mod event;
mod grid;
pub mod init;
pub mod kernels;
mod limits;
mod modules;
mod qemu;
mod render;
mod root;
mod table;
mod unpack;

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::need::Purpose;
use crate::workspace::Workspace;
use crate::{ebpf, setup};
use build::Programs;
use kernels::Kernel;
use table::{Column, Report};

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Test only this kernel; may be given several times
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(kernels::names()))]
    kernel: Vec<String>,
    /// Run only tests with this in their name, PROGRAM::TEST
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// Write the table to docs/kernels.md
    #[arg(long, conflicts_with_all = ["kernel", "only"])]
    write_docs: bool,
}

/// Tests one kernel after the other: each machine uses all of this one.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        bail!(
            "the kernels are those for x86_64; this machine is {}",
            std::env::consts::ARCH
        );
    }
    let tools = setup::ebpf_tools(workspace, &[Purpose::Ebpf, Purpose::Lab, Purpose::Vm])?;
    ebpf::build(workspace, &tools)?;
    let folder = workspace.target.join("vm");
    let programs = build::build(workspace, &folder)?;
    let mut columns = Vec::new();
    for kernel in kernels::named(&options.kernel) {
        println!("\n==> kernel {} ({})", kernel.name, kernel.suite);
        let tested = test(kernel, &programs, &options.only, &folder.join(kernel.name));
        columns.push(tested.map_err(|error| {
            println!("NOT CHECKED: {error:#}");
            (kernel, format!("{error:#}"))
        }));
    }
    let report = Report::new(columns, limits::ALL);
    println!("\n{}", report.text());
    if options.write_docs {
        write_docs(workspace, &report)?;
    }
    let problems = report.problems();
    if !problems.is_empty() {
        bail!("{}", problems.join("; "));
    }
    Ok(())
}

fn test(kernel: Kernel, programs: &Programs, only: &str, folder: &Path) -> Result<Column> {
    let packages = apt::kernel_packages(&kernel, folder)?;
    let unpacked = unpack::unpack(&packages, folder)?;
    let initramfs = root::pack(&unpacked, programs, only, folder)?;
    let run = qemu::run(kernel.name, &unpacked, &initramfs, folder)?;
    Ok(Column {
        kernel,
        version: unpacked.version,
        run,
    })
}

/// A table that lacks a kernel would say less than the one before.
fn write_docs(workspace: &Workspace, report: &Report) -> Result<()> {
    let file = workspace.root.join("docs/kernels.md");
    if !report.is_complete() {
        println!("{} was left alone, as not all kernels were tested", file.display());
        return Ok(());
    }
    let folder = workspace.root.join("docs");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    std::fs::write(&file, report.markdown()).with_context(|| format!("cannot write {}", file.display()))?;
    println!("written: {}", file.display());
    Ok(())
}
