//! Plays the steps of a scenario. Steps enter one by one; flows, pods and agents that come and go, progress in plain
//! words, and the results of checks leave.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use tokio::time::sleep;

use super::books::{Mark, Zeroes};
use super::cluster::Cluster;
use super::console::Console;
use super::due::losses_due;
use super::evaluate::{Row, evaluate};
use super::exact::{self, Exact};
use super::observe::Observation;
use super::observers::Observers;
use super::truth::look;
use super::{opening, table, words};
use crate::clients::CloseFlows;
use crate::net::StopPod;
use crate::scenario::Check;
use crate::scenario::agents::Agents;
use crate::scenario::expect::START;
use crate::scenario::lists::Moves;
use crate::scenario::open::Open;
use crate::scenario::spec::{Close, Step};

/// How long counts may take to agree; then the check is made with what there is.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Counts that agree must agree again after this time: longer than the report interval, so that a count that comes late
/// or twice is seen.
const STILL_AGREE_AFTER: Duration = Duration::from_millis(1_200);
/// A mark lies this long after the last flow before it, so that no time bucket holds flows of both sides.
const MARK_PAUSE: Duration = Duration::from_millis(2_200);

/// How often all sides must agree before the timeline goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    Once,
    /// Once more a moment later.
    Twice,
}

/// What came of one check.
#[derive(Debug, Clone, Serialize)]
pub struct CheckResult {
    /// Its title.
    pub name: String,
    /// When, in seconds since the start of the run.
    pub at_seconds: f64,
    /// Do all expectations hold?
    pub pass: bool,
    /// Each expectation.
    pub rows: Vec<Row>,
    /// What was seen.
    pub seen: Observation,
}

/// Everything that steps act on.
pub struct Timeline<'a> {
    cluster: &'a mut Cluster,
    observers: &'a mut Observers,
    console: &'a mut Console,
    agents: &'a Agents,
    zeroes: Zeroes,
    marks: BTreeMap<String, Mark>,
    /// Clients that lost their flow may come back until then.
    reconnects_until: Option<Instant>,
    longest_reconnect: Duration,
    opens: u64,
    flows_opened: u64,
    checks: Vec<CheckResult>,
}

impl<'a> Timeline<'a> {
    /// The start of a scenario: all runs, no flow is open.
    ///
    /// # Errors
    /// The clock is not usable.
    pub fn new(
        cluster: &'a mut Cluster,
        observers: &'a mut Observers,
        console: &'a mut Console,
        agents: &'a Agents,
    ) -> Result<Self> {
        Ok(Self {
            cluster,
            observers,
            console,
            agents,
            zeroes: Zeroes::default(),
            marks: BTreeMap::from([(START.to_owned(), Mark::now(None)?)]),
            reconnects_until: None,
            longest_reconnect: Duration::ZERO,
            opens: 0,
            flows_opened: 0,
            checks: Vec::new(),
        })
    }

    /// The checks so far, and the flows that were opened.
    pub fn finish(self) -> (Vec<CheckResult>, u64) {
        (self.checks, self.flows_opened)
    }

    /// Plays one step.
    ///
    /// # Errors
    /// The step could not be played. A check that does not hold is a result, not an error.
    pub async fn play(&mut self, step: &Step) -> Result<()> {
        if !matches!(step, Step::Say(_) | Step::Show(_)) {
            self.console.step(&words::step(step));
        }
        match step {
            Step::Open(open) => self.open(open).await,
            Step::Close(close) => self.close(close).await,
            Step::Wait(time) => {
                sleep(time.value.get()).await;
                Ok(())
            }
            Step::Settle => self.settle(START, None, Exact::ALL, Times::Twice).await.map(drop),
            Step::Mark(mark) => {
                self.settle_opened().await?;
                sleep(MARK_PAUSE).await;
                let books = self.cluster.books().await?;
                self.marks.insert(mark.value.clone(), Mark::now(Some(books))?);
                Ok(())
            }
            Step::Move(moves) => self.relocate(&pairs(&moves.pods.value), moves.how).await,
            Step::Restart(restart) => {
                let mut pods = Vec::new();
                for pod in &restart.pods {
                    pods.push((pod.value.clone(), self.cluster.pod(&pod.value)?.view.node.clone()));
                }
                self.relocate(&pods, restart.how).await
            }
            Step::Replace(replace) => {
                self.settle_opened().await?;
                self.cluster.replace(&pairs(&replace.pods.value), replace.how).await?;
                self.expect_reconnects();
                Ok(())
            }
            Step::KeepSending(nodes) => {
                let nodes: Vec<String> = nodes.value.iter().map(|node| node.value.clone()).collect();
                self.cluster.keep_sending(&nodes).await
            }
            Step::Scale(scale) => {
                let pods = usize::try_from(scale.pods.get()).unwrap_or(usize::MAX);
                self.cluster.scale(&scale.node.value, pods).await?;
                self.expect_reconnects();
                Ok(())
            }
            Step::KillAgent(node) => {
                self.settle_opened().await?;
                self.observers.kill_agent(&node.value).await
            }
            Step::StartAgent(node) => {
                if !self.agents.pins {
                    self.zeroes.set(&node.value, self.cluster.books().await?);
                }
                self.observers.start_agent(&node.value).await
            }
            Step::Check(check) => self.check(check).await,
            Step::Say(text) => {
                self.console.text(text);
                Ok(())
            }
            Step::Show(show) => {
                let since = show.since.as_ref().map_or(START, |mark| &mark.value);
                let seen = self.settle(since, None, Exact::ALL, Times::Once).await?;
                self.console.text(&flowskew_aggregator::cli::render_table(&seen.report));
                Ok(())
            }
        }
    }

