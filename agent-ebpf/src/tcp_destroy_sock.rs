//! Hook: tracepoint `tcp:tcp_destroy_sock(sk)`, by BTF; since Linux 4.16. A backstop: the kernel frees a socket whose flow is
//! still in FLOWS only when its step out of ESTABLISHED was not seen.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{count, sock::Sock};

#[btf_tracepoint(function = "tcp_destroy_sock")]
pub fn tcp_destroy_sock(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the first argument of this tracepoint is a `struct sock *`.
    count::destroyed(unsafe { Sock::new(ctx.arg(0)) });
    0
}
