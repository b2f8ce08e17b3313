//! Hook: tracepoint `sock:inet_sock_set_state(sk, oldstate, newstate)`, by BTF; since Linux 5.5 with BTF.
//!
//! It fires in every network namespace, before the state is stored. A passive open is SYN_RECV to ESTABLISHED; any step out
//! of ESTABLISHED is a close, and names its cause:
//!
//! | to         | pending error       | cause                                        |
//! |------------|---------------------|----------------------------------------------|
//! | CLOSE_WAIT |                     | client FIN                                   |
//! | FIN_WAIT1  |                     | server FIN (or the server's half-close)      |
//! | CLOSE      | ECONNRESET or EPIPE | client RST                                   |
//! | CLOSE      | ETIMEDOUT           | timeout                                      |
//! | CLOSE      | none                | server RST: closed with unread data or abort |
//! | CLOSE      | any other           | other                                        |

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use aya_log_ebpf::debug;
use flowskew_agent_ebpf::close_cause;

use crate::{
    count,
    sock::{Sock, TCP_CLOSE, TCP_CLOSE_WAIT, TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_SYN_RECV},
};

const EPIPE: i32 = 32;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;

#[btf_tracepoint(function = "inet_sock_set_state")]
pub fn inet_sock_set_state(ctx: BtfTracePointContext) -> i32 {
    let old: i32 = ctx.arg(1);
    let new: i32 = ctx.arg(2);
    let opens = old == TCP_SYN_RECV && new == TCP_ESTABLISHED;
    if !opens && old != TCP_ESTABLISHED {
        return 0;
    }
    // SAFETY: the first argument of this tracepoint is a `struct sock *`.
    let sk = unsafe { Sock::new(ctx.arg(0)) };
    if !sk.is_tcp() {
        return 0;
    }
    // Off unless the agent asks for it when it loads the program: then the verifier removes it.
    debug!(&ctx, "local port {} state {} to {}", sk.local_port(), old, new);
    if opens {
        count::opened(sk);
    } else {
        count::closed(sk, cause(sk, new));
    }
    0
}

#[inline(always)]
fn cause(sk: Sock, new: i32) -> u8 {
    match new {
        TCP_CLOSE_WAIT => close_cause::CLIENT_FIN,
        TCP_FIN_WAIT1 => close_cause::SERVER_FIN,
        TCP_CLOSE => match sk.error() {
            0 => close_cause::SERVER_RST,
            ECONNRESET | EPIPE => close_cause::CLIENT_RST,
            ETIMEDOUT => close_cause::TIMEOUT,
            _ => close_cause::OTHER,
        },
        _ => close_cause::OTHER,
    }
}
