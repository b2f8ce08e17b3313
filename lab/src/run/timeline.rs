//! Plays the steps of a scenario. Steps enter one by one; flows, pods and agents that come and go, progress in plain
//! words, and the results of checks leave.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use tokio::time::sleep;

use super::cluster::Cluster;
use super::console::Console;
use super::evaluate::{Row, evaluate};
use super::observe::Observation;
use super::observers::Observers;
use super::truth::{Zeroes, look, now_ms};
use super::{requests, table, words};
use crate::clients::{Clients, CloseFlows, OpenFlows, OpenSummary};
use crate::net::StopPod;
use crate::scenario::Check;
use crate::scenario::expect::{Exactness, START};
use crate::scenario::spec::{Close, Open, Step};

/// How long counts may take to agree; then the check is made with what there is.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Counts that agree must agree again after this time: longer than the report interval, so that a count that comes late
/// or twice is seen.
const STILL_AGREE_AFTER: Duration = Duration::from_millis(1_200);
/// A mark lies this long after the last flow before it, so that no time bucket holds flows of both sides.
const MARK_PAUSE: Duration = Duration::from_millis(2_200);
/// What all sides must agree on before the timeline goes on.
#[derive(Debug, Clone, Copy)]
struct Agreement {
    opened: bool,
    established: bool,
    /// They must agree again a moment later.
    twice: bool,
}

