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

//!
//! The hook has two programs with one body. Since Linux 6.2 the kernel skips a program on a CPU where it is running already,
//! and a softirq can interrupt it there with another socket's open or close. The second program takes what the first was
//! skipped for: the first leaves a mark of each event ([`crate::handled`]), and without it the second does the work, and counts
//! that it did. Should both do it, FLOWS tells that the flow is counted.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use aya_log_ebpf::debug;
use flowskew_agent_ebpf::close_cause;

use crate::{
    count, handled,
    sock::{Sock, TCP_CLOSE, TCP_CLOSE_WAIT, TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_SYN_RECV},
};

const EPIPE: i32 = 32;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;

#[btf_tracepoint(function = "inet_sock_set_state")]
pub fn inet_sock_set_state(ctx: BtfTracePointContext) -> i32 {
    let step = Step::of(&ctx);
    step.handle(&ctx);
    handled::mark(step.sk.id(), step.states());
    0
}

#[btf_tracepoint(function = "inet_sock_set_state")]
pub fn inet_sock_set_state_skipped(ctx: BtfTracePointContext) -> i32 {
    let step = Step::of(&ctx);
    if !handled::take_mark(step.sk.id(), step.states()) {
        step.handle(&ctx);
    }
    0
}

/// A socket goes from one state to another.
struct Step {
    sk: Sock,
    old: i32,
    new: i32,
}

impl Step {
    #[inline(always)]
    fn of(ctx: &BtfTracePointContext) -> Self {
        Self {
            // SAFETY: the first argument of this tracepoint is a `struct sock *`.
            sk: unsafe { Sock::new(ctx.arg(0)) },
            old: ctx.arg(1),
            new: ctx.arg(2),
        }
    }

    /// Both states in one word, never 0.
    #[inline(always)]
    fn states(&self) -> u64 {
        (self.old as u64) << 32 | self.new as u64
    }

    /// Counts a passive open, or a step out of ESTABLISHED.
    #[inline(always)]
    fn handle(&self, ctx: &BtfTracePointContext) {
        let opens = self.old == TCP_SYN_RECV && self.new == TCP_ESTABLISHED;
        if (!opens && self.old != TCP_ESTABLISHED) || !self.sk.is_tcp() {
            return;
        }
        // Off unless the agent asks for it when it loads the program: then the verifier removes it.
        debug!(
            ctx,
            "local port {} state {} to {}",
            self.sk.local_port(),
            self.old,
            self.new
        );
        if self.old == TCP_ESTABLISHED {
            count::closed(self.sk, cause(self.sk, self.new));
        } else {
            count::opened(self.sk);
        }
    }
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
