//! Which of the two programs of `inet_sock_set_state` has handled an event.

/// Marks that a CPU keeps; a power of two. More events than that do not interrupt each other.
pub const HANDLED_MARKS: usize = 8;

/// The value of HANDLED, one for each CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handled {
    /// Index of the newest mark.
    pub top: u64,
    /// Events that the second program handled, since the first had left no mark.
    pub taken: u64,
    /// Address of the socket, and its states before and after.
    pub marks: [[u64; 2]; HANDLED_MARKS],
}

const _: () = assert!(size_of::<Handled>() == 144);

#[cfg(feature = "user")]
// SAFETY: repr(C), made of integers: every bit pattern is valid.
unsafe impl aya::Pod for Handled {}
