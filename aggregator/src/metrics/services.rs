//! Figures of Services enter; the metrics of Services and endpoints leave.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::clients::Behind;
use super::evidence::Evidence;
use super::labels::{Balancer, Endpoint, EndpointCause, EndpointClass, EndpointWindow, Finding, Port, Skew, TheilPart};
use crate::flow::{CloseCause, SourceClass};
use crate::report::{self, ServiceReport};
use crate::state::{EndpointFigures, Figures, PortFigures, STANDARD_WINDOWS};
use crate::view::assemble;

/// Window whose verdict, findings and loads are shown: the one that is asked for, of the last 5 minutes.
pub(super) const VERDICT_WINDOW: usize = 0;
/// Endpoints that get series of their own, about 20 each, over all Services. Those of the last Services are left out.
const MAX_ENDPOINTS: usize = 10_000;

pub(super) type Ratios<L> = Family<L, Gauge<f64, AtomicU64>>;
pub(super) type Whole<L> = Family<L, Gauge>;
pub(super) type Counters<L> = Family<L, Counter<u64, AtomicU64>>;

#[derive(Default)]
struct Metrics {
    peak_ratio: Ratios<Skew>,
    max_min_ratio: Ratios<Skew>,
    jain_index: Ratios<Skew>,
    cv: Ratios<Skew>,
    gini: Ratios<Skew>,
    effective_flows: Ratios<Skew>,
    window_flows: Whole<Skew>,
    skew_significant: Whole<Skew>,
    skew_p_value: Ratios<Skew>,
    noise_floor: Ratios<Skew>,
    theil: Ratios<TheilPart>,
    balancer: Whole<Balancer>,
    finding: Whole<Finding>,
    opened: Counters<EndpointClass>,
    established: Whole<EndpointClass>,
    closed: Counters<EndpointCause>,
    new_share: Ratios<EndpointWindow>,
    established_share: Ratios<Endpoint>,
    expected_share: Ratios<Endpoint>,
    ideal_share: Ratios<Endpoint>,
    left_out: Gauge,
    behind: Behind,
}

pub(super) fn register(registry: &mut Registry, figures: &Figures) {
    let metrics = Metrics::default();
    let evidence = Evidence::default();
    let mut room = MAX_ENDPOINTS;
    for port in &figures.ports {
        let with_endpoints = port.endpoints.len() <= room;
        if with_endpoints {
            room -= port.endpoints.len();
        } else {
            metrics
                .left_out
                .inc_by(i64::try_from(port.endpoints.len()).unwrap_or(i64::MAX));
        }
        let labels = Port {
            namespace: port.service.namespace.clone(),
            service: port.service.name.clone(),
            port: port.port,
            protocol: port.protocol.label(),
        };
        metrics.add(&labels, figures, port, with_endpoints);
        evidence.add(&labels, port, with_endpoints);
    }
    metrics.register(registry);
    evidence.register(registry);
}

/// The label value of a standard window.
fn window_name(seconds: u64) -> Option<&'static str> {
    let mut windows = STANDARD_WINDOWS.iter();
    windows
        .find(|(length, _)| length.as_secs() == seconds)
        .map(|(_, name)| *name)
}

impl Metrics {
    /// One analysis gives the figures of all windows.
    fn add(&self, labels: &Port, figures: &Figures, port: &PortFigures, with_endpoints: bool) {
        let report = match assemble(figures, port, VERDICT_WINDOW) {
            Ok(report) => report,
            Err(error) => {
                tracing::error!("no metrics for {}: {error}", port.service);
                return;
            }
        };
        for window in &report.windows {
            if let Some(name) = window_name(window.seconds) {
                self.add_skew(labels, "new", name, &window.new);
            }
        }
        self.add_skew(labels, "established", "now", &report.established);
        self.add_verdict(labels, &report);
        self.behind.add(labels, &report, with_endpoints);
        if with_endpoints {
            for (position, window) in figures.windows.iter().enumerate() {
                if let Some(name) = window.seconds.and_then(window_name) {
                    self.add_new_shares(labels, port, position, name);
                }
            }
            self.add_shares(labels, &report);
            port.endpoints
                .iter()
                .for_each(|endpoint| self.add_counts(labels, port, endpoint));
        }
    }

    fn add_skew(&self, port: &Port, kind: &'static str, window: &'static str, skew: &report::Skew) {
        let labels = Skew {
            port: port.clone(),
            kind,
            window,
        };
        let set = |family: &Ratios<Skew>, value: Option<f64>| {
            // A figure that is not known has no series.
            if let Some(value) = value {
                family.get_or_create_owned(&labels).set(value);
            }
        };
        set(&self.peak_ratio, skew.peak_ratio);
        set(&self.max_min_ratio, skew.max_min);
        set(&self.jain_index, skew.jain);
        set(&self.cv, skew.cv);
        set(&self.gini, skew.gini);
        set(&self.effective_flows, Some(skew.effective_flows));
        set(&self.skew_p_value, skew.test.map(|test| test.p_value));
        set(&self.noise_floor, skew.noise_floor);
        self.window_flows.get_or_create_owned(&labels).set(whole(skew.flows));
        self.skew_significant
            .get_or_create_owned(&labels)
            .set(skew.significant.into());
        if let Some(theil) = skew.theil {
            for (part, value) in [
                ("total", theil.total),
                ("load_balancer", theil.load_balancer),
                ("placement", theil.placement),
                ("within_node", theil.within_node),
            ] {
                self.theil
                    .get_or_create_owned(&TheilPart {
                        skew: labels.clone(),
                        part,
                    })
                    .set(value);
            }
        }
    }

