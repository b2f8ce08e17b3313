//! A program that does nothing, on the tracepoint that counting uses: what it costs to be called. No part of the agent.
#![no_std]
#![no_main]

mod inet_sock_set_state {
    use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

    #[btf_tracepoint(function = "inet_sock_set_state")]
    pub fn empty(_ctx: BtfTracePointContext) -> i32 {
        0
    }
}

/// As that of the agent's programs.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier rejects a program that can reach this, so none does.
    loop {}
}
