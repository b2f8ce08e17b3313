//! What the aggregator wants of this node: in, an assignment as plain values; out, the kernel maps set to it.

use std::collections::{HashMap, HashSet};

use flowskew_agent_ebpf::{Address, WatchedKey};

use crate::{
    clients::keys::ClientKey,
    kernel::{Kernel, KernelError},
};

/// Endpoints and prefixes that fit the kernel maps; more are cut off, and said so.
pub const MAX_ENDPOINTS: usize = 4_096;
/// Front doors that fit the kernel map.
pub const MAX_FRONT_DOORS: usize = 16_384;
/// Half of what the map holds, since those of the assignment before go only when the new ones are there.
pub const MAX_PREFIXES: usize = 32_767;

/// The endpoints of this node and how to class clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Version, for logs.
    pub version: u64,
    /// Endpoints whose single flows are of interest.
    pub endpoints: HashSet<WatchedKey>,
    /// Where Services can be dialled on this node.
    pub front_doors: HashSet<WatchedKey>,
    /// Prefixes of pods and nodes, as address and length of 0 to 128 bits, with their source class.
    pub prefixes: HashMap<(Address, u32), u8>,
    /// Time between reports in milliseconds; `None`: as configured.
    pub report_interval_ms: Option<u64>,
    /// Keys to hash clients with, in order; without one, single flows are not reported.
    pub client_keys: Vec<ClientKey>,
    /// Items that were malformed or did not fit.
    pub ignored: usize,
}

impl Assignment {
    /// Sets the kernel maps. Classes first: an endpoint's flows are then classed from its first event on.
    pub fn apply(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        kernel.classify(&self.prefixes)?;
        kernel.watch(&self.endpoints)?;
        kernel.set_front_doors(&self.front_doors)
    }
}