    async fn open(&mut self, open: &Open) -> Result<()> {
        if let Some(reconnect) = &open.reconnect {
            self.longest_reconnect = self.longest_reconnect.max(reconnect.value.max.get());
        }
        let family = self.cluster.network().plan().family;
        let clients = self
            .cluster
            .clients(open.to.as_ref().map(|to| to.value.as_str()))?
            .clone();
        let opening = opening::Opening {
            clients,
            family,
            number: &mut self.opens,
        };
        let opened = opening.run(open, self.observers, self.console).await?;
        self.flows_opened += opened.opened;
        self.console
            .result(&words::opened(opened.opened, opened.failed, opened.took));
        Ok(())
    }

    async fn close(&mut self, close: &Close) -> Result<()> {
        let pod = close.pod.as_ref().map(|pod| self.cluster.pod(&pod.value)).transpose()?;
        let mut which = CloseFlows {
            group: close.group.as_ref().map(|group| group.value.clone()),
            pod: pod.map(|running| running.instance.clone()),
            limit: close.flows.map(|flows| flows.get()),
            how: close.ends,
            seed: self.opens,
        };
        let mut closed = 0;
        for clients in self.cluster.all_clients() {
            let now = clients.close(which.clone()).await?;
            closed += now;
            which.limit = which.limit.map(|limit| limit.saturating_sub(now));
        }
        self.console.result(&format!("{closed} closed"));
        Ok(())
    }

    async fn relocate(&mut self, pods: &[(String, String)], how: StopPod) -> Result<()> {
        // Agents forget addresses that are no endpoint any more.
        self.settle_opened().await?;
        self.cluster.relocate(pods, how).await?;
        self.expect_reconnects();
        Ok(())
    }

    fn expect_reconnects(&mut self) {
        self.reconnects_until = Some(Instant::now() + self.longest_reconnect + LOOK_INTERVAL);
    }

    async fn settle_opened(&mut self) -> Result<()> {
        self.settle(START, None, Exact::OPENED, Times::Once).await.map(drop)
    }

    /// Waits until all sides agree on `what`, or for the timeout. The window of the reports begins at the mark `since`.
    async fn settle(&mut self, since: &str, service: Option<&str>, what: Exact, times: Times) -> Result<Observation> {
        if let Some(until) = self.reconnects_until.take() {
            sleep(until.saturating_duration_since(Instant::now())).await;
        }
        let Some(since) = self.marks.get(since) else {
            bail!("there is no mark {since}")
        };
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        let mut agreed_at = None;
        loop {
            let looked = look(self.cluster, self.observers, &self.zeroes, since, service).await?;
            let at_rest = (!what.opened || looked.none_opened) && (!what.ends() || looked.none_closed);
            let agreed = at_rest && exact::rows(what, &looked.seen).iter().all(|row| row.pass);
            let since_when = agreed.then(|| *agreed_at.get_or_insert_with(Instant::now));
            agreed_at = since_when;
            let enough = since_when.is_some_and(|at| times == Times::Once || at.elapsed() >= STILL_AGREE_AFTER);
            if enough || Instant::now() > deadline {
                return Ok(looked.seen);
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    async fn check(&mut self, check: &Check) -> Result<()> {
        let since = check.since.as_ref().map_or(START, |mark| &mark.value);
        let service = check.service.as_ref().map(|service| service.value.as_str());
        let mut seen = self.settle(since, service, Exact::of(check), Times::Twice).await?;
        let pages = self.observers.agent_pages().await?;
        seen.losses_due = losses_due(&check.losses, self.agents, &seen, &pages).await?;
        let rows = evaluate(check, &seen);
        let pass = rows.iter().all(|row| row.pass);
        self.console.text(&table::rows(&rows));
        let name = if check.name.is_empty() {
            format!("check {}", self.checks.len() + 1)
        } else {
            check.name.clone()
        };
        let at_seconds = self.console.elapsed().as_secs_f64();
        self.checks.push(CheckResult {
            name,
            at_seconds,
            pass,
            rows,
            seen,
        });
        Ok(())
    }
}

fn pairs(moves: &Moves) -> Vec<(String, String)> {
    moves
        .0
        .iter()
        .map(|(pod, to)| (pod.clone(), to.value.clone()))
        .collect()
}
