//! Reads the fields of the kernel's sockets. Offsets differ between kernels: the agent takes them from the running kernel's
//! BTF and sets them before it loads the programs, so the verifier knows them as constants and checks each access.

use core::{ffi::c_void, ptr};

use aya_ebpf::Global;
use flowskew_agent_ebpf::{Address, LedgerKey, PROTOCOL_TCP};

/// Declares one offset a line: the name that the agent sets, and the field.
macro_rules! offsets {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $($(#[$doc])* #[unsafe(no_mangle)] static $name: Global<u32> = Global::new(0);)*
    };
}

offsets! {
    /// `sock_common.skc_family`
    SKC_FAMILY,
    /// `sock_common.skc_state`
    SKC_STATE,
    /// `sock_common.skc_num`
    SKC_NUM,
    /// `sock_common.skc_dport`
    SKC_DPORT,
    /// `sock_common.skc_daddr`
    SKC_DADDR,
    /// `sock_common.skc_rcv_saddr`
    SKC_RCV_SADDR,
    /// `sock_common.skc_v6_daddr`
    SKC_V6_DADDR,
    /// `sock_common.skc_v6_rcv_saddr`
    SKC_V6_RCV_SADDR,
    /// `sock_common.skc_net`
    SKC_NET,
    /// `sock.sk_protocol`
    SK_PROTOCOL,
    /// `sock.sk_err`
    SK_ERR,
    /// `sock.sk_cgrp_data.cgroup`, or 0 on kernels that have no such field
    SK_CGROUP,
    /// `cgroup.kn`
    CGROUP_KN,
    /// `kernfs_node.id`
    KN_ID,
    /// `socket.sk`
    SOCKET_SK,
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// TCP states, as the kernel numbers them.
pub const TCP_ESTABLISHED: i32 = 1;
pub const TCP_SYN_RECV: i32 = 3;
pub const TCP_FIN_WAIT1: i32 = 4;
pub const TCP_CLOSE: i32 = 7;
pub const TCP_CLOSE_WAIT: i32 = 8;
pub const TCP_LISTEN: i32 = 10;

/// A `struct sock` of the kernel, by a pointer that the verifier knows as such.
#[derive(Clone, Copy)]
pub struct Sock(*const c_void);

/// Who talks to whom.
pub struct Endpoints {
    /// Where the flow is counted.
    pub key: LedgerKey,
    /// The peer's address.
    pub client: Address,
    /// The peer's port, host order.
    pub client_port: u16,
}

impl Sock {
    /// # Safety
    /// The pointer is a `struct sock *` that the kernel passed to the program.
    #[inline(always)]
    pub unsafe fn new(pointer: *const c_void) -> Self {
        Self(pointer)
    }

    /// The socket of a `struct socket`.
    ///
    /// # Safety
    /// The pointer is a `struct socket *` that the kernel passed to the program, not null.
    #[inline(always)]
    pub unsafe fn of_socket(socket: *const c_void) -> Option<Self> {
        // SAFETY: as the caller promises; the offset is the kernel's own.
        let sk: *const c_void = unsafe { field(socket, SOCKET_SK.load()) };
        (!sk.is_null()).then_some(Self(sk))
    }

    /// The key of this socket in FLOWS.
    #[inline(always)]
    pub fn id(self) -> u64 {
        self.0 as u64
    }

    /// True for TCP over IPv4 or IPv6. MPTCP's own sockets (protocol 262) repeat their subflows, and are not.
    #[inline(always)]
    pub fn is_tcp(self) -> bool {
        let family: u16 = self.read(SKC_FAMILY.load());
        let protocol: u16 = self.read(SK_PROTOCOL.load());
        (family == AF_INET || family == AF_INET6) && protocol == u16::from(PROTOCOL_TCP)
    }

    /// TCP state now.
    #[inline(always)]
    pub fn state(self) -> i32 {
        let state: u8 = self.read(SKC_STATE.load());
        i32::from(state)
    }

    /// The pending error, a positive errno, or 0.
    #[inline(always)]
    pub fn error(self) -> i32 {
        self.read(SK_ERR.load())
    }

    /// Local port, host order.
    #[inline(always)]
    pub fn local_port(self) -> u16 {
        self.read(SKC_NUM.load())
    }

    /// Address of the kernel's network namespace of this socket.
    #[inline(always)]
    pub fn net(self) -> u64 {
        self.read(SKC_NET.load())
    }

    /// Both ends, and the cgroup.
    #[inline(always)]
    pub fn endpoints(self) -> Endpoints {
        let family: u16 = self.read(SKC_FAMILY.load());
        let (address, client) = if family == AF_INET {
            (
                mapped(self.read(SKC_RCV_SADDR.load())),
                mapped(self.read(SKC_DADDR.load())),
            )
        } else {
            (self.address(SKC_V6_RCV_SADDR.load()), self.address(SKC_V6_DADDR.load()))
        };
        let client_port: u16 = self.read(SKC_DPORT.load());
        Endpoints {
            key: LedgerKey {
                address,
                cgroup_id: self.cgroup_id(),
                port: self.local_port(),
                protocol: PROTOCOL_TCP,
                padding: [0; 5],
            },
            client,
            client_port: u16::from_be(client_port),
        }
    }

    /// cgroup v2 id of the socket: a passive socket has its listener's, and so its pod's.
    #[inline(always)]
    fn cgroup_id(self) -> u64 {
        let offset = SK_CGROUP.load();
        if offset == 0 {
            return 0;
        }
        let cgroup: *const c_void = self.read(offset);
        if cgroup.is_null() {
            return 0;
        }
        // SAFETY: the verifier knows the pointers' types and makes a read of a stale one give 0.
        unsafe {
            let node: *const c_void = field(cgroup, CGROUP_KN.load());
            if node.is_null() { 0 } else { field(node, KN_ID.load()) }
        }
    }

    /// An IPv6 address, read in the units that the verifier allows: 32 bits.
    #[inline(always)]
    fn address(self, offset: u32) -> Address {
        let words: [u32; 4] = [
            self.read(offset),
            self.read(offset + 4),
            self.read(offset + 8),
            self.read(offset + 12),
        ];
        // SAFETY: 16 bytes of plain integers either way.
        unsafe { core::mem::transmute(words) }
    }

    #[inline(always)]
    fn read<T: Copy>(self, offset: u32) -> T {
        // SAFETY: the pointer is a `struct sock *` by construction, and the verifier checks the offset.
        unsafe { field(self.0, offset) }
    }
}

/// Reads a field of a kernel structure. The verifier proves the access or rejects the program.
#[inline(always)]
unsafe fn field<T: Copy>(base: *const c_void, offset: u32) -> T {
    // SAFETY: as the caller promises. Volatile: the kernel changes sockets under our eyes.
    unsafe { ptr::read_volatile(base.cast::<u8>().add(offset as usize).cast::<T>()) }
}

/// The IPv4-mapped form of an IPv4 address in network order.
#[inline(always)]
fn mapped(ipv4: u32) -> Address {
    let words: [u32; 4] = [0, 0, u32::from_ne_bytes([0, 0, 0xff, 0xff]), ipv4];
    // SAFETY: 16 bytes of plain integers either way.
    unsafe { core::mem::transmute(words) }
}
