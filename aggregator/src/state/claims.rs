//! The pods that a Service port has or had enter, with the nodes' ledgers; the flows of each leave. Every key is one
//! pod's: that which the agent names, else that which had the endpoint when the key was first seen.

use std::collections::{BTreeMap, HashSet};

use super::State;
use super::changes::GoneEndpoint;
use super::tally::{Extent, Scope, Tally};
use crate::cluster::{Endpoint, ServicePort};
use crate::flow::{EndpointKey, SourceClass};
use crate::ledger::{KeyLedger, LedgerKey, NodeLedger, Owner, PodUid, Tick};
use crate::millis;
use crate::report::GoneState;

/// Reports about the last flows of an endpoint may arrive this many report intervals after it is gone.
const LATE_REPORTS: u64 = 2;

/// A pod that the flows at some addresses may be of.
pub(super) struct Claim {
    pub(super) node: String,
    pub(super) pod: String,
    pub(super) pod_uid: PodUid,
    pub(super) keys: Vec<EndpointKey>,
    pub(super) standing: Standing,
    pub(super) tally: Tally,
    /// Where on the node its flows are counted, and nobody else's.
    pub(super) sources: Vec<LedgerKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The flows count in the shares.
    Ready,
    NotReady,
    /// Since this time, milliseconds since 1970.
    Gone(u64),
    /// Nobody knows the pod.
    Stranger,
}

impl Standing {
    pub(super) fn state(self) -> Option<GoneState> {
        match self {
            Self::Ready => None,
            Self::NotReady => Some(GoneState::NotReady),
            Self::Gone(_) => Some(GoneState::Gone),
            Self::Stranger => Some(GoneState::OtherPod),
        }
    }

    fn is_present(self) -> bool {
        matches!(self, Self::Ready | Self::NotReady)
    }
}

/// What is counted of the claims of a port.
pub(super) struct Scopes<'a> {
    /// Of ready endpoints.
    pub(super) ready: Scope<'a>,
    /// Of all others.
    pub(super) others: Scope<'a>,
}

impl<'a> Scopes<'a> {
    fn of(&self, standing: Standing) -> &Scope<'a> {
        match standing {
            Standing::Ready => &self.ready,
            Standing::NotReady | Standing::Gone(_) | Standing::Stranger => &self.others,
        }
    }
}

/// What became of a Service port's flows.
pub(super) struct Settled {
    /// Ready ones first, in the order of the port's endpoints.
    pub(super) claims: Vec<Claim>,
    /// External flows of processes that are no pod's, one figure a window.
    pub(super) of_no_pod: Vec<u64>,
}

/// Shares a port's flows out among those that it has and had.
pub(super) fn settle(state: &State, port: &ServicePort, scopes: &Scopes) -> Settled {
    let ready = port.endpoints.iter().filter(|endpoint| endpoint.ready);
    let others = port.endpoints.iter().filter(|endpoint| !endpoint.ready);
    // The newest first: without an id, the flows at an address are those of the last that had it.
    let gone = state.changes.gone(scopes.ready.port).iter().rev();
    let claims: Vec<Claim> = ready
        .map(|endpoint| present(endpoint, port, Standing::Ready, scopes))
        .chain(others.map(|endpoint| present(endpoint, port, Standing::NotReady, scopes)))
        .chain(gone.map(|endpoint| past(endpoint, scopes)))
        .collect();
    let mut places: BTreeMap<(String, EndpointKey), Vec<usize>> = BTreeMap::new();
    for (position, claim) in claims.iter().enumerate() {
        for key in &claim.keys {
            places.entry((claim.node.clone(), *key)).or_default().push(position);
        }
    }
    let mut settled = Settled {
        claims,
        of_no_pod: vec![0; scopes.ready.windows.len()],
    };
    for ((node, endpoint), claimants) in &places {
        if let Some(node_state) = state.nodes.get(node) {
            let place = Place {
                state,
                node,
                ledger: &node_state.ledger,
                endpoint,
                claimants,
            };
            settled.settle_place(&place, scopes);
        }
    }
    settled
}

fn present(endpoint: &Endpoint, port: &ServicePort, standing: Standing, scopes: &Scopes) -> Claim {
    Claim {
        node: endpoint.node.clone(),
        pod: endpoint.pod.clone(),
        pod_uid: endpoint.pod_uid.clone(),
        keys: endpoint.keys(port.protocol).collect(),
        standing,
        tally: scopes.of(standing).tally(),
        sources: Vec::new(),
    }
}

fn past(gone: &GoneEndpoint, scopes: &Scopes) -> Claim {
    Claim {
        node: gone.node.clone(),
        pod: gone.pod.clone(),
        pod_uid: gone.pod_uid.clone(),
        keys: vec![gone.key],
        standing: Standing::Gone(gone.gone_ms),
        tally: scopes.others.tally(),
        sources: Vec::new(),
    }
}

