//! The second stream: in, a flow and what happened to it; out, a record of EVENTS, if its endpoint is watched.

use aya_ebpf::{bindings::BPF_RB_NO_WAKEUP, helpers::generated::bpf_ktime_get_boot_ns};
use flowskew_agent_ebpf::{Flow, FlowEvent, WatchedKey, loss};

use crate::maps::{EVENTS, WATCHED, count_loss};

/// Tells the agent, when the endpoint is watched. `kind` is one of [`flowskew_agent_ebpf::event_kind`].
#[inline(always)]
pub fn tell(flow: &Flow, at_ns: u64, kind: u8, cause: u8) {
    if !is_watched(&flow.key.endpoint()) {
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

/// Whether the agent wants to know of the single flows of this endpoint.
#[inline(always)]
pub fn is_watched(endpoint: &WatchedKey) -> bool {
    // SAFETY: only its presence matters.
    unsafe { WATCHED.get(endpoint) }.is_some()
}

/// Nanoseconds since boot.
#[inline(always)]
pub fn boot_ns() -> u64 {
    // SAFETY: takes nothing, returns a number.
    unsafe { bpf_ktime_get_boot_ns() }
}
