//! The kernel side of flowskew: programs that count each passive TCP open and close of the node, and the UDP flows of watched
//! endpoints.
//!
//! In: the kernel's socket state changes ([`inet_sock_set_state`]), the end of its sockets ([`tcp_destroy_sock`]), datagrams
//! ([`cgroup_skb`]), dropped packets ([`kfree_skb`]), its open files once at start ([`seed`]), and what is in the maps from
//! time to time ([`sweep`]). Out: the maps of [`maps`]. A flow is counted in LEDGER whether or not anyone watches; EVENTS is a
//! second stream.
#![no_std]
#![no_main]
#![expect(unstable_features, reason = "inline assembly of this target is not stable yet")]
#![feature(asm_experimental_arch)]

mod cgroup_skb;
mod class;
mod count;
mod event;
mod handled;
mod inet_sock_set_state;
mod kfree_skb;
mod ledger;
mod maps;
mod packet;
mod seed;
mod sock;
mod sweep;
mod tcp_destroy_sock;
mod udp;

/// The kernel offers some helpers to GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier rejects a program that can reach this, so none does.
    loop {}
}
