//! The Services of a scenario file. YAML enters; [`Service`] leaves. Each is of type LoadBalancer, has
//! externalTrafficPolicy Local, and selects all pods.

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::value::Int;
use crate::net::Protocol;

/// Port of a Service or a process.
pub type Port = Int<1, 65_535>;

/// The main Service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// Namespace.
    pub namespace: Spanned<String>,
    /// Name; pods without a name of their own are called after it.
    pub name: Spanned<String>,
    /// Port; the pods listen on the same.
    pub port: Port,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// sessionAffinity.
    pub affinity: Affinity,
    /// sessionAffinity's timeoutSeconds.
    pub affinity_timeout_seconds: Option<Spanned<Int<1, 86_400>>>,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            namespace: unlocated("default"),
            name: unlocated("gateway"),
            port: Int::new(8883),
            protocol: Protocol::Tcp,
            affinity: Affinity::None,
            affinity_timeout_seconds: None,
        }
    }
}

fn unlocated(text: &str) -> Spanned<String> {
    Spanned::new(text.to_owned(), Location::UNKNOWN, Location::UNKNOWN)
}

impl Service {
    /// timeoutSeconds of the affinity, or none without affinity. Kubernetes' own default is three hours.
    pub fn affinity_timeout(&self) -> Option<u32> {
        const DEFAULT: u64 = 10_800;
        let seconds = self
            .affinity_timeout_seconds
            .as_ref()
            .map_or(DEFAULT, |seconds| seconds.value.get());
        (self.affinity == Affinity::ClientIp).then(|| u32::try_from(seconds).unwrap_or(u32::MAX))
    }
}

/// Another Service with the same pods, namespace and target port as the main one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherService {
    /// Name.
    pub name: Spanned<String>,
    /// Port.
    pub port: Port,
}

/// sessionAffinity, as Kubernetes spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Affinity {
    /// Each connection picks a pod anew.
    None,
    /// A client address keeps its pod on a node.
    #[serde(rename = "ClientIP")]
    ClientIp,
}

/// A server on a node that is no pod: a process of the node itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeProcess {
    /// Its node.
    pub node: Spanned<String>,
    /// Where it listens.
    pub port: Port,
}
