//! All sides at one moment. Cluster and observers enter; an observation leaves, and whether clients were at rest.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::cluster::Cluster;
use super::observe::{Observation, PodCounts};
use super::observers::Observers;
use crate::clients::Counts;

/// What clients had opened when the agent of a node began to count: the zero of its counters, by pod instance.
#[derive(Debug, Default)]
pub struct Zeroes(BTreeMap<String, BTreeMap<String, u64>>);

impl Zeroes {
    /// The agent of `node` begins to count now.
    pub fn set(&mut self, node: &str, counts: &Counts) {
        self.0.insert(node.to_owned(), counts.opened.clone());
    }

    fn opened_since(&self, node: &str, instance: &str, counts: &Counts) -> u64 {
        let now = counts.opened.get(instance).copied().unwrap_or(0);
        let zero = self
            .0
            .get(node)
            .and_then(|zeroes| zeroes.get(instance))
            .copied()
            .unwrap_or(0);
        now.saturating_sub(zero)
    }
}

/// An observation, and whether clients were busy meanwhile.
#[derive(Debug)]
pub struct Look {
    /// What was seen.
    pub seen: Observation,
    /// No flow opened while looking, and none was about to.
    pub none_opened: bool,
    /// No flow closed while looking.
    pub none_closed: bool,
}

/// Looks from all sides. The window of the report begins at `since_ms`.
///
/// # Errors
/// One side does not answer.
pub async fn look(cluster: &Cluster, observers: &mut Observers, zeroes: &Zeroes, since_ms: u64) -> Result<Look> {
    let before = cluster.clients().counts().await?;
    let plan = cluster.network().plan();
    let service = &plan.service;
    let pages = observers.agent_pages().await?;
    let report = observers
        .report(&service.namespace, &service.name, service.port, since_ms)
        .await?;
    let mut pods = Vec::new();
    for running in cluster.running() {
        let view = &running.view;
        let page = pages.get(&view.node);
        let by_agent = |name: &str| page.map(|page| page.external(name, view.ip, service.target_port));
        let row = report.endpoints.iter().find(|row| row.address.parse() == Ok(view.ip));
        pods.push(PodCounts {
            pod: view.name.clone(),
            node: view.node.clone(),
            address: view.ip,
            opened: zeroes.opened_since(&view.node, &running.instance, &before),
            agent_opened: by_agent("flowskew_agent_opened_total"),
            aggregator_opened: row.map(|row| row.opened_total),
            established: cluster.network().established(&running.instance).await?,
            agent_established: by_agent("flowskew_agent_established"),
            aggregator_established: row.map(|row| row.established),
        });
    }
    let after = cluster.clients().counts().await?;
    let none_opened = before.opened == after.opened && after.attempting == 0;
    let none_closed = before.client_closed == after.client_closed && before.server_closed == after.server_closed;
    let losses = pages
        .iter()
        .map(|(node, page)| (node.clone(), page.not_zero("flowskew_agent_losses_total", "kind")));
    let agent_losses = losses.filter(|(_, kinds)| !kinds.is_empty()).collect();
    let killed = observers.killed().clone();
    let seen = Observation {
        pods,
        report,
        agent_losses,
        failed: after.failed,
        killed,
    };
    Ok(Look {
        seen,
        none_opened,
        none_closed,
    })
}

/// The wall clock, milliseconds since 1970: the aggregator runs by the same.
///
/// # Errors
/// The clock is before 1970.
pub fn now_ms() -> Result<u64> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock of this machine is before 1970")?;
    u64::try_from(since.as_millis()).context("the clock of this machine is beyond all bounds")
}
