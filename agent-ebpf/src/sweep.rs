//! Hooks: iterators of `bpf_map`, since Linux 5.8, which go through one of our own maps, since Linux 5.13. The agent runs them from
//! time to time.
//!
//! [`reconcile`] goes through FLOWS and takes out what is no open socket any more. [`expire`] goes through UDP_FLOWS and closes
//! what has been silent for the idle time.

use core::ffi::{c_int, c_long, c_void};

use aya_ebpf::helpers::generated::bpf_for_each_map_elem;
use flowskew_agent_ebpf::{Flow, UdpFlow, UdpFlowKey};

use crate::{
    count,
    event::boot_ns,
    maps::{FLOWS, UDP_FLOWS},
    udp,
};

/// Context of an `iter/bpf_map` program.
#[repr(C)]
pub struct MapWalk {
    meta: *const Meta,
    map: *const c_void,
}

/// `struct bpf_iter_meta`.
#[repr(C)]
struct Meta {
    seq: *const c_void,
    session: u64,
    /// How many maps have come before in this walk.
    number: u64,
}

/// A callback says so to be called for the next element.
const GO_ON: c_long = 0;

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/bpf_map")]
pub extern "C" fn reconcile(ctx: *const MapWalk) -> c_int {
    // SAFETY: the kernel passes a context of this shape, and calls back with key and value of the map.
    unsafe {
        if is_first(ctx) {
            for_each((&raw const FLOWS).cast(), (reconcile_flow as *const ()).cast());
        }
    }
    0
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/bpf_map")]
pub extern "C" fn expire(ctx: *const MapWalk) -> c_int {
    // SAFETY: as above.
    unsafe {
        if is_first(ctx) {
            for_each((&raw const UDP_FLOWS).cast(), (expire_flow as *const ()).cast());
        }
    }
    0
}

#[inline(never)]
extern "C" fn reconcile_flow(_map: *const c_void, id: *const u64, flow: *const Flow, _ctx: *const c_void) -> c_long {
    // SAFETY: the kernel passes a key and a value of FLOWS.
    let (id, flow) = unsafe { (*id, *flow) };
    count::reconcile(id, &flow);
    GO_ON
}

#[inline(never)]
extern "C" fn expire_flow(
    _map: *const c_void,
    key: *const UdpFlowKey,
    flow: *const UdpFlow,
    _ctx: *const c_void,
) -> c_long {
    // SAFETY: the kernel passes a key and a value of UDP_FLOWS.
    let (key, flow) = unsafe { (*key, *flow) };
    udp::expire(&key, &flow, boot_ns());
    GO_ON
}

/// The walk over all maps only serves to be called once in it.
///
/// # Safety
/// The context is the one that the kernel passed.
#[inline(always)]
unsafe fn is_first(ctx: *const MapWalk) -> bool {
    // SAFETY: as the caller promises; the end of the walk has no map.
    unsafe { !(*ctx).map.is_null() && (*(*ctx).meta).number == 0 }
}

/// # Safety
/// `callback` takes a map, a key and a value of `map`, and a context.
#[inline(always)]
unsafe fn for_each(map: *const c_void, callback: *const c_void) {
    // SAFETY: as the caller promises; the callback does not use its context.
    unsafe { bpf_for_each_map_elem(map.cast_mut(), callback.cast_mut(), core::ptr::null_mut(), 0) };
}
