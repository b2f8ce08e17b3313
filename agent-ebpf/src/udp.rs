//! Counts a UDP flow: in, a datagram for an endpoint that is watched, or a look at a flow that may be silent; out, LEDGER,
//! UDP_FLOWS, EVENTS and LOSSES changed. A flow is one 5-tuple until it is silent for the idle time.

use aya_ebpf::bindings::BPF_NOEXIST;
use flowskew_agent_ebpf::{UdpFlow, UdpFlowKey, close_cause, event_kind, loss};

use crate::{
    class::class_of,
    event::{boot_ns, tell},
    ledger::Counters,
    maps::{EEXIST, UDP_FLOWS, count_loss, settings},
};

/// A datagram has arrived at a watched endpoint.
#[inline(always)]
pub fn arrived(key: &UdpFlowKey) {
    let now = boot_ns();
    if let Some(known) = UDP_FLOWS.get_ptr_mut(key) {
        // SAFETY: in the value that the look-up returned, valid as long as the program runs (RCU).
        let flow = unsafe { *known };
        if !is_silent(&flow, now) {
            // SAFETY: as above. Two CPUs that write at once both write a time that is right.
            unsafe { (*known).last_at_ns = now };
            return;
        }
        // It ended before this datagram, and nobody has looked since.
        end(key, &flow);
    }
    opened(key, now);
}

#[inline(always)]
fn opened(key: &UdpFlowKey, now: u64) {
    let flow = UdpFlow {
        opened_at_ns: now,
        last_at_ns: now,
        source_class: class_of(key.client),
        padding: 0,
        padding_half: 0,
        padding_word: 0,
    };
    let Some(counters) = Counters::find_or_insert(&key.key, flow.source_class) else {
        count_loss(loss::LEDGER_FULL);
        return;
    };
    match UDP_FLOWS.insert(key, flow, BPF_NOEXIST.into()) {
        Ok(()) => {
            counters.opened();
            tell(&key.flow(&flow), now, event_kind::OPENED, 0);
        }
        // Another CPU was first.
        Err(EEXIST) => {}
        // Not counted: the next datagram of this flow could not be told from the first of another.
        Err(_) => count_loss(loss::UDP_FLOWS_FULL),
    }
}

/// Closes a flow that has been silent for the idle time.
#[inline(always)]
pub fn expire(key: &UdpFlowKey, flow: &UdpFlow, now: u64) {
    if !is_silent(flow, now) {
        return;
    }
    // Its client may have spoken again meanwhile, which has begun another flow.
    // SAFETY: the value is copied at once.
    let unchanged = unsafe { UDP_FLOWS.get(key) }.is_some_and(|found| found.last_at_ns == flow.last_at_ns);
    if unchanged {
        end(key, flow);
    }
}

#[inline(always)]
fn is_silent(flow: &UdpFlow, now: u64) -> bool {
    let idle = settings().udp_idle_ns;
    // A datagram on another CPU can be newer than `now`.
    idle > 0 && now > flow.last_at_ns && now - flow.last_at_ns > idle
}

#[inline(always)]
fn end(key: &UdpFlowKey, flow: &UdpFlow) {
    if UDP_FLOWS.remove(key).is_err() {
        return;
    }
    if let Some(counters) = Counters::find(&key.key, flow.source_class) {
        counters.closed(close_cause::TIMEOUT);
    }
    tell(&key.flow(flow), boot_ns(), event_kind::CLOSED, close_cause::TIMEOUT);
}
