//! The kernel side of flowskew: programs that count each passive TCP open and close of the node.
//!
//! In: the kernel's socket state changes ([`inet_sock_set_state`]) and, once at start, its open files ([`seed`]).
//! Out: the maps of [`maps`]. A flow is counted in LEDGER whether or not anyone watches; EVENTS is a second stream.
#![no_std]
#![no_main]
#![expect(unstable_features, reason = "inline assembly of this target is not stable yet")]
#![feature(asm_experimental_arch)]

mod count;
mod inet_sock_set_state;
mod ledger;
mod maps;
mod seed;
mod sock;

/// The kernel offers some helpers to GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier rejects a program that can reach this, so none does.
    loop {}
}
