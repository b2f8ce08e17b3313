//! The label sets of the metrics: their fields are the labels' names, in order.

use prometheus_client::encoding::EncodeLabelSet;

/// A Service port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Port {
    pub(super) namespace: String,
    pub(super) service: String,
    pub(super) port: u16,
    pub(super) protocol: &'static str,
}

/// A figure about one kind of flows over one window.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Skew {
    #[prometheus(flatten)]
    pub(super) port: Port,
    pub(super) kind: &'static str,
    pub(super) window: &'static str,
}

/// One part of a Theil index.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TheilPart {
    #[prometheus(flatten)]
    pub(super) skew: Skew,
    pub(super) part: &'static str,
}

/// The balancer's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Balancer {
    #[prometheus(flatten)]
    pub(super) port: Port,
    pub(super) model: &'static str,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Finding {
    #[prometheus(flatten)]
    pub(super) port: Port,
    pub(super) code: &'static str,
}

/// An endpoint of a Service port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Endpoint {
    #[prometheus(flatten)]
    pub(super) port: Port,
    pub(super) node: String,
    pub(super) pod: String,
}

/// An endpoint and a window.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EndpointWindow {
    #[prometheus(flatten)]
    pub(super) endpoint: Endpoint,
    pub(super) window: &'static str,
}

/// An endpoint and a source class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EndpointClass {
    #[prometheus(flatten)]
    pub(super) endpoint: Endpoint,
    pub(super) source_class: &'static str,
}

/// An endpoint and a close cause.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EndpointCause {
    #[prometheus(flatten)]
    pub(super) endpoint: Endpoint,
    pub(super) cause: &'static str,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Node {
    pub(super) node: String,
}

/// A node and a kind of loss.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct NodeLoss {
    pub(super) node: String,
    pub(super) kind: &'static str,
}

/// What became of reports.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Outcome {
    pub(super) outcome: &'static str,
}

/// What was left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Kind {
    pub(super) kind: &'static str,
}

/// A resource of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Resource {
    pub(super) resource: &'static str,
}

/// A kind of front door of a Service port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Door {
    #[prometheus(flatten)]
    pub(super) port: Port,
    pub(super) door: &'static str,
}

/// Where and why attempts reached no pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Unserved {
    #[prometheus(flatten)]
    pub(super) port: Port,
    pub(super) node: String,
    pub(super) reason: &'static str,
}

/// What an agent says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Agent {
    pub(super) node: String,
    pub(super) agent_version: String,
    pub(super) kernel_release: String,
    pub(super) abi_version: u32,
    pub(super) origin: &'static str,
}

/// Something that an agent cannot do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Degraded {
    pub(super) node: String,
    pub(super) code: String,
}

/// What became of a look-up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Lookup {
    pub(super) node: String,
    pub(super) result: &'static str,
}

/// The part of a cause in one kind of flows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CauseShare {
    #[prometheus(flatten)]
    pub(super) port: Port,
    pub(super) kind: &'static str,
    pub(super) code: &'static str,
}

/// An estimate: its value, and the ends of its interval.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Figure {
    #[prometheus(flatten)]
    pub(super) port: Port,
    pub(super) bound: &'static str,
}

/// A tier at which clients may stick, and an end of the estimate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Tier {
    #[prometheus(flatten)]
    pub(super) port: Port,
    pub(super) tier: &'static str,
    pub(super) bound: &'static str,
}

/// The verdict about session affinity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Affinity {
    #[prometheus(flatten)]
    pub(super) port: Port,
    pub(super) code: &'static str,
}
