//! All sides at one moment. Cluster and observers enter; an observation leaves, and whether clients were at rest.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use flowskew_aggregator::report::{ServiceReport, UnservedReason};

use super::books::{Books, Mark, Zeroes};
use super::cluster::{Cluster, Running};
use super::metrics::Page;
use super::observe::{Flows, GoneCounts, Observation, PodCounts, ServiceCounts, UnservedCounts};
use super::observers::Observers;
use super::report;
use crate::net::Protocol;

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

/// Looks from all sides. The window of the reports begins at `since`; the one about `service` is part of the observation.
///
/// # Errors
/// One side does not answer.
pub async fn look(
    cluster: &Cluster,
    observers: &mut Observers,
    zeroes: &Zeroes,
    since: &Mark,
    service: Option<&str>,
) -> Result<Look> {
    let before = cluster.books().await?;
    let pages = observers.agent_pages().await?;
    let mut reports = BTreeMap::new();
    for plan in cluster.services() {
        let report = observers
            .report(&plan.namespace, &plan.name, plan.port, since.ms)
            .await?;
        reports.insert(plan.name.clone(), report);
    }
    let sides = Sides {
        cluster,
        zeroes,
        books: &before,
        pages: &pages,
        reports: &reports,
    };
    let mut pods = Vec::new();
    for running in cluster.running() {
        pods.push(sides.pod(running).await?);
    }
    let gone = cluster.ended().iter();
    let gone = gone.flat_map(|running| sides.gone(running, since)).collect();
    let after = cluster.books().await?;
    let pairs = || {
        before
            .iter()
            .zip(after.values())
            .map(|((_, before), after)| (before, after))
    };
    let none_opened = pairs().all(|(before, after)| before.opened == after.opened && after.attempting == 0);
    let none_closed = pairs().all(|(before, after)| {
        before.client_closed == after.client_closed && before.server_closed == after.server_closed
    });
    let losses = pages
        .iter()
        .map(|(node, page)| (node.clone(), page.not_zero("flowskew_agent_losses_total", "kind")));
    let mut failed = BTreeMap::new();
    for (reason, count) in after.values().flat_map(|counts| &counts.failed) {
        *failed.entry(reason.clone()).or_default() += count;
    }
    let service = service.unwrap_or(&cluster.main().name);
    let seen = Observation {
        pods,
        gone,
        unserved: sides.unserved(since, &after),
        report_losses: reports
            .iter()
            .map(|(name, report)| Ok((name.clone(), report::losses(report)?)))
            .collect::<Result<_>>()?,
        agent_losses: losses.filter(|(_, kinds)| !kinds.is_empty()).collect(),
        losses_due: BTreeMap::new(),
        clients: None,
        failed,
        killed: observers.killed().clone(),
        report: reports
            .remove(service)
            .with_context(|| format!("there is no Service {service}"))?,
    };
    Ok(Look {
        seen,
        none_opened,
        none_closed,
    })
}

/// What each side says.
struct Sides<'a> {
    cluster: &'a Cluster,
    zeroes: &'a Zeroes,
    books: &'a Books,
    pages: &'a BTreeMap<String, Page>,
    reports: &'a BTreeMap<String, ServiceReport>,
}

impl Sides<'_> {
    /// A pod that runs. `ss` knows the flows of TCP, but not by which of several Services they came.
    async fn pod(&self, running: &Running) -> Result<PodCounts> {
        let view = &running.view;
        let mut services: Vec<ServiceCounts> = self
            .cluster
            .services()
            .iter()
            .map(|plan| ServiceCounts {
                service: plan.name.clone(),
                truth: self.zeroes.since(&plan.name, running, self.books),
                aggregator: self
                    .reports
                    .get(&plan.name)
                    .and_then(|report| report::ready(report, view)),
            })
            .collect();
        let mut truth: Flows = services.iter().map(|service| service.truth).sum();
        if self.cluster.main().protocol == Protocol::Tcp {
            truth.established = self.cluster.network().established(&running.instance).await?;
            if let [only] = services.as_mut_slice() {
                only.truth.established = truth.established;
            }
        }
        // The agent's metrics tell addresses and ports apart, not the pods that had them one after the other.
        let before = self
            .cluster
            .ended()
            .iter()
            .filter(|ended| (&ended.view.node, ended.view.ip, ended.view.port) == (&view.node, view.ip, view.port));
        let before = before.flat_map(|ended| {
            let plans = self.cluster.services().iter();
            plans.map(|plan| self.zeroes.of_ended(&plan.name, ended, self.books))
        });
        truth = before.chain([truth]).sum();
        Ok(PodCounts {
            pod: view.name.clone(),
            node: view.node.clone(),
            address: view.ip,
            port: view.port,
            truth,
            agent: self.pages.get(&view.node).map(|page| page.flows(view.ip, view.port)),
            services,
        })
    }

    /// A pod that has ended, by Service. Without flows in the window, a report may be silent about it.
    fn gone(&self, running: &Running, since: &Mark) -> Vec<GoneCounts> {
        let view = &running.view;
        let plans = self.cluster.services().iter();
        let flows = plans.filter_map(|plan| {
            let truth = self.zeroes.of_ended(&plan.name, running, self.books);
            let aggregator = self
                .reports
                .get(&plan.name)
                .and_then(|report| report::gone(report, view));
            let due = truth.opened > 0 && since.books.is_none();
            (due || aggregator.is_some()).then(|| ServiceCounts {
                service: plan.name.clone(),
                truth,
                aggregator,
            })
        });
        flows
            .map(|flows| GoneCounts {
                pod: view.name.clone(),
                node: view.node.clone(),
                address: view.ip,
                flows,
            })
            .collect()
    }

    fn unserved(&self, since: &Mark, books: &Books) -> Vec<UnservedCounts> {
        let allowed = self.cluster.kept_without_pods();
        let reasons = [
            (UnservedReason::Dropped, "timeout"),
            (UnservedReason::Refused, "refused"),
        ];
        let counts = self.reports.iter().flat_map(|(service, report)| {
            let allowed = &allowed;
            reasons.into_iter().map(move |(reason, as_clients_say)| {
                let now = books.get(service).and_then(|counts| counts.failed.get(as_clients_say));
                UnservedCounts {
                    service: service.clone(),
                    reason: reason.code().to_owned(),
                    truth: now
                        .copied()
                        .unwrap_or(0)
                        .saturating_sub(since.failed(service, as_clients_say)),
                    aggregator: report::unserved(report, reason),
                    allowed: allowed.clone(),
                }
            })
        });
        counts.collect()
    }
}
