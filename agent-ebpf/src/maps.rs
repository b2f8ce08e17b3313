//! The maps. Their sizes are defaults, which the agent overrides when it loads the programs.

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    macros::map,
    maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, RingBuf},
};
use flowskew_agent_ebpf::{
    Address, AgentMemory, AttemptKey, DoorCoverage, DoorKey, DoorValue, Flow, Handled, LedgerKey, LedgerValue,
    MAX_DOORS, Settings, UdpFlow, UdpFlowKey, UnservedKey, WatchedKey, loss,
};

/// errno of an insert that found the key.
pub const EEXIST: i32 = -17;

/// Counters by local address, port and cgroup: the figures that everything else is made of.
#[map]
pub static LEDGER: HashMap<LedgerKey, LedgerValue> = HashMap::with_max_entries(16_384, BPF_F_NO_PREALLOC);

/// Open flows by the address of the kernel's socket.
#[map]
pub static FLOWS: HashMap<u64, Flow> = HashMap::with_max_entries(262_144, BPF_F_NO_PREALLOC);

/// Open UDP flows.
#[map]
pub static UDP_FLOWS: HashMap<UdpFlowKey, UdpFlow> = HashMap::with_max_entries(65_536, BPF_F_NO_PREALLOC);

/// Where Services can be dialled on this node. The value is always 1.
#[map]
pub static FRONT_DOORS: HashMap<WatchedKey, u8> = HashMap::with_max_entries(16_384, BPF_F_NO_PREALLOC);

/// Attempts to connect that reached no pod.
#[map]
pub static UNSERVED: HashMap<UnservedKey, u64> = HashMap::with_max_entries(4_096, BPF_F_NO_PREALLOC);

/// When the last packet of such an attempt was seen. The oldest make room for new ones.
#[map]
pub static ATTEMPTS: LruHashMap<AttemptKey, u64> = LruHashMap::with_max_entries(16_384, 0);

/// Endpoints whose single flows are told in EVENTS.
#[map]
pub static WATCHED: HashMap<WatchedKey, u8> = HashMap::with_max_entries(4_096, BPF_F_NO_PREALLOC);

/// Source class by the longest prefix of the client's address. Empty until the agent has an assignment, and from then on
/// with an entry of length 0 for external, so that a miss means: not classified.
#[map]
pub static CLASSES: LpmTrie<Address, u8> = LpmTrie::with_max_entries(65_536, 0);

/// Opens and closes of watched endpoints, as they happen.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// What could not be counted or told, indexed by [`loss`].
#[map]
pub static LOSSES: PerCpuArray<u64> = PerCpuArray::with_max_entries(loss::COUNT, 0);

/// What the first program of `inet_sock_set_state` has handled on this CPU.
#[map]
pub static HANDLED: PerCpuArray<Handled> = PerCpuArray::with_max_entries(1, 0);

/// Listening ports by network namespace, while seeding.
#[map]
pub static LISTENERS: HashMap<Listener, u8> = HashMap::with_max_entries(65_536, BPF_F_NO_PREALLOC);

/// Key of LISTENERS.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Listener {
    /// Address of the kernel's network namespace.
    pub net: u64,
    /// Local port, host order.
    pub port: u64,
}

/// One word: 1 once FLOWS has been full.
#[map]
pub static OVERFLOWED: Array<u32> = Array::with_max_entries(1, 0);

/// What the agent tells the programs while they run.
#[map]
pub static SETTINGS: Array<Settings> = Array::with_max_entries(1, 0);

/// What the agent has to remember from one of its lives to the next. The programs do not use it.
#[map]
pub static MEMORY: Array<AgentMemory> = Array::with_max_entries(1, 0);

/// Flows by front door. The agent keeps them here from one of its lives to the next; the programs do not use them.
#[map]
pub static DOORS: HashMap<DoorKey, DoorValue> = HashMap::with_max_entries(MAX_DOORS, BPF_F_NO_PREALLOC);

/// What became of the flows whose front door was asked for. The programs do not use it.
#[map]
pub static DOOR_COVERAGE: Array<DoorCoverage> = Array::with_max_entries(1, 0);

/// A flow has found FLOWS full: from now on, the close of an unknown socket may be that of a flow counted as opened.
#[inline(always)]
pub fn note_flows_overflow() {
    let _ = OVERFLOWED.set(0, 1, 0);
}

/// Whether FLOWS has ever been full.
#[inline(always)]
pub fn flows_have_overflowed() -> bool {
    OVERFLOWED.get(0).is_some_and(|word| *word != 0)
}

/// What the agent has set.
#[inline(always)]
pub fn settings() -> Settings {
    SETTINGS.get(0).copied().unwrap_or(Settings {
        udp_idle_ns: 0,
        node_netns: 0,
        padding: 0,
    })
}

/// Adds one to a loss.
#[inline(always)]
pub fn count_loss(index: u32) {
    if let Some(counter) = LOSSES.get_ptr_mut(index) {
        // SAFETY: the pointer is into this CPU's slot of the array, and programs of one CPU do not run in parallel.
        unsafe { *counter += 1 };
    }
}
