//! The lists and maps of a scenario file that serde does not read by itself. YAML enters; numbers, names and pairs leave, in
//! the order of the file.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::service::{NodeProcess, Port};

/// A number of nodes, called node-1, node-2 and so on, or their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    /// So many.
    Count(u64),
    /// With these names.
    Named(Vec<String>),
}

/// A number of pods, called after the Service, or their names.
pub type Pods = Nodes;

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountOrNames;
        impl<'de> Visitor<'de> for CountOrNames {
            type Value = Nodes;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a number, or a list of names")
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Nodes, E> {
                Ok(Nodes::Count(value))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Nodes, E> {
                let count = u64::try_from(value).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))?;
                Ok(Nodes::Count(count))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Nodes, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = seq.next_element()? {
                    names.push(name);
                }
                Ok(Nodes::Named(names))
            }
        }
        deserializer.deserialize_any(CountOrNames)
    }
}

/// Node and pods, in the order of the file.
#[derive(Debug, Clone)]
pub struct Placement(pub Vec<(String, Spanned<Pods>)>);

/// Pod and node, or pod and pod, in the order of the file.
#[derive(Debug, Clone)]
pub struct Moves(pub Vec<(String, Spanned<String>)>);

/// Pod and port, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct HostPorts(pub Vec<(String, Spanned<Port>)>);

/// Node and zone, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct Zones(pub Vec<(String, Spanned<String>)>);

/// Process of a node, by name, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct Processes(pub Vec<(String, Spanned<NodeProcess>)>);

impl<'de> Deserialize<'de> for Placement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pairs(deserializer, "a map from node to its pods").map(Self)
    }
}

impl<'de> Deserialize<'de> for Moves {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pairs(deserializer, "a map from pod to its new place").map(Self)
    }
}

impl<'de> Deserialize<'de> for HostPorts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pairs(deserializer, "a map from pod to port").map(Self)
    }
}

impl<'de> Deserialize<'de> for Zones {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pairs(deserializer, "a map from node to zone").map(Self)
    }
}

impl<'de> Deserialize<'de> for Processes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pairs(deserializer, "a map from name to node and port").map(Self)
    }
}

/// Reads a map into its pairs; std's maps would lose the order, which names the pods.
fn pairs<'de, D, V>(deserializer: D, form: &'static str) -> Result<Vec<(String, V)>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    struct Pairs<V>(&'static str, std::marker::PhantomData<V>);
    impl<'de, V: Deserialize<'de>> Visitor<'de> for Pairs<V> {
        type Value = Vec<(String, V)>;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }
    deserializer.deserialize_map(Pairs(form, std::marker::PhantomData))
}
