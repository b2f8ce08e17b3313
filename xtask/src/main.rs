//! The project's own commands. In: `cargo xtask COMMAND`. Out: what the command builds, runs or checks. Every command first
//! makes sure that the programs it needs are there.
#![forbid(unsafe_code)]

mod bench;
mod deploy;
mod ebpf;
mod image;
mod lab;
mod need;
mod remedy;
mod setup;
mod shell;
mod test;
mod toolchain;
mod vm;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use need::Purpose;
use workspace::Workspace;

/// flowskew's own commands
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what building and testing need (as root on Debian or Ubuntu), or show the commands that do
    Setup {
        /// Only report what is there and what is missing; exit with 1 if something is missing
        #[arg(long)]
        check: bool,
        /// Look for what only .ci/run needs, too
        #[arg(long)]
        ci: bool,
    },
    /// Build the eBPF object that the agent embeds
    BuildEbpf,
    /// Show the whole story on this machine, in about a minute: uneven placement, its report, the fix
    #[command(disable_help_flag = true)]
    Demo {
        /// Arguments for `flowskew-lab demo`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run flowskew-lab: `lab run FILE [--mode iptables|nftables] [--json OUT]`, `lab clean`, `lab --help`
    #[command(disable_help_flag = true)]
    Lab {
        /// Arguments for flowskew-lab
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<OsString>,
    },
    /// Run all tests: of the crates, of deploy/, and the scenarios of the lab
    Test {
        /// Run only this part; may be given several times
        #[arg(long, value_enum)]
        only: Vec<test::Tier>,
    },
    /// Measure what flowskew costs, beside other tools
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Build static programs and container images of agent and aggregator
    Image {
        /// Where the images will be pushed to
        #[arg(long, default_value = "localhost")]
        registry: String,
        /// Tag of the images
        #[arg(long, default_value = concat!("v", env!("CARGO_PKG_VERSION")))]
        tag: String,
    },
    /// Run the agent's tests of the kernel on Debian's kernels, old to new, in virtual machines (about ten minutes)
    VmTest(vm::Options),
    /// The first process of such a machine
    #[command(hide = true)]
    VmInit,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    let workspace = Workspace::find()?;
    match task {
        Task::Setup { check, ci } => {
            let mut purposes = vec![Purpose::Ebpf, Purpose::Lab, Purpose::Deploy];
            purposes.extend(ci.then_some(Purpose::Ci));
            if check {
                return setup::check(&workspace, &purposes);
            }
            setup::ensure(&workspace, &purposes)?;
            println!("Nothing is missing.");
            Ok(())
        }
        Task::BuildEbpf => {
            let tools = setup::ebpf_tools(&workspace, &[Purpose::Ebpf])?;
            ebpf::build(&workspace, &tools)?;
            println!("eBPF object: {}", workspace.ebpf_object().display());
            Ok(())
        }
        Task::Demo { arguments } => lab::run(&workspace, &lab::with_subcommand("demo", arguments)),
        Task::Lab { arguments } => lab::run(&workspace, &arguments),
        Task::Test { only } => test::run(&workspace, &only),
        Task::Bench(bench) => bench::run(&workspace, bench),
        Task::Image { registry, tag } => image::build(&workspace, &registry, &tag),
        Task::VmTest(options) => vm::run(&workspace, &options),
        Task::VmInit => vm::init::run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labs_arguments_pass_through() {
        let parsed = Arguments::try_parse_from(["xtask", "lab", "run", "a.yaml", "--mode", "nftables", "--help"]);
        let Ok(Arguments {
            command: Task::Lab { arguments },
        }) = parsed
        else {
            panic!("{parsed:?}")
        };
        assert_eq!(arguments, ["run", "a.yaml", "--mode", "nftables", "--help"]);
        let parsed = Arguments::try_parse_from(["xtask", "demo", "--help"]);
        let Ok(Arguments {
            command: Task::Demo { arguments },
        }) = parsed
        else {
            panic!("{parsed:?}")
        };
        assert_eq!(lab::with_subcommand("demo", arguments), ["demo", "--help"]);
    }
}
