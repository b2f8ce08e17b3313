//! The records and map keys that the kernel programs and the agent share: integers and byte arrays only, explicit
//! padding, sizes asserted. Change one, and [`ABI_VERSION`] must grow.
#![no_std]
#![cfg_attr(not(feature = "user"), forbid(unsafe_code))]

mod records;

pub use records::*;

/// Version of the layout of every record below.
pub const ABI_VERSION: u32 = 2;

/// An address: 16 bytes, network order. IPv4 is IPv4-mapped IPv6, so one peer has one form whatever its socket's family.
pub type Address = [u8; 16];

/// IP protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// Source classes, as indices of [`LedgerValue::classes`].
pub mod source_class {
    /// Opened before prefixes were known.
    pub const UNCLASSIFIED: u8 = 0;
    /// No prefix covers the client.
    pub const EXTERNAL: u8 = 1;
    /// An address of a pod.
    pub const POD: u8 = 2;
    /// An address of a node.
    pub const NODE: u8 = 3;
    /// Number of classes.
    pub const COUNT: usize = 4;
}

/// Close causes, as indices of [`ClassCounts::closed`].
pub mod close_cause {
    /// None of the below was seen.
    pub const OTHER: u8 = 0;
    /// The client closed first.
    pub const CLIENT_FIN: u8 = 1;
    /// The server closed first.
    pub const SERVER_FIN: u8 = 2;
    /// The client reset.
    pub const CLIENT_RST: u8 = 3;
    /// The server reset.
    pub const SERVER_RST: u8 = 4;
    /// Retransmissions or keep-alives ran out.
    pub const TIMEOUT: u8 = 5;
    /// Number of causes.
    pub const COUNT: usize = 6;
}

/// Indices of the per-CPU map LOSSES, each a `u64`.
pub mod loss {
    /// Events that found EVENTS full.
    pub const RING_FULL: u32 = 0;
    /// Flows that found FLOWS full.
    pub const FLOWS_FULL: u32 = 1;
    /// Flows that found LEDGER full.
    pub const LEDGER_FULL: u32 = 2;
    /// Closes on a ledger key of a flow that FLOWS does not hold.
    pub const ORPHAN_CLOSE: u32 = 3;
    /// Flows whose end was not seen, found when their socket's address was used again; counted as closed then.
    pub const ORPHAN_FLOW: u32 = 4;
    /// Flows that a walk over FLOWS found gone, with their end not seen; counted as closed then.
    pub const CORRECTED: u32 = 5;
    /// Attempts that reached no pod and found no room to be counted.
    pub const UNSERVED_FULL: u32 = 6;
    /// Datagrams of flows that found UDP_FLOWS full: those flows are not counted.
    pub const UDP_FLOWS_FULL: u32 = 7;
    /// Number of losses.
    pub const COUNT: u32 = 8;
}

/// Key of LEDGER: one local address and port, and the cgroup of the socket, so that a reused address or a shared node
/// address is another key from the start.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LedgerKey {
    /// Local address.
    pub address: Address,
    /// cgroup v2 id of the socket; 0 if it has none.
    pub cgroup_id: u64,
    /// Local port, host order.
    pub port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Zero.
    pub padding: u8,
    /// Zero. Words, since the compiler clears a row of bytes with a call.
    pub padding_word: u32,
}

impl LedgerKey {
    /// The endpoint that the key is of.
    #[inline(always)]
    pub fn endpoint(&self) -> WatchedKey {
        WatchedKey {
            address: self.address,
            port: self.port,
            protocol: self.protocol,
            padding: 0,
        }
    }
}

/// Value of LEDGER: the counters of one key by source class. Each is changed by atomic addition only.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerValue {
    /// Indexed by [`source_class`].
    pub classes: [ClassCounts; source_class::COUNT],
}

