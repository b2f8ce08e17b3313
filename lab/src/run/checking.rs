//! Waits until all sides agree, and makes checks. A check enters; what came of it leaves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::time::sleep;

use super::books::Mark;
use super::client_truth::ClientTruth;
use super::due::losses_due;
use super::evaluate::{Row, evaluate};
use super::exact::{self, Exact};
use super::observe::Observation;
use super::table;
use super::timeline::Timeline;
use super::truth::look;
use crate::scenario::Check;
use crate::scenario::expect::START;

/// How long counts may take to agree; then the check is made with what there is.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two looks.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Counts that agree must agree again after this time: longer than the report interval, so that a count that comes late
/// or twice is seen.
const STILL_AGREE_AFTER: Duration = Duration::from_millis(1_200);

/// How often all sides must agree before the timeline goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
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

impl Timeline<'_> {
    /// Waits until all sides agree on what has opened.
    ///
    /// # Errors
    /// One side does not answer.
    pub(super) async fn settle_opened(&mut self) -> Result<()> {
        self.settle(START, None, Exact::OPENED, Times::Once).await.map(drop)
    }

    /// Waits until all sides agree on `what`, or for the timeout. The window of the reports begins at the mark `since`.
    ///
    /// # Errors
    /// One side does not answer.
    pub(super) async fn settle(
        &mut self,
        since: &str,
        service: Option<&str>,
        what: Exact,
        times: Times,
    ) -> Result<Observation> {
        if let Some(until) = self.reconnects_until.take() {
            sleep(until.saturating_duration_since(Instant::now())).await;
        }
        let since = marked(&self.marks, since)?;
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

    /// Makes a check, and keeps its result.
    ///
    /// # Errors
    /// One side does not answer.
    pub(super) async fn check(&mut self, check: &Check) -> Result<()> {
        let since = check.since.as_ref().map_or(START, |mark| &mark.value);
        let service = check.service.as_ref().map(|service| service.value.as_str());
        let mut seen = self.settle(since, service, Exact::of(check), Times::Twice).await?;
        let pages = self.observers.agent_pages().await?;
        if check
            .clients
            .as_ref()
            .is_some_and(|clients| clients.value.needs_truth())
        {
            let to = service.unwrap_or(&self.cluster.main().name);
            let then = &marked(&self.marks, since)?.sources;
            seen.clients = Some(ClientTruth::since(to, then, &self.cluster.sources().await?));
        }
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

fn marked<'a>(marks: &'a BTreeMap<String, Mark>, mark: &str) -> Result<&'a Mark> {
    marks.get(mark).with_context(|| format!("there is no mark {mark}"))
}
