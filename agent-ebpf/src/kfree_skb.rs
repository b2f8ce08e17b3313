//! Hook: tracepoint `skb:kfree_skb(skb, location, reason)`, by BTF; with the reasons used here since Linux 5.18. It fires for
//! packets that are dropped, never for those that go through.
//!
//! Counts attempts to connect that reach no pod: dropped by the rules of the node at a front door, or refused because nothing
//! listens at a watched endpoint.

use core::ffi::c_void;

use aya_ebpf::{
    Global,
    bindings::{BPF_ANY, BPF_NOEXIST},
    helpers::bpf_probe_read_kernel,
    macros::btf_tracepoint,
    programs::BtfTracePointContext,
};
use flowskew_agent_ebpf::{AttemptKey, PROTOCOL_TCP, UnservedKey, loss, unserved_reason};

use crate::{
    class::class_of,
    event::{boot_ns, is_watched},
    ledger,
    maps::{ATTEMPTS, FRONT_DOORS, UNSERVED, count_loss, settings},
    packet::{self, Bytes},
    sock::field,
};

/// `SKB_DROP_REASON_NETFILTER_DROP` of this kernel, which the agent sets.
#[unsafe(no_mangle)]
static DROP_NETFILTER: Global<u32> = Global::new(0);
/// `SKB_DROP_REASON_NO_SOCKET` of this kernel, which the agent sets.
#[unsafe(no_mangle)]
static DROP_NO_SOCKET: Global<u32> = Global::new(0);
/// `sk_buff.head`
#[unsafe(no_mangle)]
static SKB_HEAD: Global<u32> = Global::new(0);
/// `sk_buff.network_header`
#[unsafe(no_mangle)]
static SKB_NETWORK_HEADER: Global<u32> = Global::new(0);
/// `sk_buff.dev`
#[unsafe(no_mangle)]
static SKB_DEV: Global<u32> = Global::new(0);
/// `net_device.nd_net.net`
#[unsafe(no_mangle)]
static DEV_NET: Global<u32> = Global::new(0);
/// `net.ns.inum`
#[unsafe(no_mangle)]
static NET_INUM: Global<u32> = Global::new(0);

/// Longest time between two packets of one attempt: TCP waits up to 64 s before it sends its SYN again.
const SAME_ATTEMPT_NS: u64 = 70_000_000_000;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

#[btf_tracepoint(function = "kfree_skb")]
pub fn kfree_skb(ctx: BtfTracePointContext) -> i32 {
    let reason: u32 = ctx.arg(2);
    let reason = if reason == DROP_NETFILTER.load() {
        unserved_reason::DROPPED
    } else if reason == DROP_NO_SOCKET.load() {
        unserved_reason::REFUSED
    } else {
        return 0;
    };
    dropped(ctx.arg(0), reason);
    0
}

#[inline(always)]
fn dropped(skb: *const c_void, reason: u8) {
    // SAFETY: the first argument of this tracepoint is a `struct sk_buff *`.
    if reason == unserved_reason::DROPPED && unsafe { namespace(skb) } != settings().node_netns {
        return;
    }
    // SAFETY: as above.
    let bytes = unsafe { Buffer::of(skb) };
    let Some(packet) = packet::read(&bytes) else { return };
    if packet.protocol == PROTOCOL_TCP {
        match bytes.read::<u8>(packet.transport + 13) {
            Some(flags) if flags & (SYN | ACK) == SYN => {}
            _ => return,
        }
    }
    let dialled = packet.dialled();
    let known = if reason == unserved_reason::DROPPED {
        // SAFETY: only its presence matters.
        unsafe { FRONT_DOORS.get(dialled) }.is_some()
    } else {
        is_watched(&dialled)
    };
    if known {
        attempted(&AttemptKey {
            unserved: UnservedKey {
                dialled,
                reason,
                source_class: class_of(packet.source),
                padding: [0; 2],
            },
            client: packet.source,
            client_port: packet.source_port,
            padding: [0; 2],
        });
    }
}

/// Counts an attempt once, however often its packet is sent again.
#[inline(always)]
fn attempted(attempt: &AttemptKey) {
    let now = boot_ns();
    // SAFETY: the value is copied at once.
    let before = unsafe { ATTEMPTS.get(attempt) }.copied();
    let _ = ATTEMPTS.insert(attempt, now, BPF_ANY.into());
    if before.is_some_and(|before| now.wrapping_sub(before) < SAME_ATTEMPT_NS) {
        return;
    }
    if UNSERVED.get_ptr(attempt.unserved).is_none() {
        // Another CPU may have been first: then this fails, and the look-up finds theirs.
        let _ = UNSERVED.insert(attempt.unserved, 0, BPF_NOEXIST.into());
    }
    match UNSERVED.get_ptr_mut(attempt.unserved) {
        // SAFETY: the value of the map, aligned to 8 bytes, changed by this instruction only.
        Some(count) => unsafe { ledger::add(count, 1) },
        None => count_loss(loss::UNSERVED_FULL),
    }
}

/// Inode of the network namespace of the device that a packet is at; 0 if it is at none.
///
/// # Safety
/// The pointer is a `struct sk_buff *` that the kernel passed to the program.
#[inline(always)]
unsafe fn namespace(skb: *const c_void) -> u32 {
    // SAFETY: the verifier knows the types of this chain, and makes a read of a stale pointer 0.
    unsafe {
        let device: *const c_void = field(skb, SKB_DEV.load());
        if device.is_null() {
            return 0;
        }
        let net: *const c_void = field(device, DEV_NET.load());
        if net.is_null() { 0 } else { field(net, NET_INUM.load()) }
    }
}

/// A packet in the kernel's memory, from its network header on.
struct Buffer(*const u8);

impl Buffer {
    /// # Safety
    /// The pointer is a `struct sk_buff *` that the kernel passed to the program.
    #[inline(always)]
    unsafe fn of(skb: *const c_void) -> Self {
        // SAFETY: as the caller promises; both offsets are the kernel's own.
        unsafe {
            let head: *const u8 = field(skb, SKB_HEAD.load());
            let offset: u16 = field(skb, SKB_NETWORK_HEADER.load());
            Self(head.wrapping_add(usize::from(offset)))
        }
    }
}

impl Bytes for Buffer {
    #[inline(always)]
    fn read<T: Copy>(&self, offset: u32) -> Option<T> {
        // SAFETY: the kernel checks the address; what is read are integers.
        unsafe { bpf_probe_read_kernel(self.0.wrapping_add(offset as usize).cast::<T>()) }.ok()
    }
}
