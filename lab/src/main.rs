//! flowskew-lab: a Kubernetes-shaped network on this machine, for the demo, the tests and scenario files.
//! A command line enters; an exit code leaves: 0 all holds, 1 something does not, 2 wrong usage, 130 interrupted.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use flowskew_lab::bundled::DEMO;
use flowskew_lab::net::{self, ProxyMode};
use flowskew_lab::run::console::Console;
use flowskew_lab::run::interrupt::{self, Interrupt, Interrupted};
use flowskew_lab::run::logs;
use flowskew_lab::run::{self, Options, Outcome, Programs};
use flowskew_lab::scenario::spec::AddressFamily;
use flowskew_lab::scenario::value::Span;
use flowskew_lab::scenario::{Scenario, ScenarioError};
use flowskew_lab::{clients, pod, suite};

/// Builds a Kubernetes-shaped network in namespaces of this machine, opens real connections through it, and compares what
/// flowskew reports with what is so. Needs root.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:
  flowskew-lab demo                                       the story, in about a minute
  flowskew-lab run scenario.yaml --mode nftables          your own; exits 1 when an expectation does not hold
  flowskew-lab run scenario.yaml --keep                   leave it running, to look around
  flowskew-lab clean                                      after a run that was killed"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a scenario file, and exit 1 when an expectation does not hold.
    Run(RunArgs),
    /// Tell the story of an uneven Service: the skew, its cause, the remedy, and what remains.
    Demo(DemoArgs),
    /// Run all bundled scenarios, in both modes of kube-proxy and once over IPv6, and a soak once.
    Suite(SuiteArgs),
    /// Remove what runs that were killed have left behind, and the logs of all that are over.
    Clean,
    #[command(hide = true)]
    Pod(pod::PodArgs),
    #[command(hide = true)]
    Clients(clients::ClientsArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// The scenario file.
    file: PathBuf,
    /// The mode of kube-proxy.
    #[arg(long, value_enum, default_value_t = ProxyMode::Iptables)]
    mode: ProxyMode,
    /// Another address family than the file says.
    #[arg(long, value_enum)]
    family: Option<AddressFamily>,
    /// Let each `open` that has a time last so many minutes instead.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=60))]
    minutes: Option<u64>,
    /// Write what was expected, seen and found to this file, as JSON.
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Leave all running at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, clap::Args)]
struct DemoArgs {
    /// The mode of kube-proxy.
    #[arg(long, value_enum, default_value_t = ProxyMode::Iptables)]
    mode: ProxyMode,
}

#[derive(Debug, clap::Args)]
struct SuiteArgs {
    /// Only scenarios with this in their name.
    #[arg(long, default_value = "")]
    only: String,
}

/// Exit code of a file or a command line that makes no sense, as clap has it.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        // These two enter a network namespace, which must happen before the process has threads.
        Command::Pod(args) => pod::main(args),
        Command::Clients(args) => clients::main(args),
        Command::Run(args) => serve(async |interrupt| run_file(args, interrupt).await),
        Command::Demo(args) => serve(async |interrupt| demo(&args, interrupt).await),
        Command::Suite(args) => {
            serve(async |interrupt| suite::run_all(&Programs::beside_this()?, &args.only, interrupt).await)
        }
        Command::Clean => clean(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => ExitCode::from(interrupt::EXIT_CODE),
        Err(error) => {
            // Whoever has closed the pipe still gets the exit code.
            let _gone = writeln!(std::io::stderr(), "flowskew-lab: {error:#}");
            if error.is::<ScenarioError>() {
                ExitCode::from(WRONG_USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn serve(work: impl AsyncFnOnce(&Interrupt) -> Result<()>) -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("FLOWSKEW_LOG"))
        .init();
    // Everything is started from the main thread, which lives to the end: processes of the lab end with the thread that
    // started them.
    tokio::runtime::Runtime::new()
        .context("cannot start the runtime")?
        .block_on(async {
            let interrupt = Interrupt::listen()?;
            work(&interrupt).await
        })
}

async fn run_file(args: RunArgs, interrupt: &Interrupt) -> Result<()> {
    let mut scenario = Scenario::load(&args.file)?;
    if let Some(minutes) = args.minutes {
        ensure!(
            scenario.last(Span::minutes(minutes)),
            "--minutes is for scenarios with an `open` that has `for`: {} has none",
            args.file.display()
        );
    }
    let options = Options {
        programs: Programs::beside_this()?,
        mode: args.mode,
        family: args.family.map(Into::into),
        keep: args.keep,
    };
    let cannot_write = |path: &Path| format!("cannot write {}", path.display());
    // Before the run: nobody wants to learn of a wrong path after it.
    let json = match &args.json {
        Some(path) => Some((path, File::create(path).with_context(|| cannot_write(path))?)),
        None => None,
    };
    let mut console = Console::new();
    let outcome = run::run(&scenario, &options, &mut console, interrupt).await;
    if let Some((path, mut file)) = json {
        serde_json::to_writer_pretty(&mut file, &outcome).with_context(|| cannot_write(path))?;
        writeln!(file).with_context(|| cannot_write(path))?;
    }
    finish(outcome, &mut console, interrupt)?;
    console.step("All expectations hold.");
    Ok(())
}

async fn demo(args: &DemoArgs, interrupt: &Interrupt) -> Result<()> {
    let scenario = DEMO.scenario()?;
    let options = Options {
        programs: Programs::beside_this()?,
        mode: args.mode,
        family: None,
        keep: false,
    };
    let mut console = Console::new();
    let outcome = run::run(&scenario, &options, &mut console, interrupt).await;
    let seconds = outcome.duration_seconds;
    finish(outcome, &mut console, interrupt)?;
    console.text(&format!(
        "IN SHORT\n\
         The load balancer treats nodes alike, not pods: a pod that is alone on its node\n\
         got three times as much as one that shares it with two others. Spreading the pods\n\
         made new connections even at once; established ones stay skewed until they close.\n\
         All promised numbers were measured in this run, in {seconds:.0} s. Nothing is left behind."
    ));
    Ok(())
}

/// The end of one run as a result. After an interrupt only what is left behind matters.
fn finish(outcome: Outcome, console: &mut Console, interrupt: &Interrupt) -> Result<()> {
    if !interrupt.is_stopped() {
        return outcome.into_result();
    }
    console.step(&match outcome.left_behind {
        Some(why) => format!("Interrupted, and something is left behind: {why}. Run `flowskew-lab clean`."),
        None => "Interrupted; nothing is left behind.".to_owned(),
    });
    Err(Interrupted.into())
}

fn clean() -> Result<()> {
    let report = net::clean_stale()?;
    println!("stale runs removed: {}", report.removed.len());
    println!("log folders removed: {}", logs::remove_unused()?);
    if !report.in_use.is_empty() {
        println!("runs that are alive, left alone: {}", report.in_use.len());
    }
    Ok(())
}
