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
//! and a softirq can interrupt it there with another socket's open or close. The second program handles what the first was
//! skipped for: the first leaves a mark, and without it the second does the work. Should both do it, FLOWS tells that the flow is
//! counted.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use aya_log_ebpf::debug;
use flowskew_agent_ebpf::close_cause;

use crate::{
    count,
    maps::HANDLED,
    sock::{Sock, TCP_CLOSE, TCP_CLOSE_WAIT, TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_SYN_RECV},
};

const EPIPE: i32 = 32;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;

#[btf_tracepoint(function = "inet_sock_set_state")]
pub fn inet_sock_set_state(ctx: BtfTracePointContext) -> i32 {
    if let Some(step) = Step::of(&ctx) {
        if let Some(handled) = HANDLED.get_ptr_mut(0) {
            // SAFETY: this CPU's slot. A program that interrupts this one writes a mark of its own, which is harmless.
            unsafe { handled.write_volatile([step.sk.id(), step.states()]) };
        }
        step.handle(&ctx);
    }
    0
}

#[btf_tracepoint(function = "inet_sock_set_state")]
pub fn inet_sock_set_state_skipped(ctx: BtfTracePointContext) -> i32 {
    if let Some(step) = Step::of(&ctx) {
        if let Some(handled) = HANDLED.get_ptr_mut(0) {
            // SAFETY: as above.
            unsafe {
                let [sk, states] = handled.read_volatile();
                if sk == step.sk.id() && states == step.states() {
                    handled.write_volatile([0, 0]);
                    return 0;
                }
            }
        }
        step.handle(&ctx);
    }
    0
}

/// A passive open, or a step out of ESTABLISHED.
struct Step {
    sk: Sock,
    old: i32,
    new: i32,
}

impl Step {
    #[inline(always)]
    fn of(ctx: &BtfTracePointContext) -> Option<Self> {
        let old: i32 = ctx.arg(1);
        let new: i32 = ctx.arg(2);
        let opens = old == TCP_SYN_RECV && new == TCP_ESTABLISHED;
        if !opens && old != TCP_ESTABLISHED {
            return None;
        }
        // SAFETY: the first argument of this tracepoint is a `struct sock *`.
        let sk = unsafe { Sock::new(ctx.arg(0)) };
        Some(Self { sk, old, new })
    }

    /// Both states in one word, never 0.
    #[inline(always)]
    fn states(&self) -> u64 {
        (self.old as u64) << 32 | self.new as u64
    }

    #[inline(always)]
    fn handle(&self, ctx: &BtfTracePointContext) {
        if !self.sk.is_tcp() {
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
