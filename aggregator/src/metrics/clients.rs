//! The report of a Service port enters; the metrics of what stands behind its skew leave: causes, clients, affinity, age.

use prometheus_client::registry::Registry;

use super::labels::{Affinity, CauseShare, Endpoint, Figure, Port, Tier};
use super::services::{Ratios, Whole, whole};
use crate::report::{self, Estimate, Persistence, ServiceReport};

#[derive(Default)]
pub(super) struct Behind {
    cause_share: Ratios<CauseShare>,
    distinct: Ratios<Figure>,
    effective: Ratios<Figure>,
    top_share: Ratios<Figure>,
    pinned_peak_ratio: Ratios<Port>,
    sampling_shift: Whole<Port>,
    missing: Whole<Port>,
    endpoint_clients: Ratios<Endpoint>,
    kappa: Ratios<Tier>,
    affinity: Whole<Affinity>,
    affinity_pairs: Whole<Port>,
    affinity_breaks: Whole<Port>,
    before_change: Ratios<Figure>,
    hazard: Ratios<Figure>,
    hours_to_even: Ratios<Port>,
    left_on_gone: Whole<Port>,
}

impl Behind {
    /// A figure that is not known has no series.
    pub(super) fn add(&self, port: &Port, report: &ServiceReport, with_endpoints: bool) {
        for (kind, causes) in [("new", &report.causes), ("established", &report.established_causes)] {
            for cause in causes {
                if let Some(share) = cause.share {
                    let labels = CauseShare {
                        port: port.clone(),
                        kind,
                        code: cause.code.map_or("chance", |code| code.code()),
                    };
                    self.cause_share.get_or_create_owned(&labels).set(share);
                }
            }
        }
        if let Some(clients) = &report.clients {
            self.add_clients(port, clients);
        }
        if let Some(affinity) = &report.affinity {
            self.add_affinity(port, affinity);
        }
        if let Some(persistence) = &report.persistence {
            self.add_persistence(port, persistence);
        }
        if with_endpoints {
            for row in &report.endpoints {
                if let Some(clients) = row.clients {
                    let labels = Endpoint {
                        port: port.clone(),
                        node: row.node.clone(),
                        pod: row.pod.clone(),
                    };
                    self.endpoint_clients.get_or_create_owned(&labels).set(clients.value);
                }
            }
        }
    }

    fn add_clients(&self, port: &Port, clients: &report::Clients) {
        set(&self.distinct, port, Some(clients.distinct));
        set(&self.effective, port, clients.effective);
        set(&self.top_share, port, clients.top_share);
        if let Some(peak) = clients.pinned_peak_ratio {
            self.pinned_peak_ratio.get_or_create_owned(port).set(peak);
        }
        self.sampling_shift
            .get_or_create_owned(port)
            .set(clients.sampling_shift.into());
        self.missing.get_or_create_owned(port).set(whole(clients.missing));
    }

    fn add_affinity(&self, port: &Port, affinity: &report::Affinity) {
        let labels = Affinity {
            port: port.clone(),
            code: affinity.code.code(),
        };
        self.affinity.get_or_create_owned(&labels).set(1);
        for (tier, stickiness) in [("pod", &affinity.pod_tier), ("node", &affinity.node_tier)] {
            let kappa = stickiness.and_then(|stickiness| stickiness.kappa);
            for (bound, value) in kappa.into_iter().flat_map(ends) {
                let labels = Tier {
                    port: port.clone(),
                    tier,
                    bound,
                };
                self.kappa.get_or_create_owned(&labels).set(value);
            }
        }
        if let Some(breaks) = &affinity.breaks {
            self.affinity_pairs.get_or_create_owned(port).set(whole(breaks.pairs));
            self.affinity_breaks.get_or_create_owned(port).set(whole(breaks.broken));
        }
    }

    fn add_persistence(&self, port: &Port, persistence: &Persistence) {
        set(&self.before_change, port, persistence.before_change);
        set(&self.hazard, port, persistence.hazard_per_hour);
        if let Some(hours) = persistence.hours_to_even {
            self.hours_to_even.get_or_create_owned(port).set(hours);
        }
        self.left_on_gone
            .get_or_create_owned(port)
            .set(whole(persistence.left_on_gone));
    }

    pub(super) fn register(self, registry: &mut Registry) {
        registry.register(
            "flowskew_cause_share",
            "Part of the Theil index that a cause explains, of the last 5 minutes or of the flows open now",
            self.cause_share,
        );
        registry.register(
            "flowskew_clients_distinct",
            "Distinct clients that opened a flow in the last 5 minutes, with the ends of the 95 % interval",
            self.distinct,
        );
        registry.register(
            "flowskew_clients_effective",
            "So many equal clients would be as concentrated",
            self.effective,
        );
        registry.register(
            "flowskew_clients_top_share",
            "Share of the new flows that the ten heaviest clients opened",
            self.top_share,
        );
        registry.register(
            "flowskew_clients_pinned_peak_ratio",
            "Mean peak ratio if each client were bound to one pod of each node",
            self.pinned_peak_ratio,
        );
        registry.register(
            "flowskew_client_sampling_shift",
            "Single flows are known of one client in 2 to this power",
            self.sampling_shift,
        );
        registry.register(
            "flowskew_client_events_missing",
            "Single flows that were not told since the nodes' epochs began",
            self.missing,
        );
        registry.register(
            "flowskew_endpoint_clients",
            "Distinct clients that opened a flow on the pod in the last 5 minutes",
            self.endpoint_clients,
        );
        registry.register(
            "flowskew_stickiness",
            "Do clients come back to the same pod of a node, and to the same node: 0 as by chance, 1 always",
            self.kappa,
        );
        registry.register("flowskew_affinity", "Session affinity as it is found", self.affinity);
        registry.register(
            "flowskew_affinity_pairs",
            "Clients that came back to a node within the affinity's timeout while their pod was ready",
            self.affinity_pairs,
        );
        registry.register(
            "flowskew_affinity_breaks",
            "Those of them that landed on another pod",
            self.affinity_breaks,
        );
        registry.register(
            "flowskew_established_before_change_share",
            "Share of the open flows that opened before the ready pods last changed",
            self.before_change,
        );
        registry.register(
            "flowskew_close_hazard_per_hour",
            "Closes per open flow and hour in the last 5 minutes",
            self.hazard,
        );
        registry.register(
            "flowskew_hours_to_even",
            "Hours until open flows are even if nobody restarts anything; no series: never, or not known",
            self.hours_to_even,
        );
        registry.register(
            "flowskew_established_on_gone",
            "Flows still open on pods that are not ready or gone",
            self.left_on_gone,
        );
    }
}

fn set(family: &Ratios<Figure>, port: &Port, estimate: Option<Estimate>) {
    for (bound, value) in estimate.into_iter().flat_map(ends) {
        let labels = Figure {
            port: port.clone(),
            bound,
        };
        family.get_or_create_owned(&labels).set(value);
    }
}

fn ends(estimate: Estimate) -> [(&'static str, f64); 3] {
    [
        ("value", estimate.value),
        ("low", estimate.low),
        ("high", estimate.high),
    ]
}
