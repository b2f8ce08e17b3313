//! The second stream: in, a flow and what happened to it; out, a record of EVENTS, if its endpoint is watched.

use aya_ebpf::{bindings::BPF_RB_NO_WAKEUP, helpers::generated::bpf_ktime_get_boot_ns};
use flowskew_agent_ebpf::{Flow, FlowEvent, WatchedKey, loss};

use crate::maps::{EVENTS, WATCHED, count_loss};

const FLOW_WORDS: usize = size_of::<Flow>() / size_of::<u64>();
const _: () = assert!(size_of::<FlowEvent>() == (FLOW_WORDS + 2) * size_of::<u64>());

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
    let words = record.as_mut_ptr().cast::<u64>();
    // SAFETY: a flow is eight words at the beginning of the record, which ends with the time and one word of bytes, the lowest
    // first. Word by word, since the compiler would make calls that copy byte by byte.
    unsafe {
        let source = core::ptr::from_ref(flow).cast::<u64>();
        for word in 0..FLOW_WORDS {
            words.add(word).write_volatile(source.add(word).read());
        }
        words.add(FLOW_WORDS).write_volatile(at_ns);
        words
            .add(FLOW_WORDS + 1)
            .write_volatile(u64::from_le(u64::from(kind) | u64::from(cause) << 8));
    }
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
