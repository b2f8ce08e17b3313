//! Hooks: iterators over the open files of all tasks; since Linux 5.8. Run once each, in order.
//!
//! A kernel socket does not say whether it was opened from outside. So [`seed_listeners`] notes the listening ports of each
//! network namespace, and [`seed_flows`] takes each established socket on such a port: the kernel gives a listener's port to
//! no outgoing connection. A flow whose listener is already closed is not found.

use core::ffi::{c_int, c_void};

use aya_ebpf::bindings::BPF_ANY;
use flowskew_agent_ebpf::loss;

use crate::{
    count,
    maps::{LISTENERS, Listener, count_loss},
    sock::{Suspect, TCP_ESTABLISHED, TCP_LISTEN},
};

/// Context of an `iter/task_file` program.
#[repr(C)]
pub struct TaskFile {
    meta: *const c_void,
    task: *const c_void,
    fd: u32,
    padding: u32,
    file: *const c_void,
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
pub extern "C" fn seed_listeners(ctx: *const TaskFile) -> c_int {
    if let Some(sk) = tcp_socket(ctx, TCP_LISTEN) {
        // Its flows will not be found: as good as flows that found no room.
        if LISTENERS.insert(listener(sk), 1, BPF_ANY.into()).is_err() {
            count_loss(loss::FLOWS_FULL);
        }
    }
    0
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
pub extern "C" fn seed_flows(ctx: *const TaskFile) -> c_int {
    if let Some(sk) = tcp_socket(ctx, TCP_ESTABLISHED) {
        // SAFETY: only its presence matters.
        if unsafe { LISTENERS.get(listener(sk)) }.is_some() {
            count::seeded(sk);
        }
    }
    0
}

#[inline(always)]
fn listener(sk: Suspect) -> Listener {
    Listener {
        net: sk.net(),
        port: u64::from(sk.local_port()),
    }
}

/// The file's socket, if it is one of TCP in this state.
#[inline(always)]
fn tcp_socket(ctx: *const TaskFile, state: i32) -> Option<Suspect> {
    // SAFETY: the kernel passes a context of this shape; it ends the walk with a null file.
    let file = unsafe { (*ctx).file };
    if file.is_null() {
        return None;
    }
    // SAFETY: a file of the walk, not null.
    let sk = unsafe { Suspect::of_file(file) }?;
    (sk.is_tcp() && sk.state() == state).then_some(sk)
}
