//! The product under observation: one aggregator and one agent a node, as real processes. Starts and kills enter; what
//! they report leaves.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use flowskew_aggregator::report::ServiceReport;
use futures::future::try_join_all;
use tokio::process::Command;

use super::http;
use super::metrics::Page;
use super::process::Process;
use super::report;
use crate::scenario::agents::Agents;

/// How often agents report and how wide time buckets are. The lab is in a hurry.
const INTERVAL: &str = "1s";

/// Where the programs of the product are.
#[derive(Debug, Clone)]
pub struct Programs {
    /// flowskew-lab itself, for pods and clients.
    pub lab: PathBuf,
    /// flowskew-agent.
    pub agent: PathBuf,
    /// flowskew-aggregator.
    pub aggregator: PathBuf,
}

impl Programs {
    /// The programs that lie beside this one.
    ///
    /// # Errors
    /// One is missing.
    pub fn beside_this() -> Result<Self> {
        let lab = std::env::current_exe().context("cannot find out where this program is")?;
        let beside = |name: &str| {
            let path = lab.with_file_name(name);
            if path.is_file() {
                return Ok(path);
            }
            bail!(
                "{} is missing: build it with `cargo build -p {name}`, or run `cargo xtask demo`",
                path.display()
            )
        };
        Ok(Self {
            agent: beside("flowskew-agent")?,
            aggregator: beside("flowskew-aggregator")?,
            lab,
        })
    }
}

