//! Plays the steps of a scenario. Steps enter one by one; flows, pods and agents that come and go, and progress in plain words,
//! leave. Checks are made in `checking`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use super::books::{Mark, Sources, Zeroes};
use super::checking::{CheckResult, LOOK_INTERVAL, Times};
use super::cluster::Cluster;
use super::console::Console;
use super::exact::Exact;
use super::observers::Observers;
use super::{mode_name, opening, words};
use crate::clients::CloseFlows;
use crate::net::StopPod;
use crate::scenario::agents::Agents;
use crate::scenario::expect::START;
use crate::scenario::expect_why::When;
use crate::scenario::lists::Moves;
use crate::scenario::open::Open;
use crate::scenario::spec::{Close, Step};

/// A mark lies this long after the last flow before it, so that no time bucket holds flows of both sides.
const MARK_PAUSE: Duration = Duration::from_millis(2_200);
/// When pods or agents have changed, the window of a report begins one report later, with the next time bucket. Flows of an
/// `open` are in the window whole.
const WINDOW_PAUSE: Duration = Duration::from_millis(3_000);

/// Everything that steps act on.
pub struct Timeline<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) observers: &'a mut Observers,
    pub(super) console: &'a mut Console,
    pub(super) agents: &'a Agents,
    pub(super) zeroes: Zeroes,
    pub(super) marks: BTreeMap<String, Mark>,
    /// The window of reports begins at this moment, or was begun when there is none.
    window_begins: Option<Instant>,
    /// Clients that lost their flow may come back until then.
    pub(super) reconnects_until: Option<Instant>,
    longest_reconnect: Duration,
    opens: u64,
    flows_opened: u64,
    pub(super) checks: Vec<CheckResult>,
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
            marks: BTreeMap::from([(START.to_owned(), Mark::now(None, Sources::new())?)]),
            window_begins: None,
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
                let sources = self.cluster.sources().await?;
                self.marks.insert(mark.value.clone(), Mark::now(Some(books), sources)?);
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
                self.pods_changed();
                Ok(())
            }
            Step::KeepSending(nodes) => {
                let nodes: Vec<String> = nodes.value.iter().map(|node| node.value.clone()).collect();
                self.cluster.keep_sending(&nodes).await
            }
            Step::Scale(scale) => {
                let pods = usize::try_from(scale.pods.get()).unwrap_or(usize::MAX);
                self.cluster.scale(&scale.node.value, pods).await?;
                self.pods_changed();
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
                self.observers.start_agent(&node.value).await?;
                self.window_begins = Some(Instant::now() + WINDOW_PAUSE);
                Ok(())
            }
            Step::Check(check) => match check.when {
                Some(When { mode }) if mode != self.cluster.network().plan().mode => {
                    self.console
                        .result(&format!("left out: only in {} mode", mode_name(mode)));
                    Ok(())
                }
                _ => self.check(check).await,
            },
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
        if let Some(moment) = self.window_begins.take() {
            sleep(moment.saturating_duration_since(Instant::now())).await;
        }
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
        self.pods_changed();
        Ok(())
    }

    fn pods_changed(&mut self) {
        self.window_begins = Some(Instant::now() + WINDOW_PAUSE);
        self.reconnects_until = Some(Instant::now() + self.longest_reconnect + LOOK_INTERVAL);
    }
}

fn pairs(moves: &Moves) -> Vec<(String, String)> {
    moves
        .0
        .iter()
        .map(|(pod, to)| (pod.clone(), to.value.clone()))
        .collect()
}
