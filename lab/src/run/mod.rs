//! Runs a scenario from nothing to nothing: builds the network, starts the product, plays the timeline, and removes all
//! of it, however it ends. A scenario enters; an outcome leaves.

mod books;
mod checking;
mod client_truth;
mod cluster;
pub mod console;
mod due;
pub mod evaluate;
mod exact;
mod http;
mod identity;
pub mod interrupt;
mod kills;
pub mod logs;
mod losses;
mod metrics;
pub mod observe;
mod observers;
mod opening;
mod pins;
mod process;
mod report;
mod requests;
mod services;
mod table;
mod timeline;
mod truth;
mod turn;
mod why;
mod words;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::net::{Family, Network, ProxyMode};
use crate::scenario::Scenario;
pub use checking::CheckResult;
use cluster::Cluster;
use console::Console;
use interrupt::Interrupt;
use logs::Logs;
use observers::Observers;
pub use observers::Programs;
use timeline::Timeline;
use turn::Turn;

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The programs to run.
    pub programs: Programs,
    /// The mode of kube-proxy.
    pub mode: ProxyMode,
    /// Another address family than the scenario's.
    pub family: Option<Family>,
    /// Leave all running at the end, until the run is asked to stop.
    pub keep: bool,
}

/// What came of a run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Name of the scenario.
    pub scenario: String,
    /// Its description.
    pub description: String,
    /// `iptables` or `nftables`.
    pub mode: ProxyMode,
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// No error, and each check holds.
    pub pass: bool,
    /// Why the run broke off.
    pub error: Option<String>,
    /// From the start to the end of cleaning up.
    pub duration_seconds: f64,
    /// Flows that clients opened on request; reconnects not among them.
    pub flows_opened: u64,
    /// The checks that were made.
    pub checks: Vec<CheckResult>,
    /// Why cleaning up failed.
    pub left_behind: Option<String>,
    /// Where the logs of the processes are; only when the run did not pass.
    pub logs: Option<PathBuf>,
}

/// What a run has built so far; each part is removed when the run ends.
#[derive(Default)]
struct Stage {
    cluster: Option<Cluster>,
    observers: Option<Observers>,
    checks: Vec<CheckResult>,
    flows_opened: u64,
    turn: Option<Turn>,
}

/// Runs `scenario`. What goes wrong is in the outcome.
pub async fn run(scenario: &Scenario, options: &Options, console: &mut Console, interrupt: &Interrupt) -> Outcome {
    let started = Instant::now();
    let mut stage = Stage::default();
    let mut logs = None;
    let result = match Logs::make() {
        Ok(folder) => {
            let folder = logs.insert(folder);
            interrupt
                .or(perform(scenario, options, console, interrupt, &mut stage, folder))
                .await
        }
        Err(error) => Err(error),
    };
    let cleaned = stage.tear_down(console).await;
    let pass = result.is_ok() && cleaned.is_ok() && stage.checks.iter().all(|check| check.pass);
    // An interrupted run leaves nothing behind.
    let keep_logs = !pass && !interrupt.is_stopped();
    Outcome {
        scenario: scenario.name.clone(),
        description: scenario.description.clone(),
        mode: options.mode,
        family: options.family.unwrap_or_else(|| scenario.family.into()).to_string(),
        pass,
        error: result.err().map(|error| format!("{error:#}")),
        left_behind: cleaned.err().map(|error| format!("{error:#}")),
        duration_seconds: started.elapsed().as_secs_f64(),
        flows_opened: stage.flows_opened,
        checks: stage.checks,
        logs: logs.filter(|_| keep_logs).and_then(Logs::keep),
    }
}

async fn perform(
    scenario: &Scenario,
    options: &Options,
    console: &mut Console,
    interrupt: &Interrupt,
    stage: &mut Stage,
    logs: &Logs,
) -> Result<()> {
    let family = options.family.unwrap_or_else(|| scenario.family.into());
    Network::preflight(options.mode, family)?;
    observers::preflight(&options.programs).await?;
    stage.turn = Some(turn::take(console).await?);
    let (nodes, pods) = (scenario.nodes.len(), scenario.pods.pods().len());
    let rules = mode_name(options.mode);
    console.step(&format!(
        "Building a network: nodes {nodes}, pods {pods}, {family}, {rules} rules."
    ));
    let cluster = Cluster::create(scenario, family, options.mode, options.programs.lab.clone()).await?;
    let cluster = stage.cluster.insert(cluster);
    console.step("Starting the aggregator, and an agent for each node.");
    let pins = match scenario.agents.pins {
        true => Some(pins::mount(&cluster.network().folder()).await?),
        false => None,
    };
    let places = cluster.agent_places(pins.as_deref())?;
    let url = cluster.api_url();
    let observers = Observers::start(&options.programs, &url, places, &scenario.agents, logs.path()).await?;
    let observers = stage.observers.insert(observers);
    let mut timeline = Timeline::new(cluster, observers, console, &scenario.agents)?;
    let mut result = Ok(());
    for step in &scenario.steps {
        result = timeline
            .play(step)
            .await
            .with_context(|| format!("the step `{}` failed", step.word()));
        if result.is_err() {
            break;
        }
    }
    (stage.checks, stage.flows_opened) = timeline.finish();
    result?;
    if options.keep {
        let url = stage
            .observers
            .as_ref()
            .map_or("", |observers| observers.aggregator_url());
        console.step(&format!(
            "All is kept until Ctrl-C. Aggregator: {url}, logs: {}",
            logs.path().display()
        ));
        interrupt.stopped().await;
    }
    Ok(())
}

impl Stage {
    async fn tear_down(&mut self, console: &mut Console) -> Result<()> {
        if self.cluster.is_some() {
            console.step("Cleaning up.");
        }
        if let Some(observers) = self.observers.take() {
            observers.terminate().await;
        }
        let destroyed = match self.cluster.take() {
            Some(cluster) => cluster.destroy().await,
            None => Ok(()),
        };
        self.turn = None;
        destroyed
    }
}

impl Outcome {
    /// Fails when the run did not pass, with what to look at.
    ///
    /// # Errors
    /// The run did not pass.
    pub fn into_result(self) -> Result<()> {
        let failed = |check: &&CheckResult| !check.pass;
        let names: Vec<&str> = self
            .checks
            .iter()
            .filter(failed)
            .map(|check| check.name.as_str())
            .collect();
        let expectations = (!names.is_empty()).then(|| format!("expectations do not hold: {}", names.join(", ")));
        let left_behind = self.left_behind.map(|why| format!("{why}; run `flowskew-lab clean`"));
        let logs = self.logs.map(|logs| format!("the logs are in {}", logs.display()));
        let problems: Vec<String> = [self.error, expectations, left_behind].into_iter().flatten().collect();
        if problems.is_empty() {
            return Ok(());
        }
        bail!("{}", problems.into_iter().chain(logs).collect::<Vec<_>>().join("\n"));
    }
}

/// The mode as kube-proxy spells it.
pub fn mode_name(mode: ProxyMode) -> &'static str {
    match mode {
        ProxyMode::Iptables => "iptables",
        ProxyMode::Nftables => "nftables",
    }
}
