//! UDP flows: one 5-tuple until it is silent for the idle time.

use crate::{Address, Flow, LedgerKey};

/// Key of UDP_FLOWS: one 5-tuple, and the cgroup of the local socket.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct UdpFlowKey {
    /// Where it is counted.
    pub key: LedgerKey,
    /// The client's address.
    pub client: Address,
    /// The client's port, host order.
    pub client_port: u16,
    /// Zero.
    pub padding: [u8; 6],
}

/// Value of UDP_FLOWS.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpFlow {
    /// When its first datagram arrived, nanoseconds since boot.
    pub opened_at_ns: u64,
    /// When its last datagram arrived, nanoseconds since boot.
    pub last_at_ns: u64,
    /// [`crate::source_class`] at the moment it opened.
    pub source_class: u8,
    /// Zero.
    pub padding: u8,
    /// Zero.
    pub padding_half: u16,
    /// Zero.
    pub padding_word: u32,
}

impl UdpFlowKey {
    /// The flow in the form that flows of TCP have.
    #[inline(always)]
    pub fn flow(&self, value: &UdpFlow) -> Flow {
        Flow {
            key: self.key,
            client: self.client,
            opened_at_ns: value.opened_at_ns,
            client_port: self.client_port,
            source_class: value.source_class,
            padding: 0,
            padding_word: 0,
        }
    }
}

const _: () = assert!(size_of::<UdpFlowKey>() == 56);
const _: () = assert!(size_of::<UdpFlow>() == 24);

#[cfg(feature = "user")]
// SAFETY: repr(C), made of integers and byte arrays with explicit padding: every bit pattern is valid.
unsafe impl aya::Pod for UdpFlowKey {}
#[cfg(feature = "user")]
// SAFETY: as above.
unsafe impl aya::Pod for UdpFlow {}