    fn add_verdict(&self, port: &Port, report: &ServiceReport) {
        let model = report.balancer.model.code();
        self.balancer
            .get_or_create_owned(&Balancer {
                port: port.clone(),
                model,
            })
            .set(1);
        for finding in &report.findings {
            let code = finding.code.code();
            self.finding
                .get_or_create_owned(&Finding {
                    port: port.clone(),
                    code,
                })
                .set(1);
        }
    }

    fn add_new_shares(&self, port: &Port, figures: &PortFigures, window: usize, name: &'static str) {
        let new = |endpoint: &EndpointFigures| endpoint.tally.opened[window][SourceClass::External.index()];
        let sum = figures.endpoints.iter().map(new).fold(0, u64::saturating_add);
        // Without flows there are no shares.
        for endpoint in figures.endpoints.iter().filter(|_| sum > 0) {
            let labels = EndpointWindow {
                endpoint: Endpoint {
                    port: port.clone(),
                    node: figures.nodes[endpoint.node].name.clone(),
                    pod: endpoint.pod.clone(),
                },
                window: name,
            };
            let share = new(endpoint) as f64 / sum as f64;
            self.new_share.get_or_create_owned(&labels).set(share);
        }
    }

    fn add_shares(&self, port: &Port, report: &ServiceReport) {
        for row in &report.endpoints {
            let endpoint = Endpoint {
                port: port.clone(),
                node: row.node.clone(),
                pod: row.pod.clone(),
            };
            if let Some(share) = row.established_share {
                self.established_share.get_or_create_owned(&endpoint).set(share);
            }
            self.expected_share
                .get_or_create_owned(&endpoint)
                .set(row.expected_share);
            self.ideal_share.get_or_create_owned(&endpoint).set(row.ideal_share);
        }
    }

    fn add_counts(&self, port: &Port, figures: &PortFigures, endpoint: &EndpointFigures) {
        let labels = Endpoint {
            port: port.clone(),
            node: figures.nodes[endpoint.node].name.clone(),
            pod: endpoint.pod.clone(),
        };
        let mut closed = [0; CloseCause::ALL.len()];
        for class in SourceClass::ALL {
            let counts = &endpoint.tally.counts[class.index()];
            let labels = EndpointClass {
                endpoint: labels.clone(),
                source_class: class.label(),
            };
            self.opened.get_or_create_owned(&labels).inc_by(counts.opened);
            self.established
                .get_or_create_owned(&labels)
                .inc_by(whole(counts.established));
            closed
                .iter_mut()
                .zip(counts.closed)
                .for_each(|(sum, count): (&mut u64, u64)| *sum = sum.saturating_add(count));
        }
        for cause in CloseCause::ALL {
            let labels = EndpointCause {
                endpoint: labels.clone(),
                cause: cause.label(),
            };
            self.closed.get_or_create_owned(&labels).inc_by(closed[cause.index()]);
        }
    }

    fn register(self, registry: &mut Registry) {
        registry.register(
            "flowskew_peak_ratio",
            "Largest share over ideal share; 1 is even",
            self.peak_ratio,
        );
        registry.register(
            "flowskew_max_min_ratio",
            "Largest over smallest count of an endpoint",
            self.max_min_ratio,
        );
        registry.register(
            "flowskew_jain_index",
            "Jain's fairness index, 1 over endpoints to 1",
            self.jain_index,
        );
        registry.register(
            "flowskew_coefficient_of_variation",
            "Standard deviation over mean of the endpoints' counts",
            self.cv,
        );
        registry.register(
            "flowskew_gini",
            "Gini coefficient of the endpoints' counts; 0 is even",
            self.gini,
        );
        registry.register(
            "flowskew_effective_flows",
            "So many independent flows say as much: fewer when flows of one client stay together",
            self.effective_flows,
        );
        registry.register(
            "flowskew_window_flows",
            "External flows that the figures rest on",
            self.window_flows,
        );
        registry.register(
            "flowskew_skew_significant",
            "1 when the skew is more than chance",
            self.skew_significant,
        );
        registry.register(
            "flowskew_skew_p_value",
            "Probability of such skew by chance",
            self.skew_p_value,
        );
        registry.register(
            "flowskew_noise_floor_peak_ratio",
            "Peak ratio that chance stays below 99 times of 100 with so many flows",
            self.noise_floor,
        );
        registry.register(
            "flowskew_theil",
            "Theil index in nats, and the parts that add up to it",
            self.theil,
        );
        registry.register(
            "flowskew_balancer",
            "The load-balancer model that the last 5 minutes fit",
            self.balancer,
        );
        registry.register(
            "flowskew_finding",
            "What is found, by the last 5 minutes: a cause of skew, or even, or insufficient-data",
            self.finding,
        );
        registry.register(
            "flowskew_endpoint_opened",
            "Flows opened since the node's epoch began",
            self.opened,
        );
        registry.register("flowskew_endpoint_established", "Flows open now", self.established);
        registry.register(
            "flowskew_endpoint_closed",
            "Flows closed since the node's epoch began",
            self.closed,
        );
        registry.register(
            "flowskew_endpoint_new_share",
            "Share of the external flows opened",
            self.new_share,
        );
        registry.register(
            "flowskew_endpoint_established_share",
            "Share of external flows open now",
            self.established_share,
        );
        registry.register(
            "flowskew_endpoint_expected_share",
            "Share under the balancer's model",
            self.expected_share,
        );
        registry.register(
            "flowskew_endpoint_ideal_share",
            "1 over the ready endpoints",
            self.ideal_share,
        );
        registry.register(
            "flowskew_aggregator_endpoints_without_series",
            "Endpoints left out of the metrics for lack of room",
            self.left_out,
        );
        self.behind.register(registry);
    }
}

pub(super) fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
