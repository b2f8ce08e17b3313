//! Counts a TCP flow: in, an open, a close, a find at start or a look at what is left; out, LEDGER, FLOWS, EVENTS and LOSSES
//! changed.
//!
//! A flow lives in FLOWS from its open to the moment it leaves ESTABLISHED; whoever takes it out of FLOWS counts its close,
//! so it is counted once even when two CPUs race.

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use flowskew_agent_ebpf::{Flow, close_cause, event_kind, loss};

use crate::{
    class::class_of,
    event::{boot_ns, tell},
    ledger::Counters,
    maps::{EEXIST, FLOWS, count_loss, flows_have_overflowed, note_flows_overflow},
    sock::{AnySock, Sock, Suspect, TCP_ESTABLISHED, TCP_SYN_RECV},
};

/// A passive socket became established.
///
/// FLOWS decides whether it is counted: while an agent is upgraded, the programs of both versions see each open, and the
/// first of them to enter the flow counts it.
#[inline(always)]
pub fn opened(sk: Sock) {
    let now = boot_ns();
    let flow = flow_of(sk, now);
    let Some(counters) = Counters::find_or_insert(&flow.key, flow.source_class) else {
        count_loss(loss::LEDGER_FULL);
        return;
    };
    match FLOWS.insert(sk.id(), flow, BPF_NOEXIST.into()) {
        Ok(()) => {}
        Err(EEXIST) => {
            if !replaces_leftover(sk, &flow) {
                return;
            }
        }
        Err(_) => {
            note_flows_overflow();
            count_loss(loss::FLOWS_FULL);
        }
    }
    counters.opened();
    tell(&flow, now, event_kind::OPENED, 0);
}

/// The kernel reuses the addresses of its sockets. If FLOWS holds another flow at this one, that flow's end was not seen: it
/// is taken out of the gauge, and makes room. False if it is the same flow, counted already.
#[inline(always)]
fn replaces_leftover(sk: Sock, flow: &Flow) -> bool {
    // SAFETY: the value is copied at once; should it be freed meanwhile, the removal below fails.
    if let Some(leftover) = (unsafe { FLOWS.get(sk.id()) }).copied() {
        if sk.is_of(&leftover) {
            return false;
        }
        end_unseen(sk.id(), &leftover, loss::ORPHAN_FLOW);
    }
    let _ = FLOWS.insert(sk.id(), flow, BPF_ANY.into());
    true
}

/// A socket left ESTABLISHED. `cause` is one of [`flowskew_agent_ebpf::close_cause`].
#[inline(always)]
pub fn closed(sk: Sock, cause: u8) {
    // SAFETY: the value is copied at once; should it be freed meanwhile, the removal below fails.
    let Some(flow) = (unsafe { FLOWS.get(sk.id()) }).copied() else {
        closed_untracked(sk, cause);
        return;
    };
    if FLOWS.remove(sk.id()).is_err() {
        return;
    }
    if let Some(counters) = Counters::find(&flow.key, flow.source_class) {
        counters.closed(cause);
    }
    tell(&flow, boot_ns(), event_kind::CLOSED, cause);
}

/// The kernel frees a socket. If FLOWS still holds its flow, the end of that was not seen.
#[inline(always)]
pub fn destroyed(sk: Sock) {
    // SAFETY: the value is copied at once; should it be freed meanwhile, the removal below fails.
    if let Some(flow) = (unsafe { FLOWS.get(sk.id()) }).copied() {
        end_unseen(sk.id(), &flow, loss::ORPHAN_FLOW);
    }
}

/// Looks whether the socket of a flow in FLOWS is still open, and the same; if not, its end was not seen.
#[inline(always)]
pub fn reconcile(id: u64, flow: &Flow) {
    let sk = Suspect::of_id(id);
    let state = sk.state();
    // A flow is in FLOWS a moment before its socket's state is ESTABLISHED.
    let is_open = sk.is_tcp() && (state == TCP_ESTABLISHED || state == TCP_SYN_RECV);
    if is_open && sk.is_of(flow) {
        return;
    }
    end_unseen(id, flow, loss::CORRECTED);
}

/// Takes a flow out of FLOWS and of the gauge whose end was not seen when it happened.
#[inline(always)]
fn end_unseen(id: u64, flow: &Flow, loss: u32) {
    if FLOWS.remove(id).is_err() {
        return;
    }
    count_loss(loss);
    if let Some(counters) = Counters::find(&flow.key, flow.source_class) {
        counters.closed(close_cause::OTHER);
    }
    tell(flow, boot_ns(), event_kind::CLOSED, close_cause::OTHER);
}

/// The close of a socket that FLOWS does not hold: an active socket, mostly, which is none of ours. Only when FLOWS has
/// overflowed can it be a flow that was counted as opened; then its local address and port are in LEDGER.
#[inline(always)]
fn closed_untracked(sk: Sock, cause: u8) {
    if !flows_have_overflowed() {
        return;
    }
    let flow = flow_of(sk, 0);
    if let Some(counters) = Counters::find(&flow.key, flow.source_class) {
        count_loss(loss::ORPHAN_CLOSE);
        counters.closed(cause);
    }
}

/// A passive socket was found open when counting began: established, not opened.
#[inline(always)]
pub fn seeded(sk: Suspect) {
    let flow = flow_of(sk, 0);
    let Some(counters) = Counters::find_or_insert(&flow.key, flow.source_class) else {
        count_loss(loss::LEDGER_FULL);
        return;
    };
    match FLOWS.insert(sk.id(), flow, BPF_NOEXIST.into()) {
        Ok(()) => {}
        // Known: it opened since the programs run, or was found through another file of the same socket.
        Err(EEXIST) => return,
        Err(_) => {
            // Not counted: a second file of the same socket could not be told from the first.
            note_flows_overflow();
            count_loss(loss::FLOWS_FULL);
            return;
        }
    }
    counters.seeded();
    // It may have left ESTABLISHED before the insert, when nobody could see it close.
    if sk.state() != TCP_ESTABLISHED && FLOWS.remove(sk.id()).is_ok() {
        counters.unseeded();
    }
}

#[inline(always)]
fn flow_of<const CHECKED: bool>(sk: AnySock<CHECKED>, opened_at_ns: u64) -> Flow {
    let ends = sk.endpoints();
    Flow {
        key: ends.key,
        client: ends.client,
        opened_at_ns,
        client_port: ends.client_port,
        source_class: class_of(ends.client),
        padding: 0,
        padding_word: 0,
    }
}
