//! The counters of LEDGER: in, a key and a source class; out, counters changed by atomic addition.

use aya_ebpf::bindings::BPF_NOEXIST;
use flowskew_agent_ebpf::{ClassCounts, LedgerKey, LedgerValue, close_cause, source_class};

use crate::maps::LEDGER;

static EMPTY: LedgerValue = LedgerValue {
    classes: [ClassCounts {
        opened: 0,
        established: 0,
        seeded: 0,
        closed: [0; close_cause::COUNT],
    }; source_class::COUNT],
};

/// The counters of one key and source class, valid as long as the program runs (RCU).
pub struct Counters(*mut ClassCounts);

impl Counters {
    /// The counters, if LEDGER has the key.
    #[inline(always)]
    pub fn find(key: &LedgerKey, class: u8) -> Option<Self> {
        let value = LEDGER.get_ptr_mut(key)?;
        // The mask tells the verifier that the index is in bounds.
        let index = usize::from(class) & (source_class::COUNT - 1);
        // SAFETY: in bounds of the value that the look-up returned.
        Some(Self(unsafe {
            (&raw mut (*value).classes).cast::<ClassCounts>().add(index)
        }))
    }

    /// The counters, made if LEDGER has not the key; `None` when it is full.
    #[inline(always)]
    pub fn find_or_insert(key: &LedgerKey, class: u8) -> Option<Self> {
        if let Some(counters) = Self::find(key, class) {
            return Some(counters);
        }
        // Another CPU may have been first: then this fails, and the look-up finds theirs.
        let _ = LEDGER.insert(key, &EMPTY, BPF_NOEXIST.into());
        Self::find(key, class)
    }

    /// A flow became established.
    #[inline(always)]
    pub fn opened(&self) {
        // SAFETY: valid by construction.
        unsafe {
            add(&raw mut (*self.0).opened, 1);
            add((&raw mut (*self.0).established).cast(), 1);
        }
    }

    /// A flow left ESTABLISHED. `cause` is one of [`close_cause`].
    #[inline(always)]
    pub fn closed(&self, cause: u8) {
        let index = if usize::from(cause) < close_cause::COUNT {
            cause
        } else {
            close_cause::OTHER
        };
        // SAFETY: valid by construction, and the index is in bounds.
        unsafe {
            add((&raw mut (*self.0).closed).cast::<u64>().add(usize::from(index)), 1);
            add((&raw mut (*self.0).established).cast(), MINUS_ONE);
        }
    }

    /// A flow was found open.
    #[inline(always)]
    pub fn seeded(&self) {
        // SAFETY: valid by construction.
        unsafe {
            add(&raw mut (*self.0).seeded, 1);
            add((&raw mut (*self.0).established).cast(), 1);
        }
    }

    /// Takes back [`Counters::seeded`].
    #[inline(always)]
    pub fn unseeded(&self) {
        // SAFETY: valid by construction.
        unsafe {
            add(&raw mut (*self.0).seeded, MINUS_ONE);
            add((&raw mut (*self.0).established).cast(), MINUS_ONE);
        }
    }
}

/// In two's complement, adding this subtracts one.
const MINUS_ONE: u64 = u64::MAX;

/// Atomic addition by the kernel's own instruction, without the result: kernels before 5.12 know no other form, and Rust
/// offers no atomic arithmetic on this target.
///
/// # Safety
/// The pointer is into a value of a map, aligned to 8 bytes.
#[inline(always)]
pub unsafe fn add(counter: *mut u64, amount: u64) {
    // SAFETY: as the caller promises; counters are changed by this instruction only.
    unsafe {
        core::arch::asm!(
            "lock *(u64 *)({counter} + 0) += {amount}",
            counter = in(reg) counter,
            amount = in(reg) amount,
            options(nostack),
        );
    }
}
