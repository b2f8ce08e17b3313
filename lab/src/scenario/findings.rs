//! The findings that a check expects. YAML enters: a list of codes, or a list of such lists where chance decides which; the
//! lists leave.

use std::collections::BTreeSet;
use std::fmt;

use flowskew_aggregator::report::FindingCode;
use serde::de::value::{SeqAccessDeserializer, StrDeserializer};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Lists of codes, one of which must be that of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings(Vec<BTreeSet<FindingCode>>);

impl Findings {
    /// True when these codes are one of the lists, in any order.
    pub fn hold(&self, codes: &[FindingCode]) -> bool {
        let got: BTreeSet<FindingCode> = codes.iter().copied().collect();
        self.0.contains(&got)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let lists: Vec<String> = self.0.iter().map(words).collect();
        f.write_str(&lists.join("; or "))
    }
}

/// Codes as people read them.
pub fn words<'a>(codes: impl IntoIterator<Item = &'a FindingCode>) -> String {
    let codes: Vec<&str> = codes.into_iter().map(|code| code.code()).collect();
    if codes.is_empty() {
        "none".to_owned()
    } else {
        codes.join(", ")
    }
}

/// An element of the outer list.
enum Item {
    Code(FindingCode),
    List(Vec<FindingCode>),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CodeOrList;
        impl<'de> Visitor<'de> for CodeOrList {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a code, or a list of codes")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Item, E> {
                FindingCode::deserialize(StrDeserializer::new(text)).map(Item::Code)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Item, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Item::List)
            }
        }
        deserializer.deserialize_any(CodeOrList)
    }
}

impl<'de> Deserialize<'de> for Findings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut codes = Vec::new();
        let mut lists = Vec::new();
        for item in Vec::<Item>::deserialize(deserializer)? {
            match item {
                Item::Code(code) => codes.push(code),
                Item::List(list) => lists.push(list),
            }
        }
        if !codes.is_empty() && !lists.is_empty() {
            return Err(D::Error::custom(
                "findings: either codes, or lists of codes of which one must hold",
            ));
        }
        if lists.is_empty() {
            lists.push(codes);
        }
        if lists.iter().any(Vec::is_empty) {
            return Err(D::Error::custom(
                "findings: a report always has one; `even` or `insufficient-data` when nothing is wrong",
            ));
        }
        let sets = lists.into_iter().map(|list| {
            let set: BTreeSet<FindingCode> = list.iter().copied().collect();
            (set.len() == list.len()).then_some(set)
        });
        let sets: Option<Vec<_>> = sets.collect();
        sets.map(Self)
            .ok_or_else(|| D::Error::custom("findings: each code once"))
    }
}

#[cfg(test)]
mod tests {
    use super::FindingCode::{AffinityPinning, Even, LbWeighted};
    use super::*;

    fn findings(yaml: &str) -> Result<Findings, String> {
        serde_saphyr::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn the_codes_are_those_of_one_list_in_any_order() {
        let one = findings("[even, lb-weighted]").unwrap();
        assert!(one.hold(&[LbWeighted, Even]));
        assert!(!one.hold(&[Even]) && !one.hold(&[]) && !one.hold(&[Even, LbWeighted, AffinityPinning]));
        assert_eq!(one.to_string(), "lb-weighted, even");

        let two = findings("[[even], [affinity-pinning]]").unwrap();
        assert!(two.hold(&[Even]) && two.hold(&[AffinityPinning]));
        assert!(!two.hold(&[Even, AffinityPinning]) && !two.hold(&[LbWeighted]));
        assert_eq!(two.to_string(), "even; or affinity-pinning");
    }

    #[test]
    fn a_list_that_cannot_hold_is_refused() {
        for (yaml, says) in [
            ("[]", "`even` or `insufficient-data` when nothing is wrong"),
            ("[[even], []]", "`even` or `insufficient-data`"),
            ("[even, even]", "each code once"),
            ("[even, [even]]", "either codes, or lists"),
            ("[evn]", "unknown variant `evn`, expected one of placement-skew"),
            ("[{even: 1}]", "a code, or a list of codes"),
            ("even", "sequence"),
        ] {
            let error = findings(yaml).unwrap_err();
            assert!(error.contains(says), "{yaml}: {error}");
        }
    }
}