/// One address and port of a node, and those who claim its flows.
struct Place<'a> {
    state: &'a State,
    node: &'a str,
    ledger: &'a NodeLedger,
    endpoint: &'a EndpointKey,
    claimants: &'a [usize],
}

enum Whose {
    Claim(usize, Extent),
    Stranger(PodUid),
    NoPod,
    AnotherService,
}

impl Settled {
    fn settle_place(&mut self, place: &Place, scopes: &Scopes) {
        let named: HashSet<&PodUid> = place
            .ledger
            .at(place.endpoint)
            .filter_map(|(_, key)| match key.owner() {
                Owner::Reported(pod) => Some(pod),
                Owner::Bound(_) | Owner::Unknown => None,
            })
            .collect();
        for (ledger_key, key) in place.ledger.at(place.endpoint) {
            for &claimant in place.claimants {
                let claim = &mut self.claims[claimant];
                if !claim.pod_uid.is_empty() {
                    claim.tally.add_before(scopes.of(claim.standing), key, &claim.pod_uid);
                }
            }
            match self.whose(place, &named, ledger_key, key) {
                Whose::Claim(claim, extent) => {
                    let claim = &mut self.claims[claim];
                    claim.tally.add(scopes.of(claim.standing), place.endpoint, key, extent);
                    if extent == Extent::ALL {
                        claim.sources.push(*ledger_key);
                    }
                }
                Whose::Stranger(pod) => {
                    let stranger = self.stranger(place, pod, &scopes.others);
                    stranger.add(&scopes.others, place.endpoint, key, Extent::ALL);
                }
                Whose::NoPod => {
                    for (sum, &from) in self.of_no_pod.iter_mut().zip(&scopes.ready.windows) {
                        *sum += key.opened(from, Tick::MAX)[SourceClass::External.index()];
                    }
                }
                Whose::AnotherService => {}
            }
        }
    }

    fn whose(&self, place: &Place, named: &HashSet<&PodUid>, key: &LedgerKey, ledger: &KeyLedger) -> Whose {
        let find = |is_it: &dyn Fn(&Claim) -> bool| {
            let mut claimants = place.claimants.iter().copied();
            claimants.find(|&position| is_it(&self.claims[position]))
        };
        // When the agent names the pod's own cgroups, one that it does not name is not the pod's.
        let is_process = |pod: &PodUid| key.cgroup_id != 0 && named.contains(pod);
        match ledger.owner() {
            Owner::Bound(pod) if is_process(pod) => return Whose::NoPod,
            Owner::Unknown if find(&|claim| claim.standing.is_present() && is_process(&claim.pod_uid)).is_some() => {
                return Whose::NoPod;
            }
            Owner::Bound(_) | Owner::Reported(_) | Owner::Unknown => {}
        }
        let by_address = |claim: &Claim| claim.standing.is_present() && claim.pod_uid.is_empty();
        let Some(pod) = ledger.owner().pod() else {
            if let Some(claim) = find(&|claim| claim.standing.is_present()) {
                return Whose::Claim(claim, Extent::ALL);
            }
            // The last that had the address. What came later belongs to somebody else.
            let last = place.claimants.first().map(|&last| (last, self.claims[last].standing));
            let Some((last, Standing::Gone(gone_ms))) = last else {
                return Whose::AnotherService;
            };
            let grace_ms = millis(place.state.settings.report_interval) * LATE_REPORTS;
            let extent = Extent {
                until: place.ledger.tick(gone_ms + grace_ms),
                counters: !place.state.index.is_endpoint(place.node, place.endpoint),
            };
            return Whose::Claim(last, extent);
        };
        if let Some(claim) = find(&|claim| claim.pod_uid == *pod).or_else(|| find(&by_address)) {
            return Whose::Claim(claim, Extent::ALL);
        }
        let is_stranger = matches!(ledger.owner(), Owner::Reported(_))
            && !place.state.index.knows(pod)
            && !place.state.changes.knows(pod);
        if is_stranger {
            Whose::Stranger(pod.clone())
        } else {
            Whose::AnotherService
        }
    }

    fn stranger(&mut self, place: &Place, pod: PodUid, scope: &Scope) -> &mut Tally {
        let known = self.claims.iter().position(|claim| {
            claim.standing == Standing::Stranger && claim.pod_uid == pod && claim.keys == [*place.endpoint]
        });
        let position = known.unwrap_or(self.claims.len());
        if known.is_none() {
            self.claims.push(Claim {
                node: place.node.to_owned(),
                pod: pod.to_string(),
                pod_uid: pod,
                keys: vec![*place.endpoint],
                standing: Standing::Stranger,
                tally: scope.tally(),
                sources: Vec::new(),
            });
        }
        &mut self.claims[position].tally
    }
}
