//! The kinds of objects that the stand-in serves. A type enters; its paths and names leave.

use k8s_openapi::Resource;

/// One kind of object that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// `apiVersion` of an object.
    pub api_version: &'static str,
    /// `kind` of an object.
    pub kind: &'static str,
    /// Last part of the path.
    pub plural: &'static str,
    /// True when it lives in a namespace.
    pub namespaced: bool,
}

/// What is served.
pub const KINDS: [Kind; 6] = [
    Kind {
        api_version: "v1",
        kind: "Node",
        plural: "nodes",
        namespaced: false,
    },
    Kind {
        api_version: "v1",
        kind: "Pod",
        plural: "pods",
        namespaced: true,
    },
    Kind {
        api_version: "v1",
        kind: "Service",
        plural: "services",
        namespaced: true,
    },
    Kind {
        api_version: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        plural: "endpointslices",
        namespaced: true,
    },
    Kind {
        api_version: "v1",
        kind: "Event",
        plural: "events",
        namespaced: true,
    },
    Kind {
        api_version: "events.k8s.io/v1",
        kind: "Event",
        plural: "events",
        namespaced: true,
    },
];

impl Kind {
    /// The kind of a type.
    ///
    /// # Errors
    /// It is not served.
    pub fn of<T: Resource>() -> anyhow::Result<Self> {
        KINDS
            .into_iter()
            .find(|kind| kind.api_version == T::API_VERSION && kind.kind == T::KIND)
            .ok_or_else(|| anyhow::anyhow!("the API server stand-in does not serve {} {}", T::API_VERSION, T::KIND))
    }
}
