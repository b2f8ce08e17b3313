//! The view and the ledgers enter; figures for each Service port leave.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::State;
use super::claims::{Claim, Scopes, Settled, Standing, settle};
use super::figures::{EndpointFigures, Figures, GoneFigures, NodeFigures, PortFigures};
use super::messages::{Scope, WindowStart};
use super::tally;
use super::unserved;
use super::windows::{self, AskedWindow, Cut, Grain};
use crate::clients::Batch;
use crate::cluster::{ClusterView, ObjectName, PortName, ServicePort, ServiceView};
use crate::flow::{EndpointKey, SourceClass};
use crate::ledger::{Buckets, FlowAges, NodeLedger, PodUid};
use crate::millis;
use crate::report::Window;

/// What is asked of every port.
struct Question<'a> {
    windows: &'a [AskedWindow],
    grain: Grain,
    /// Of windows that are asked for, the first begins here; without any, nobody asks what clients did.
    activity_since_ms: Option<u64>,
    now_ms: u64,
}

pub(super) fn figures(state: &State, view: &ClusterView, scope: &Scope, asked: &[WindowStart], now_ms: u64) -> Figures {
    let grain = Grain {
        bucket_ms: millis(state.settings.bucket).max(1),
        interval_ms: millis(state.settings.report_interval),
    };
    let windows = windows::all(asked, grain, now_ms);
    let question = Question {
        windows: &windows,
        grain,
        activity_since_ms: windows.iter().take(asked.len()).map(|window| window.span.from_ms).min(),
        now_ms,
    };
    let services: Box<dyn Iterator<Item = (&ObjectName, &ServiceView)>> = match scope {
        Scope::All => Box::new(view.services.iter()),
        Scope::Service(name) => Box::new(view.services.get_key_value(name).into_iter()),
    };
    let mut unserved = unserved::by_port(state, &windows);
    let ports = services
        .flat_map(|(name, service)| service.ports.iter().map(move |port| (name, service, port)))
        .map(|(name, service, port)| {
            let unserved = unserved.remove(&port.named(name)).unwrap_or_default();
            PortFigures {
                unserved,
                ..port_figures(state, (name, service, port), &question)
            }
        })
        .collect();
    Figures {
        windows,
        client_key: state.client_keys.current(),
        ports,
    }
}

fn port_figures(
    state: &State,
    (name, service, port): (&ObjectName, &ServiceView, &ServicePort),
    question: &Question,
) -> PortFigures {
    let mut positions = BTreeMap::new();
    let mut nodes = Vec::new();
    // Endpoints are ordered by node, so positions grow with names.
    for endpoint in port.endpoints.iter().filter(|endpoint| endpoint.ready) {
        positions.entry(endpoint.node.as_str()).or_insert_with(|| {
            nodes.push(node_figures(state, &endpoint.node, &endpoint.zone, question.now_ms));
            nodes.len() - 1
        });
    }
    let port_name = port.named(name);
    let changed_ms = state.changes.changed_ms(&port_name);
    let counting = nodes
        .iter()
        .filter(|node| node.reporting)
        .filter_map(|node| node.counting_since_ms);
    let moments: Vec<u64> = counting.chain(changed_ms).collect();
    let cuts: Vec<Cut> = question
        .windows
        .iter()
        .map(|window| window.cut(moments.iter().copied(), question.grain))
        .collect();
    let spans: Vec<Window> = cuts.iter().map(|cut| cut.span).collect();
    let scopes = scopes(state, &port_name, &cuts, question);
    let shared = !scopes.ready.shared_with.is_empty();
    let Settled { claims, of_no_pod } = settle(state, port, &scopes);
    let (ready, rest): (Vec<Claim>, Vec<Claim>) =
        claims.into_iter().partition(|claim| claim.standing == Standing::Ready);
    let of = Of {
        state,
        port: &port_name,
        shared,
        question,
    };
    PortFigures {
        service: name.clone(),
        port: port.port,
        port_name: port.name.clone(),
        protocol: port.protocol,
        external_traffic_policy: service.external_traffic_policy.clone(),
        session_affinity: service.session_affinity.clone(),
        affinity_timeout_seconds: service.affinity_timeout_seconds,
        endpoints: ready
            .into_iter()
            .map(|claim| of.endpoint(positions[claim.node.as_str()], claim, &spans))
            .collect(),
        nodes,
        gone: rest.into_iter().filter_map(|claim| of.gone(claim)).collect(),
        of_no_pod,
        unserved: Vec::new(),
        shared_with: scopes
            .ready
            .shared_with
            .iter()
            .map(|other| (***other).clone())
            .collect(),
        endpoints_changed_ms: changed_ms,
        windows: spans,
    }
}

