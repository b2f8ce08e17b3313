//! Counts a flow: in, an open, a close or a find at start; out, LEDGER, FLOWS, EVENTS and LOSSES changed.
//!
//! A flow lives in FLOWS from its open to the moment it leaves ESTABLISHED; whoever takes it out of FLOWS counts its close,
//! so it is counted once even when two CPUs race.

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_NOEXIST, BPF_RB_NO_WAKEUP},
    helpers::generated::bpf_ktime_get_boot_ns,
    maps::lpm_trie,
};
use flowskew_agent_ebpf::{Address, Flow, FlowEvent, WatchedKey, close_cause, event_kind, loss, source_class};

use crate::{
    ledger::Counters,
    maps::{CLASSES, EVENTS, FLOWS, WATCHED, count_loss, flows_have_overflowed, note_flows_overflow},
    sock::{Sock, TCP_ESTABLISHED},
};

/// errno of an insert that found the key.
const EEXIST: i32 = -17;

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
            if !replaces_leftover(sk.id(), &flow) {
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
fn replaces_leftover(id: u64, flow: &Flow) -> bool {
    // SAFETY: the value is copied at once, and entries that are not preallocated are not reused under a reader.
    if let Some(leftover) = (unsafe { FLOWS.get(id) }).copied() {
        let same_client = leftover.client == flow.client && leftover.client_port == flow.client_port;
        if same_client && leftover.key == flow.key {
            return false;
        }
        if FLOWS.remove(id).is_ok() {
            count_loss(loss::ORPHAN_FLOW);
            if let Some(counters) = Counters::find(&leftover.key, leftover.source_class) {
                counters.closed(close_cause::OTHER);
            }
        }
    }
    let _ = FLOWS.insert(id, flow, BPF_ANY.into());
    true
}

/// A socket left ESTABLISHED. `cause` is one of [`flowskew_agent_ebpf::close_cause`].
#[inline(always)]
pub fn closed(sk: Sock, cause: u8) {
    // SAFETY: the value is copied at once, and entries that are not preallocated are not reused under a reader.
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
pub fn seeded(sk: Sock) {
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
fn flow_of(sk: Sock, opened_at_ns: u64) -> Flow {
    let ends = sk.endpoints();
    Flow {
        key: ends.key,
        client: ends.client,
        opened_at_ns,
        client_port: ends.client_port,
        source_class: class_of(ends.client),
        padding: [0; 5],
    }
}

#[inline(always)]
fn class_of(client: Address) -> u8 {
    match CLASSES.get(lpm_trie::Key::new(128, client)) {
        Some(class) => *class,
        None => source_class::UNCLASSIFIED,
    }
}

/// Tells the agent, when the endpoint is watched.
#[inline(always)]
fn tell(flow: &Flow, at_ns: u64, kind: u8, cause: u8) {
    let key = WatchedKey {
        address: flow.key.address,
        port: flow.key.port,
        protocol: flow.key.protocol,
        padding: 0,
    };
    // SAFETY: only its presence matters.
    if unsafe { WATCHED.get(key) }.is_none() {
        return;
    }
    let Some(mut record) = EVENTS.reserve::<FlowEvent>(0) else {
        count_loss(loss::RING_FULL);
        return;
    };
    record.write(FlowEvent {
        flow: *flow,
        at_ns,
        kind,
        cause,
        padding: [0; 6],
    });
    // The agent looks at the ring by itself; waking it for each flow would cost the flow.
    record.submit(BPF_RB_NO_WAKEUP.into());
}

#[inline(always)]
fn boot_ns() -> u64 {
    // SAFETY: takes nothing, returns a number.
    unsafe { bpf_ktime_get_boot_ns() }
}