const ALL: Agreement = Agreement {
    opened: true,
    established: true,
    twice: false,
};
const OPENED: Agreement = Agreement {
    established: false,
    ..ALL
};

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
    zeroes: Zeroes,
    marks: BTreeMap<String, u64>,
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
    pub fn new(cluster: &'a mut Cluster, observers: &'a mut Observers, console: &'a mut Console) -> Result<Self> {
        Ok(Self {
            cluster,
            observers,
            console,
            zeroes: Zeroes::default(),
            marks: BTreeMap::from([(START.to_owned(), now_ms()?)]),
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
            Step::Settle => self.settle(START, Agreement { twice: true, ..ALL }).await.map(drop),
            Step::Mark(mark) => {
                self.settle(START, OPENED).await?;
                sleep(MARK_PAUSE).await;
                self.marks.insert(mark.value.clone(), now_ms()?);
                Ok(())
            }
            Step::Move(moves) => {
                let pods: Vec<_> = moves
                    .pods
                    .value
                    .0
                    .iter()
                    .map(|(pod, node)| (pod.clone(), node.value.clone()))
                    .collect();
                self.replace(&pods, moves.how).await
            }
            Step::Restart(restart) => {
                let mut pods = Vec::new();
                for pod in &restart.pods {
                    pods.push((pod.value.clone(), self.cluster.pod(&pod.value)?.view.node.clone()));
                }
                self.replace(&pods, restart.how).await
            }
            Step::Scale(scale) => {
                let pods = usize::try_from(scale.pods.get()).unwrap_or(usize::MAX);
                self.cluster.scale(&scale.node.value, pods).await?;
                self.expect_reconnects();
                Ok(())
            }
            Step::KillAgent(node) => {
                self.settle(START, OPENED).await?;
                self.observers.kill_agent(&node.value).await
            }
            Step::StartAgent(node) => {
                let counts = self.cluster.clients().counts().await?;
                self.zeroes.set(&node.value, &counts);
                self.observers.start_agent(&node.value).await
            }
            Step::Check(check) => self.check(check).await,
            Step::Say(text) => {
                self.console.text(text);
                Ok(())
            }
            Step::Show(show) => {
                let since = show.since.as_ref().map_or(START, |mark| &mark.value);
                let seen = self.settle(since, ALL).await?;
                self.console.text(&flowskew_aggregator::cli::render_table(&seen.report));
                Ok(())
            }
        }
    }

    async fn open(&mut self, open: &Open) -> Result<()> {
        let flows = open.flows.get();
        self.opens += 1;
        let [own, shared] = requests::open(open, self.cluster.network().plan().family, self.opens);
        if let Some(reconnect) = &open.reconnect {
            self.longest_reconnect = self.longest_reconnect.max(reconnect.value.max.get());
        }
        let clients = self.cluster.clients().clone();
        let before: u64 = clients.counts().await?.opened.values().sum();
        let mut progress = clients.progress();
        let started = Instant::now();
        let both = async { tokio::try_join!(open_some(&clients, own), open_some(&clients, shared)) };
        tokio::pin!(both);
        let summaries: (OpenSummary, OpenSummary) = loop {
            tokio::select! {
                result = &mut both => break result?,
                Ok(()) = progress.changed() => {
                    let opened = progress.borrow_and_update().opened.values().sum::<u64>().saturating_sub(before);
                    self.console.progress(&format!("{opened} of {flows} open"));
                }
            }
        };
        let (opened, failed) = [summaries.0, summaries.1]
            .iter()
            .fold((0, 0), |(opened, failed), summary| {
                (
                    opened + summary.opened.values().sum::<u64>(),
                    failed + summary.failed.values().sum::<u64>(),
                )
            });
        self.flows_opened += opened;
        self.console.result(&words::opened(opened, failed, started.elapsed()));
        Ok(())
    }

    async fn close(&mut self, close: &Close) -> Result<()> {
        let pod = close.pod.as_ref().map(|pod| self.cluster.pod(&pod.value)).transpose()?;
        let which = CloseFlows {
            group: close.group.as_ref().map(|group| group.value.clone()),
            pod: pod.map(|running| running.instance.clone()),
            limit: close.flows.map(|flows| flows.get()),
            how: close.ends,
            seed: self.opens,
        };
        let closed = self.cluster.clients().close(which).await?;
        self.console.result(&format!("{closed} closed"));
        Ok(())
    }

    async fn replace(&mut self, pods: &[(String, String)], how: StopPod) -> Result<()> {
        // Counts of pods that go can be compared no more.
        self.settle(START, OPENED).await?;
        self.cluster.replace(pods, how).await?;
        self.expect_reconnects();
        Ok(())
    }

    fn expect_reconnects(&mut self) {
        self.reconnects_until = Some(Instant::now() + self.longest_reconnect + LOOK_INTERVAL);
    }

    /// Waits until all sides agree on `what`, or for the timeout. The window of the report begins at the mark `since`.
    async fn settle(&mut self, since: &str, what: Agreement) -> Result<Observation> {
        if let Some(until) = self.reconnects_until.take() {
            sleep(until.saturating_duration_since(Instant::now())).await;
        }
        let since_ms = match self.marks.get(since) {
            Some(since_ms) => *since_ms,
            None => bail!("there is no mark {since}"),
        };
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        let mut agreed_at = None;
        loop {
            let looked = look(self.cluster, self.observers, &self.zeroes, since_ms).await?;
            let agreed = (!what.opened || looked.none_opened && looked.seen.agrees_on_opened())
                && (!what.established || looked.none_closed && looked.seen.agrees_on_established());
            let since_when = agreed.then(|| *agreed_at.get_or_insert_with(Instant::now));
            agreed_at = since_when;
            let enough = since_when.is_some_and(|at| !what.twice || at.elapsed() >= STILL_AGREE_AFTER);
            if enough || Instant::now() > deadline {
                return Ok(looked.seen);
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    async fn check(&mut self, check: &Check) -> Result<()> {
        let since = check.since.as_ref().map_or(START, |mark| &mark.value);
        let exact = |exactness| exactness == Exactness::Exact;
        let what = Agreement {
            opened: exact(check.opened),
            established: exact(check.established),
            twice: true,
        };
        let seen = self.settle(since, what).await?;
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

async fn open_some(clients: &Clients, request: OpenFlows) -> Result<OpenSummary> {
    if request.flows == 0 {
        return Ok(OpenSummary::default());
    }
    clients.open(request).await
}
