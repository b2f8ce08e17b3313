//! What a check expects of losses: none, or which, and how many. YAML enters; [`LossRule`] leaves.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::value::Bound;

/// What may be lost.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum LossRule {
    /// Nothing.
    #[default]
    None,
    /// Not looked at.
    Ignore,
    /// So much of these kinds, and nothing of others.
    These(These),
}

/// Kinds of losses, and how much is lost of each.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct These(pub BTreeMap<LossKind, LossBound>);

/// A kind of loss that an agent counts, spelled as its metrics do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are those of the losses of a report")]
pub enum LossKind {
    RingFull,
    FlowsFull,
    LedgerFull,
    OrphanClose,
    OrphanFlow,
    Recursion,
    Corrected,
    UnservedFull,
    UdpFlowsFull,
    ActivityDropped,
}

impl LossKind {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::FlowsFull => "flows_full",
            Self::LedgerFull => "ledger_full",
            Self::OrphanClose => "orphan_close",
            Self::OrphanFlow => "orphan_flow",
            Self::Recursion => "recursion",
            Self::Corrected => "corrected",
            Self::UnservedFull => "unserved_full",
            Self::UdpFlowsFull => "udp_flows_full",
            Self::ActivityDropped => "activity_dropped",
        }
    }
}

/// How much must be lost at each agent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossBound {
    /// What the lab knows to be lost.
    Exact,
    /// Within a bound.
    Bound(Bound),
}

impl<'de> Deserialize<'de> for LossRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rule;
        impl<'de> Visitor<'de> for Rule {
            type Value = LossRule;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("none, ignore, or a map from kind of loss to a bound")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<LossRule, E> {
                match text {
                    "none" => Ok(LossRule::None),
                    "ignore" => Ok(LossRule::Ignore),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LossRule, A::Error> {
                These::deserialize(MapAccessDeserializer::new(map)).map(LossRule::These)
            }
        }
        deserializer.deserialize_any(Rule)
    }
}

impl<'de> Deserialize<'de> for LossBound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ExactOrBound;
        impl<'de> Visitor<'de> for ExactOrBound {
            type Value = LossBound;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("exact, or a bound like {at_least: 1}")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<LossBound, E> {
                match text {
                    "exact" => Ok(LossBound::Exact),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LossBound, A::Error> {
                Bound::deserialize(MapAccessDeserializer::new(map)).map(LossBound::Bound)
            }
        }
        deserializer.deserialize_any(ExactOrBound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(yaml: &str) -> Result<LossRule, String> {
        serde_saphyr::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rule_is_a_word_or_a_map() {
        assert_eq!(rule("none"), Ok(LossRule::None));
        assert_eq!(rule("ignore"), Ok(LossRule::Ignore));
        let Ok(LossRule::These(These(kinds))) = rule("{flows_full: exact, ring_full: {at_least: 1}}") else {
            panic!("not a map");
        };
        assert_eq!(kinds[&LossKind::FlowsFull], LossBound::Exact);
        assert!(matches!(kinds[&LossKind::RingFull], LossBound::Bound(bound) if bound.holds(1.0) && !bound.holds(0.0)));
    }

    #[test]
    fn a_wrong_rule_is_told_what_is_allowed() {
        assert!(rule("some").unwrap_err().contains("none, ignore, or a map"));
        assert!(rule("{flows: exact}").unwrap_err().contains("flows_full"));
        assert!(rule("{flows_full: all}").unwrap_err().contains("exact, or a bound"));
    }

    #[test]
    fn each_kind_is_spelled_as_it_is_read() {
        for kind in [LossKind::RingFull, LossKind::OrphanFlow, LossKind::UnservedFull] {
            assert_eq!(serde_saphyr::from_str::<LossKind>(kind.word()).unwrap(), kind);
        }
    }
}