/// The counters of one source class.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassCounts {
    /// Flows that became established.
    pub opened: u64,
    /// Flows open now. May be read one short or over while a flow opens or closes on another CPU.
    pub established: i64,
    /// Flows found open when counting began.
    pub seeded: u64,
    /// Flows that left ESTABLISHED, indexed by [`close_cause`].
    pub closed: [u64; close_cause::COUNT],
}

/// Value of FLOWS, whose key is the address of the kernel's socket: one open flow.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flow {
    /// Where it is counted.
    pub key: LedgerKey,
    /// The client's address.
    pub client: Address,
    /// When it opened, nanoseconds since boot; 0 if it was found open.
    pub opened_at_ns: u64,
    /// The client's port, host order.
    pub client_port: u16,
    /// [`source_class`] at the moment it opened.
    pub source_class: u8,
    /// Zero.
    pub padding: u8,
    /// Zero. Words, since the compiler clears a row of bytes with a call.
    pub padding_word: u32,
}

/// Key of WATCHED: an endpoint whose single flows are of interest. The value is a `u8`, always 1.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchedKey {
    /// Local address.
    pub address: Address,
    /// Local port, host order.
    pub port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Zero.
    pub padding: u8,
}

/// What happened to a flow.
pub mod event_kind {
    /// It became established.
    pub const OPENED: u8 = 1;
    /// It left ESTABLISHED.
    pub const CLOSED: u8 = 2;
}

/// One record of the ring buffer EVENTS: a flow of a watched endpoint opened or closed.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEvent {
    /// The flow.
    pub flow: Flow,
    /// When it happened, nanoseconds since boot.
    pub at_ns: u64,
    /// [`event_kind`].
    pub kind: u8,
    /// [`close_cause`] of a CLOSED event, else 0.
    pub cause: u8,
    /// Zero.
    pub padding: [u8; 6],
}

/// The one value of MEMORY: what an agent has to know of the one before it. Zero when there was none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgentMemory {
    /// Name of this life of the counters; 0 before it has begun.
    pub epoch: u64,
    /// When it began, milliseconds since 1970.
    pub epoch_started_at_ms: u64,
    /// Sequence of the last report that was made.
    pub sequence: u64,
    /// 1 once the flows that were open at the beginning have been taken up; 2 if they could not be.
    pub seeded: u32,
    /// Sizes that the maps were made with: entries of FLOWS and LEDGER, bytes of EVENTS, entries of UDP_FLOWS.
    pub sizes: [u32; 4],
    /// Zero.
    pub padding: u32,
    /// How often the kernel has skipped the first program of `inet_sock_set_state` in objects that were replaced, in this epoch.
    pub skipped_before: u64,
    /// Events that both of its programs were skipped for, in this epoch.
    pub recursion: u64,
}

const _: () = assert!(size_of::<AgentMemory>() == 64);
const _: () = assert!(size_of::<LedgerKey>() == 32);
const _: () = assert!(size_of::<ClassCounts>() == 72);
const _: () = assert!(size_of::<LedgerValue>() == 288);
const _: () = assert!(size_of::<Flow>() == 64);
const _: () = assert!(size_of::<WatchedKey>() == 20);
const _: () = assert!(size_of::<FlowEvent>() == 80);

#[cfg(feature = "user")]
mod user {
    use super::{AgentMemory, Flow, FlowEvent, LedgerKey, LedgerValue, WatchedKey};

    impl FlowEvent {
        /// Reads a record of the ring; `None` if it has another size.
        pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
            // SAFETY: the size is checked, every bit pattern is valid, and the read does not need alignment.
            (bytes.len() == size_of::<Self>()).then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
        }
    }

    // SAFETY: each is repr(C), made of integers and byte arrays with explicit padding: every bit pattern is valid.
    unsafe impl aya::Pod for LedgerKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for LedgerValue {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Flow {}
    // SAFETY: as above.
    unsafe impl aya::Pod for WatchedKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for AgentMemory {}
}
