//! Which program of `inet_sock_set_state` has handled an event: in, the first program's marks; out, whether the second has to, and
//! how often it did.
//!
//! The marks of a CPU are a stack, since an event can interrupt another's programs. What is left on it (the mark of an event
//! that the second program was skipped for) is overwritten in time.

use flowskew_agent_ebpf::{HANDLED_MARKS, Handled};

use crate::maps::HANDLED;

/// The first program is done with an event.
#[inline(always)]
pub fn mark(sk: u64, states: u64) {
    let Some(handled) = HANDLED.get_ptr_mut(0) else { return };
    // SAFETY: this CPU's slot. What interrupts this program here cannot be its own, and leaves the stack as it found it.
    unsafe {
        let top = next(handled);
        (&raw mut (*handled).marks[top]).write_volatile([sk, states]);
        (&raw mut (*handled).top).write_volatile(top as u64);
    }
}

/// Takes the mark of an event off. False, and counted, if the first program has not handled it.
#[inline(always)]
pub fn take_mark(sk: u64, states: u64) -> bool {
    let Some(handled) = HANDLED.get_ptr_mut(0) else {
        return false;
    };
    // SAFETY: as above.
    unsafe {
        let top = (&raw const (*handled).top).read_volatile() as usize % HANDLED_MARKS;
        let mark = &raw mut (*handled).marks[top];
        let [marked_sk, marked_states] = mark.read_volatile();
        if marked_sk == sk && marked_states == states {
            mark.write_volatile([0, 0]);
            (&raw mut (*handled).top).write_volatile((top + HANDLED_MARKS - 1) as u64 % HANDLED_MARKS as u64);
            return true;
        }
        let taken = &raw mut (*handled).taken;
        taken.write_volatile(taken.read_volatile() + 1);
    }
    false
}

/// # Safety
/// The pointer is into this CPU's slot.
#[inline(always)]
unsafe fn next(handled: *const Handled) -> usize {
    // SAFETY: as the caller promises.
    (unsafe { (&raw const (*handled).top).read_volatile() } as usize + 1) % HANDLED_MARKS
}
