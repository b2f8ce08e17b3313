//! The words that every module shares: addresses, endpoints, source classes and close causes, as plain types.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Transport protocol of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// As Kubernetes writes it; also the label value in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Where the flows of an endpoint arrive. IPv4 is kept as IPv4-mapped IPv6, so that one address has one form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointKey {
    /// Local address.
    pub address: Ipv6Addr,
    /// Local port.
    pub port: u16,
    /// Protocol.
    pub protocol: Protocol,
}

/// The one form of an address.
pub fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Where a flow comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceClass {
    /// Opened before the agent could tell.
    Unclassified,
    /// Outside the cluster: the only class that skew is measured on.
    External,
    /// An address of a pod.
    Pod,
    /// An address of a node.
    Node,
}

impl SourceClass {
    /// Every class, in the order of [`Self::index`].
    pub const ALL: [Self; 4] = [Self::Unclassified, Self::External, Self::Pod, Self::Node];

    /// Position in arrays by class.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Label value in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unclassified => "unclassified",
            Self::External => "external",
            Self::Pod => "pod",
            Self::Node => "node",
        }
    }
}

/// One value a source class, indexed by [`SourceClass::index`].
pub type ByClass<T> = [T; SourceClass::ALL.len()];

/// Who ended a flow, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseCause {
    /// None of the below was seen.
    Other,
    /// The client closed first.
    ClientFin,
    /// The server closed first.
    ServerFin,
    /// The client reset.
    ClientRst,
    /// The server reset.
    ServerRst,
    /// Retransmissions or keep-alives ran out.
    Timeout,
}

impl CloseCause {
    /// Every cause, in the order of [`Self::index`].
    pub const ALL: [Self; 6] = [
        Self::Other,
        Self::ClientFin,
        Self::ServerFin,
        Self::ClientRst,
        Self::ServerRst,
        Self::Timeout,
    ];

    /// Position in arrays by cause.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Label value in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::ClientFin => "client_fin",
            Self::ServerFin => "server_fin",
            Self::ClientRst => "client_rst",
            Self::ServerRst => "server_rst",
            Self::Timeout => "timeout",
        }
    }
}

/// The counters of one source class at one endpoint. Cumulative since the start of an epoch, except `established`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Flows that became established.
    pub opened: u64,
    /// Flows open now.
    pub established: u64,
    /// Flows found already open when counting began.
    pub seeded: u64,
    /// Flows closed, indexed by [`CloseCause::index`].
    pub closed: [u64; CloseCause::ALL.len()],
}

impl Counts {
    /// Adds another endpoint's counters; sums that do not fit stay at the largest number.
    pub fn add(&mut self, other: &Self) {
        self.opened = self.opened.saturating_add(other.opened);
        self.established = self.established.saturating_add(other.established);
        self.seeded = self.seeded.saturating_add(other.seeded);
        for (sum, count) in self.closed.iter_mut().zip(other.closed) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Flows closed, by any cause.
    pub fn closed_total(&self) -> u64 {
        self.closed.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}