/// Endpoints that are not ready are also looked at from where each window was asked to begin.
fn scopes<'a>(state: &'a State, port: &'a PortName, cuts: &[Cut], question: &Question) -> Scopes<'a> {
    let ready = tally::Scope {
        port,
        index: &state.index,
        shared_with: state.index.shared_with(port).into_iter().flatten().collect(),
        windows: cuts.iter().map(|cut| cut.first).collect(),
        buckets: Buckets {
            width_ms: question.grain.bucket_ms,
            now_ms: question.now_ms,
        },
    };
    let asked = question.windows.iter().map(|window| window.first(question.grain));
    let others = tally::Scope {
        windows: ready.windows.iter().copied().chain(asked).collect(),
        ..ready.clone()
    };
    Scopes { ready, others }
}

/// Whose figures are put together.
struct Of<'a> {
    state: &'a State,
    port: &'a PortName,
    /// Other Services have the same pods: nobody knows whose a single flow is.
    shared: bool,
    question: &'a Question<'a>,
}

impl Of<'_> {
    fn endpoint(&self, node: usize, claim: Claim, windows: &[Window]) -> EndpointFigures {
        let ledger = self.ledger(&claim.node);
        let pod: &PodUid = &claim.pod_uid;
        let rates = |window: &Window| ledger?.load_since(pod, window.from_ms);
        EndpointFigures {
            node,
            address: addresses(&claim.keys),
            port: claim.keys.first().map_or(0, |key| key.port),
            load: ledger.and_then(|ledger| ledger.load(pod)),
            load_rates: windows.iter().map(rates).collect(),
            ready_since_ms: self.since_ms(&claim),
            ages: self.ages(&claim),
            activity: self.activity(&claim),
            pod: claim.pod,
            pod_uid: claim.pod_uid.to_string(),
            tally: claim.tally,
        }
    }

    fn gone(&self, mut claim: Claim) -> Option<GoneFigures> {
        let asked = claim.tally.opened.split_off(self.question.windows.len());
        Some(GoneFigures {
            state: claim.standing.state()?,
            gone_ms: match claim.standing {
                Standing::Gone(gone_ms) => Some(gone_ms),
                Standing::Ready | Standing::NotReady | Standing::Stranger => None,
            },
            unready_since_ms: self.since_ms(&claim),
            new_since_asked: asked
                .iter()
                .map(|opened| opened[SourceClass::External.index()])
                .collect(),
            activity: self.activity(&claim),
            address: addresses(&claim.keys),
            port: claim.keys.first().map_or(0, |key| key.port),
            pod: claim.pod,
            pod_uid: claim.pod_uid.to_string(),
            node: claim.node,
            tally: claim.tally,
        })
    }

    fn ledger(&self, node: &str) -> Option<&NodeLedger> {
        self.state.nodes.get(node).map(|node| &node.ledger)
    }

    fn since_ms(&self, claim: &Claim) -> Option<u64> {
        let endpoint = (claim.node.as_str(), &claim.pod_uid, claim.keys.as_slice());
        self.state
            .changes
            .since_ms(self.port, endpoint, claim.standing == Standing::Ready)
    }

    fn ages(&self, claim: &Claim) -> Vec<Arc<FlowAges>> {
        let Some(ledger) = self.ledger(&claim.node).filter(|_| !self.shared) else {
            return Vec::new();
        };
        claim
            .sources
            .iter()
            .filter_map(|key| ledger.key(key)?.ages().cloned())
            .collect()
    }

    fn activity(&self, claim: &Claim) -> Vec<Arc<Batch>> {
        let since_ms = self.question.activity_since_ms.filter(|_| !self.shared);
        let (Some(since_ms), Some(node)) = (since_ms, self.state.nodes.get(&claim.node)) else {
            return Vec::new();
        };
        let batches = claim.sources.iter().flat_map(|key| node.clients.batches(key));
        batches.filter(|batch| batch.at_ms >= since_ms).cloned().collect()
    }
}

fn node_figures(state: &State, name: &str, zone: &str, now_ms: u64) -> NodeFigures {
    let node = state.nodes.get(name);
    let ledger = node.map(|node| &node.ledger);
    NodeFigures {
        name: name.to_owned(),
        zone: zone.to_owned(),
        reporting: state.nodes.is_reporting(name, now_ms),
        losses: ledger.map(NodeLedger::losses).unwrap_or_default(),
        origin: node.map(|node| node.origin()).unwrap_or_default(),
        counting_since_ms: ledger.and_then(NodeLedger::counting_since_ms),
        door_coverage: ledger.map(NodeLedger::door_coverage).unwrap_or_default(),
        degradations: ledger.map(|ledger| ledger.degradations().to_vec()).unwrap_or_default(),
    }
}

fn addresses(keys: &[EndpointKey]) -> String {
    let addresses: Vec<String> = keys.iter().map(|key| key.address.to_canonical().to_string()).collect();
    addresses.join(",")
}
