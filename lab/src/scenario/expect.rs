//! What a `check` step of a scenario file expects. YAML enters; [`Check`] leaves. Which pods and marks exist at that
//! point of the timeline is checked in `check`.

use flowskew_aggregator::report::{AffinityCode, BalancerModel};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::expect_why::{CauseBounds, ClientsRule, CpuRule, PersistenceRule, Sayings, StickinessBounds, When};
use super::findings::Findings;
use super::losses::LossRule;
use super::value::{Amount, Bound};

/// Expectations at one point of the timeline. Without a key, only the exact rules hold: `opened`, `closed`,
/// `established`, `gone`, `unserved`, `causes_add_up`, `losses`, `failures`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Check {
    /// A title for the table.
    pub name: String,
    /// When it is made; always without it.
    pub when: Option<When>,
    /// New flows are those since this mark; since the start without it.
    pub since: Option<Spanned<String>>,
    /// The Service whose report is looked at; the main one without it. Counts are compared for all.
    pub service: Option<Spanned<String>>,
    /// Opened flows of each pod, as agents and aggregator count them, equal the clients' own count.
    pub opened: Exactness,
    /// Closed flows of each pod likewise.
    pub closed: Exactness,
    /// Established flows of each pod equal those that `ss` shows in the pod.
    pub established: Exactness,
    /// Flows of pods that are gone are shown as such, and as many as clients count.
    pub gone: Exactness,
    /// Attempts that the report says reached no pod equal those that clients say have failed.
    pub unserved: Exactness,
    /// What agents and reports have lost.
    pub losses: LossRule,
    /// Each flow that clients tried to open has opened.
    pub failures: ZeroRule,
    /// Largest share over the ideal share.
    pub peak_ratio: PerKind<Bound>,
    /// Largest over smallest count.
    pub max_min: PerKind<Bound>,
    /// Is it more than chance?
    pub significant: PerKind<bool>,
    /// Parts of the Theil index of new flows, in percent of the whole.
    pub theil: TheilBounds,
    /// Shares of pods.
    pub shares: Vec<Spanned<Shares>>,
    /// The verdict on the load balancer.
    pub balancer: Option<BalancerModel>,
    /// The codes of all findings.
    pub findings: Option<Findings>,
    /// What findings say.
    pub says: Sayings,
    /// The parts of all causes add up to the skew.
    pub causes_add_up: Exactness,
    /// Parts of the skew by cause.
    pub causes: PerKind<CauseBounds>,
    /// The verdict on session affinity.
    pub affinity: Option<AffinityCode>,
    /// Is the limit of kube-proxy's lists named as what breaks it?
    pub affinity_list_limit: Option<bool>,
    /// Do clients find their place again?
    pub stickiness: StickinessBounds,
    /// Who opens flows.
    pub clients: Option<Spanned<ClientsRule>>,
    /// How old flows are.
    pub persistence: PersistenceRule,
    /// How busy pods are.
    pub cpu: Option<CpuRule>,
}

/// The mark that every scenario has: its start.
pub const START: &str = "start";

/// Is a count to be exact?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exactness {
    /// The difference must be 0.
    #[default]
    Exact,
    /// Not compared.
    Ignore,
}

/// May there be any?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroRule {
    /// Not one.
    #[default]
    None,
    /// Not looked at.
    Ignore,
}

/// The same for new and for established flows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerKind<T> {
    /// Of flows opened within the window.
    pub new: Option<T>,
    /// Of flows open now.
    pub established: Option<T>,
}

impl<T> Default for PerKind<T> {
    fn default() -> Self {
        Self {
            new: None,
            established: None,
        }
    }
}

/// Bounds on the parts of the Theil index, in percent.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TheilBounds {
    /// Nodes not equal.
    pub load_balancer: Option<Bound>,
    /// Nodes unequal in pods.
    pub placement: Option<Bound>,
    /// Pods of one node not equal.
    pub within_node: Option<Bound>,
}

/// The share that each of some pods must have, in percent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shares {
    /// These pods.
    pub pods: Vec<Spanned<String>>,
    /// All pods of these nodes.
    pub nodes: Vec<Spanned<String>>,
    /// Share of new flows.
    pub new: Option<Amount>,
    /// Share of established flows.
    pub established: Option<Amount>,
    /// The share that the product says to expect.
    pub expected: Option<Amount>,
    /// Percentage points that each may be off.
    pub within: Amount,
}