/// Asks the agent whether it can run on this machine.
///
/// # Errors
/// It cannot; the message has what the agent says is missing, and what to do.
pub async fn preflight(programs: &Programs) -> Result<()> {
    let check = Command::new(&programs.agent)
        .arg("check")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = check
        .await
        .with_context(|| format!("cannot run {}", programs.agent.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    bail!("the agent cannot run on this machine:\n{}", text.trim_end());
}

/// Where the agent of a node runs.
#[derive(Debug, Clone)]
pub struct AgentPlace {
    /// Name of the node.
    pub node: String,
    /// File of its network namespace.
    pub netns: PathBuf,
    /// Control group of all that runs on it.
    pub cgroup: PathBuf,
    /// Folder on a BPF filesystem, which nobody else has; `None`: it pins nothing.
    pub pins: Option<PathBuf>,
}

/// The running processes.
#[derive(Debug)]
pub struct Observers {
    programs: Programs,
    logs: PathBuf,
    grpc: SocketAddr,
    aggregator: Process,
    places: BTreeMap<String, AgentPlace>,
    options: Vec<String>,
    agents: BTreeMap<String, Process>,
    killed: BTreeSet<String>,
}

impl Observers {
    /// Starts the aggregator and an agent in each place, and waits until all are ready.
    ///
    /// # Errors
    /// One does not start or is not ready in time; the message has the end of its log.
    pub async fn start(
        programs: &Programs,
        api_url: &str,
        places: Vec<AgentPlace>,
        options: &Agents,
        logs: &Path,
    ) -> Result<Self> {
        let [grpc, http] = free_ports()?;
        let arguments = [
            ("--grpc-listen", grpc.to_string()),
            ("--http-listen", http.to_string()),
            ("--kube-api", api_url.to_owned()),
            ("--report-interval", INTERVAL.to_owned()),
            ("--bucket", INTERVAL.to_owned()),
        ];
        let url = format!("http://{http}");
        let aggregator = Process::start("aggregator", &programs.aggregator, &flags(&arguments), logs, url)?;
        let mut observers = Self {
            programs: programs.clone(),
            logs: logs.to_owned(),
            grpc,
            aggregator,
            places: places.into_iter().map(|place| (place.node.clone(), place)).collect(),
            options: options.flags(),
            agents: BTreeMap::new(),
            killed: BTreeSet::new(),
        };
        observers.aggregator.ready().await?;
        for node in observers.places.keys().cloned().collect::<Vec<_>>() {
            observers.spawn_agent(&node)?;
        }
        observers.ready().await?;
        Ok(observers)
    }

    /// Waits until all agents that run are ready.
    ///
    /// # Errors
    /// One ends, or is not ready in time.
    pub async fn ready(&mut self) -> Result<()> {
        try_join_all(self.agents.values_mut().map(Process::ready))
            .await
            .map(drop)
    }

    /// Nodes whose agent runs.
    pub fn nodes(&self) -> Vec<String> {
        self.agents.keys().cloned().collect()
    }

    /// Kills the agent of a node at once.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill_agent(&mut self, node: &str) -> Result<()> {
        let agent = self
            .agents
            .remove(node)
            .with_context(|| format!("{node} has no agent"))?;
        self.killed.insert(node.to_owned());
        agent.kill().await
    }

    /// Starts the agent of a node, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_agent(&mut self, node: &str) -> Result<()> {
        self.restart_agent(node)?.ready().await
    }

    /// Starts the agent of a node, and does not wait for it.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart_agent(&mut self, node: &str) -> Result<&mut Process> {
        self.killed.remove(node);
        self.spawn_agent(node)
    }

    fn spawn_agent(&mut self, node: &str) -> Result<&mut Process> {
        let [http] = free_ports()?;
        let place = self
            .places
            .get(node)
            .with_context(|| format!("there is no node {node}"))?;
        // Without pins too: no agent of the lab may touch what a real one has pinned on this machine.
        let pins = place.pins.clone().unwrap_or_else(|| self.logs.join("no-pins"));
        let arguments = [
            ("--node", node.to_owned()),
            ("--aggregator", format!("http://{}", self.grpc)),
            ("--report-interval", INTERVAL.to_owned()),
            ("--http-listen", http.to_string()),
            ("--node-netns", place.netns.display().to_string()),
            ("--cgroup-root", place.cgroup.display().to_string()),
            ("--pin-dir", pins.display().to_string()),
        ];
        let mut arguments = flags(&arguments);
        arguments.insert(0, "run".to_owned());
        // All agents of the lab share one kernel: without a folder of its own, none may count for another.
        arguments.extend(place.pins.is_none().then(|| "--no-pin".to_owned()));
        arguments.extend(self.options.iter().cloned());
        let name = format!("agent-{node}");
        let agent = Process::start(
            &name,
            &self.programs.agent,
            &arguments,
            &self.logs,
            format!("http://{http}"),
        )?;
        Ok(match self.agents.entry(node.to_owned()) {
            Entry::Vacant(free) => free.insert(agent),
            Entry::Occupied(_) => bail!("the agent of {node} runs already"),
        })
    }

    /// Nodes whose agent was killed and not started again.
    pub fn killed(&self) -> &BTreeSet<String> {
        &self.killed
    }

    /// URL of the aggregator's HTTP port.
    pub fn aggregator_url(&self) -> &str {
        self.aggregator.url()
    }

    /// The metrics page of each agent.
    ///
    /// # Errors
    /// An agent does not answer; the message has the end of its log.
    pub async fn agent_pages(&mut self) -> Result<BTreeMap<String, Page>> {
        let pages = self.agents.iter_mut().map(|(node, agent)| async move {
            let text = http::get_ok(format!("{}/metrics", agent.url())).await;
            Ok::<_, anyhow::Error>((node.clone(), Page::parse(&text.with_context(|| agent.log_tail())?)))
        });
        Ok(try_join_all(pages).await?.into_iter().collect())
    }

    /// The aggregator's report about a Service port over the window that began at `since_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// The aggregator does not answer, or with something else.
    pub async fn report(&self, namespace: &str, service: &str, port: u16, since_ms: u64) -> Result<ServiceReport> {
        let base = self.aggregator.url();
        let url = format!("{base}/api/v1/services/{namespace}/{service}/report?port={port}&since={since_ms}");
        let text = http::get_ok(url).await.with_context(|| self.aggregator.log_tail())?;
        report::parse(&text)
    }

    /// Ends all processes.
    pub async fn terminate(self) {
        // Agents first: each sends its last report to an aggregator that is still there.
        futures::future::join_all(self.agents.into_values().map(Process::terminate)).await;
        self.aggregator.terminate().await;
    }
}

fn flags(pairs: &[(&str, String)]) -> Vec<String> {
    pairs
        .iter()
        .flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()])
        .collect()
}

/// Ports of 127.0.0.1 that nobody has now. All are held until all are found, so that they differ.
fn free_ports<const N: usize>() -> Result<[SocketAddr; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    for port in &mut ports {
        let listener = TcpListener::bind(*port).context("no free port on 127.0.0.1")?;
        *port = listener.local_addr().context("no free port on 127.0.0.1")?;
        held.push(listener);
    }
    Ok(ports)
}
