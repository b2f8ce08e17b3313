//! Two successive cluster views enter; what a Service port has lost within the retention, when its ready endpoints last
//! changed, and since when each has been ready, leave: flows on lost endpoints are told instead of forgotten.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::cluster::{ClusterView, Endpoint, PortName, ServicePort};
use crate::flow::EndpointKey;
use crate::ledger::{PodUid, RETENTION_MS};

/// Lost endpoints kept for one Service port. The oldest go first.
const MAX_PER_PORT: usize = 1024;

/// An endpoint that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GoneEndpoint {
    pub(super) node: String,
    pub(super) pod: String,
    pub(super) pod_uid: PodUid,
    pub(super) key: EndpointKey,
    /// When it was seen to be gone, milliseconds since 1970.
    pub(super) gone_ms: u64,
}

/// Node, pod and address of an endpoint: another pod at an address is another endpoint.
type Identity<'a> = (&'a str, &'a str, EndpointKey);

/// An endpoint that has become ready, or has ceased to be, since the first view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spell {
    ready: bool,
    since_ms: u64,
}

/// Those of one Service port.
type Spells = BTreeMap<(String, PodUid, EndpointKey), Spell>;

#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Oldest first.
    gone: HashMap<PortName, Vec<GoneEndpoint>>,
    changed_ms: HashMap<PortName, u64>,
    spells: HashMap<PortName, Spells>,
}

impl Changes {
    pub(super) fn compare(&mut self, before: &ClusterView, after: &ClusterView, now_ms: u64) {
        let (before, after) = (ports(before), ports(after));
        // Also those that are only in the second: what a Service had when it was deleted may be back with it.
        for port in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            let (before, after) = (before.get(port).copied(), after.get(port).copied());
            if before == after {
                continue;
            }
            let (were_ready, are_ready) = (identities(before, true), identities(after, true));
            if !were_ready.keys().eq(are_ready.keys()) {
                self.changed_ms.insert(port.clone(), now_ms);
                let spells = self.spells.entry(port.clone()).or_default();
                stand(spells, &were_ready, &are_ready, now_ms);
            }
            let now = identities(after, false);
            let known = self.gone.entry(port.clone()).or_default();
            known.retain(|gone| !now.contains_key(&(&gone.node, &gone.pod_uid, gone.key)));
            let lost = identities(before, false)
                .into_iter()
                .filter(|(identity, _)| !now.contains_key(identity));
            known.extend(lost.map(|((node, _, key), endpoint)| GoneEndpoint {
                node: node.to_owned(),
                pod: endpoint.pod.clone(),
                pod_uid: endpoint.pod_uid.clone(),
                key,
                gone_ms: now_ms,
            }));
            known.drain(..known.len().saturating_sub(MAX_PER_PORT));
        }
        self.gone.retain(|_, gone| !gone.is_empty());
    }

    /// What a Service port has lost, oldest first.
    pub(super) fn gone(&self, port: &PortName) -> &[GoneEndpoint] {
        self.gone.get(port).map(Vec::as_slice).unwrap_or_default()
    }

    /// The Service ports that have lost an endpoint at this address.
    pub(super) fn ports_at(&self, node: &str, key: &EndpointKey) -> impl Iterator<Item = &PortName> {
        self.gone
            .iter()
            .filter(move |(_, gone)| gone.iter().any(|gone| gone.node == node && gone.key == *key))
            .map(|(port, _)| port)
    }

    /// True when this pod was an endpoint of any Service.
    pub(super) fn knows(&self, pod: &PodUid) -> bool {
        self.gone.values().flatten().any(|gone| gone.pod_uid == *pod)
    }

    /// When the ready endpoints of a Service port last changed.
    pub(super) fn changed_ms(&self, port: &PortName) -> Option<u64> {
        self.changed_ms.get(port).copied()
    }

    /// Since when an endpoint has been ready, or has not been; `None`: since before anybody watched, or for longer than
    /// is remembered.
    pub(super) fn since_ms(
        &self,
        port: &PortName,
        (node, pod_uid, keys): (&str, &PodUid, &[EndpointKey]),
        ready: bool,
    ) -> Option<u64> {
        let spells = self.spells.get(port)?;
        let since = keys.iter().map(|key| {
            let spell = spells.get(&(node.to_owned(), pod_uid.clone(), *key));
            spell.filter(|spell| spell.ready == ready).map(|spell| spell.since_ms)
        });
        // It has been ready since its first address was, and has not been since its last one was not.
        if ready { since.min()? } else { since.max()? }
    }

    pub(super) fn expire(&mut self, now_ms: u64) {
        let is_kept = |at_ms: u64| now_ms.saturating_sub(at_ms) < RETENTION_MS;
        self.spells.retain(|_, spells| {
            spells.retain(|_, spell| spell.ready || is_kept(spell.since_ms));
            !spells.is_empty()
        });
        self.changed_ms.retain(|_, changed_ms| is_kept(*changed_ms));
        self.gone.retain(|_, gone| {
            gone.retain(|gone| is_kept(gone.gone_ms));
            !gone.is_empty()
        });
    }
}

/// Notes who has become ready and who has ceased to be. Of the latter, so many as lost endpoints are kept.
fn stand(
    spells: &mut Spells,
    were_ready: &BTreeMap<Identity, &Endpoint>,
    are_ready: &BTreeMap<Identity, &Endpoint>,
    now_ms: u64,
) {
    let mut note = |identity: &Identity, endpoint: &Endpoint, ready| {
        let identity = (identity.0.to_owned(), endpoint.pod_uid.clone(), identity.2);
        spells.insert(
            identity,
            Spell {
                ready,
                since_ms: now_ms,
            },
        );
    };
    let come = are_ready
        .iter()
        .filter(|(identity, _)| !were_ready.contains_key(*identity));
    come.for_each(|(identity, endpoint)| note(identity, endpoint, true));
    let left = were_ready
        .iter()
        .filter(|(identity, _)| !are_ready.contains_key(*identity));
    left.for_each(|(identity, endpoint)| note(identity, endpoint, false));
    let mut former: Vec<_> = spells.iter().filter(|(_, spell)| !spell.ready).collect();
    former.sort_by_key(|(_, spell)| spell.since_ms);
    let excess = former.len().saturating_sub(MAX_PER_PORT);
    let forgotten: Vec<_> = former[..excess]
        .iter()
        .map(|(identity, _)| (*identity).clone())
        .collect();
    for identity in forgotten {
        spells.remove(&identity);
    }
}

fn ports(view: &ClusterView) -> BTreeMap<PortName, &ServicePort> {
    view.services
        .iter()
        .flat_map(|(name, service)| service.ports.iter().map(|port| (port.named(name), port)))
        .collect()
}

fn identities(port: Option<&ServicePort>, ready_only: bool) -> BTreeMap<Identity<'_>, &Endpoint> {
    port.into_iter()
        .flat_map(|port| port.endpoints.iter().map(move |endpoint| (port, endpoint)))
        .filter(|(_, endpoint)| endpoint.ready || !ready_only)
        .flat_map(|(port, endpoint)| {
            endpoint
                .keys(port.protocol)
                .map(move |key| ((endpoint.node.as_str(), &*endpoint.pod_uid, key), endpoint))
        })
        .collect()
}
