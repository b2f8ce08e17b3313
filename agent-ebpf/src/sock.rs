//! Reads the fields of the kernel's sockets. Offsets differ between kernels: the agent takes them from the running kernel's
//! BTF and sets them before it loads the programs, so the verifier knows them as constants and checks each access.
//!
//! A pointer that the kernel passed as a `struct sock *` is read in place ([`Sock`]). Of one that is only a number, every read
//! is checked when it happens ([`Suspect`]).

use core::{ffi::c_void, ptr};

use aya_ebpf::{Global, helpers::bpf_probe_read_kernel};
use flowskew_agent_ebpf::{Address, Flow, LedgerKey, PROTOCOL_TCP};

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
    /// `sock.sk_cgrp_data.val`, which held the cgroup with flags in its lowest bits before 5.14, or 0
    SK_CGROUP_VALUE,
    /// `cgroup.kn`
    CGROUP_KN,
    /// `kernfs_node.id`
    KN_ID,
    /// `socket.sk`
    SOCKET_SK,
    /// `file.f_inode`
    FILE_INODE,
    /// `file.private_data`
    FILE_PRIVATE_DATA,
    /// `inode.i_sb`
    INODE_SB,
    /// `super_block.s_magic`
    SB_MAGIC,
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

/// `SOCKFS_MAGIC` of `linux/magic.h`.
const SOCKFS_MAGIC: u64 = 0x534f_434b;

/// A `struct sock` of the kernel. `CHECKED`: whether each read is checked when it happens.
#[derive(Clone, Copy)]
pub struct AnySock<const CHECKED: bool>(*const c_void);

/// A socket by a pointer that the verifier knows as such.
pub type Sock = AnySock<false>;

/// What may be a socket, or may have been one. A read that fails gives zeros.
pub type Suspect = AnySock<true>;

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
}

impl Suspect {
    /// The socket whose key in FLOWS was this.
    #[inline(always)]
    pub fn of_id(id: u64) -> Self {
        Self(id as *const c_void)
    }

    /// The socket of an open file, if it is one of the network.
    ///
    /// # Safety
    /// The pointer is a `struct file *` that the kernel passed to the program, not null.
    #[inline(always)]
    pub unsafe fn of_file(file: *const c_void) -> Option<Self> {
        // SAFETY: as the caller promises: the verifier knows the types of this chain, and makes a read of a stale pointer 0.
        let socket = unsafe {
            let inode: *const c_void = field(file, FILE_INODE.load());
            let super_block: *const c_void = field(inode, INODE_SB.load());
            let magic: u64 = field(super_block, SB_MAGIC.load());
            if magic != SOCKFS_MAGIC {
                return None;
            }
            field(file, FILE_PRIVATE_DATA.load())
        };
        let sk: u64 = probe(socket, SOCKET_SK.load());
        (sk != 0).then(|| Self::of_id(sk))
    }
}

impl<const CHECKED: bool> AnySock<CHECKED> {
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
                padding: 0,
                padding_word: 0,
            },
            client,
            client_port: u16::from_be(client_port),
        }
    }

    /// Whether a flow is this socket's: the same ends, and the same cgroup.
    #[inline(always)]
    pub fn is_of(self, flow: &Flow) -> bool {
        let ends = self.endpoints();
        ends.client == flow.client && ends.client_port == flow.client_port && ends.key == flow.key
    }

    /// cgroup v2 id of the socket: a passive socket has its listener's, and so its pod's.
    #[inline(always)]
    fn cgroup_id(self) -> u64 {
        if SK_CGROUP.load() != 0 {
            let cgroup: *const c_void = self.read(SK_CGROUP.load());
            return Self::id_of_cgroup(cgroup);
        }
        if SK_CGROUP_VALUE.load() == 0 {
            return 0;
        }
        // The verifier of such a kernel does not know this word as a pointer.
        let value: u64 = probe(self.0, SK_CGROUP_VALUE.load());
        // Lowest bit: the word holds other data; the next one: how the reference was taken.
        if value & 1 != 0 {
            return 0;
        }
        Suspect::id_of_cgroup((value & !3) as *const c_void)
    }

    #[inline(always)]
    fn id_of_cgroup(cgroup: *const c_void) -> u64 {
        if cgroup.is_null() {
            return 0;
        }
        let node: *const c_void = Self::follow(cgroup, CGROUP_KN.load());
        if node.is_null() {
            0
        } else {
            Self::follow(node, KN_ID.load())
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
        Self::follow(self.0, offset)
    }

    /// A field of the structure at `base`, which is this socket or was read from it.
    #[inline(always)]
    fn follow<T: Copy>(base: *const c_void, offset: u32) -> T {
        if CHECKED {
            probe(base, offset)
        } else {
            // SAFETY: the pointer comes from a `struct sock *` by typed fields, and the verifier checks each access.
            unsafe { field(base, offset) }
        }
    }
}

/// Reads from an address that may be anything. Zeros, where there is nothing to read.
#[inline(always)]
fn probe<T: Copy>(base: *const c_void, offset: u32) -> T {
    // SAFETY: the kernel checks the address. All types read here are integers and pointers, which may be zero.
    unsafe {
        bpf_probe_read_kernel(base.cast::<u8>().wrapping_add(offset as usize).cast::<T>())
            .unwrap_or(core::mem::zeroed())
    }
}

/// Reads a field of a kernel structure. The verifier proves the access or rejects the program.
///
/// # Safety
/// `base` is a pointer that the verifier knows by type, and the offset is a field's of that type.
#[inline(always)]
pub unsafe fn field<T: Copy>(base: *const c_void, offset: u32) -> T {
    // SAFETY: as the caller promises. Volatile: the kernel changes sockets under our eyes.
    unsafe { ptr::read_volatile(base.cast::<u8>().add(offset as usize).cast::<T>()) }
}

/// The IPv4-mapped form of an IPv4 address in network order.
#[inline(always)]
pub fn mapped(ipv4: u32) -> Address {
    let words: [u32; 4] = [0, 0, u32::from_ne_bytes([0, 0, 0xff, 0xff]), ipv4];
    // SAFETY: 16 bytes of plain integers either way.
    unsafe { core::mem::transmute(words) }
}
