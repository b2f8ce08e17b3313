//! What a `check` step expects of the explanation: who the clients are, whether they stay where they are, how old flows are,
//! and what findings say. YAML enters; plain values leave.

use std::collections::BTreeMap;
use std::fmt;

use flowskew_aggregator::report::{Confidence, FindingCode};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::value::{Amount, Bound, Int};
use crate::net::ProxyMode;

/// When a check is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// In this mode of kube-proxy.
    pub mode: ProxyMode,
}

/// Parts of the skew by cause, in percent of the whole.
pub type CauseBounds = BTreeMap<FindingCode, Bound>;

/// How often clients find the place where they were, corrected for chance: 0 to 1.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StickinessBounds {
    /// The same pod of a node.
    pub pods: Option<Bound>,
    /// The same node.
    pub nodes: Option<Bound>,
}

/// Who opens the flows of the window.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientsRule {
    /// Distinct clients.
    pub distinct: Option<Bound>,
    /// So many equal clients would be as concentrated.
    pub effective: Option<Bound>,
    /// Share of the ten heaviest, in percent.
    pub top_share: Option<Bound>,
    /// Is only a part of the clients told one by one?
    pub sampled: Option<bool>,
    /// Flows and clients that were told are all there were, and none was lost.
    pub exact: bool,
    /// The intervals of the three figures, widened to five standard deviations, hold what clients count.
    pub covered: bool,
}

impl ClientsRule {
    /// The clients' own figures are needed.
    pub fn needs_truth(&self) -> bool {
        self.exact || self.covered
    }
}

/// How old the established flows are.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PersistenceRule {
    /// Share of them that opened before the pods last changed, in percent.
    pub before_change: Option<Bound>,
    /// Hours until they are even.
    pub hours_to_even: Option<Hours>,
    /// Flows that are open on pods that are no endpoints.
    pub left_on_gone: Option<Int<0, 1_000_000>>,
}

/// Hours to something.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Hours {
    /// The report gives none.
    Unknown,
    /// Within a bound.
    Bound(Bound),
}

/// A finding, and what it says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saying {
    /// Its code.
    pub code: FindingCode,
    /// How sure it is.
    pub confidence: Option<Confidence>,
    /// Words that its sentence or its evidence has.
    #[serde(default)]
    pub words: Vec<String>,
}

/// How busy pods are.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuRule {
    /// Each pod's part of the CPU of all is its share of new flows, give or take so many percentage points.
    pub follows_shares: Amount,
}

/// Sayings with their places in the file.
pub type Sayings = Vec<Spanned<Saying>>;

impl<'de> Deserialize<'de> for Hours {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UnknownOrBound;
        impl<'de> Visitor<'de> for UnknownOrBound {
            type Value = Hours;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("unknown, or a bound like {at_least: 1}")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Hours, E> {
                match text {
                    "unknown" => Ok(Hours::Unknown),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Hours, A::Error> {
                Bound::deserialize(MapAccessDeserializer::new(map)).map(Hours::Bound)
            }
        }
        deserializer.deserialize_any(UnknownOrBound)
    }
}
