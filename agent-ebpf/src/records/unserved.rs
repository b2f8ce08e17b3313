//! Attempts to connect that reached no pod.

use crate::{Address, WatchedKey};

/// Why an attempt reached no pod.
pub mod unserved_reason {
    /// The node's rules dropped it: no endpoint for this front door here.
    pub const DROPPED: u8 = 1;
    /// Nothing listens at the endpoint.
    pub const REFUSED: u8 = 2;
}

/// Key of UNSERVED, whose value is a `u64`, the number of attempts.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnservedKey {
    /// What was dialled: a front door, or the endpoint that refused.
    pub dialled: WatchedKey,
    /// [`unserved_reason`].
    pub reason: u8,
    /// [`crate::source_class`] of the client.
    pub source_class: u8,
    /// Zero.
    pub padding: [u8; 2],
}

/// Key of ATTEMPTS, whose value is when the attempt's last packet was seen, nanoseconds since boot: tells a repeated SYN from
/// another attempt.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttemptKey {
    /// What was dialled, and why it failed.
    pub unserved: UnservedKey,
    /// The client's address.
    pub client: Address,
    /// The client's port, host order.
    pub client_port: u16,
    /// Zero.
    pub padding: [u8; 2],
}

const _: () = assert!(size_of::<UnservedKey>() == 24);
const _: () = assert!(size_of::<AttemptKey>() == 44);

#[cfg(feature = "user")]
// SAFETY: repr(C), made of integers and byte arrays with explicit padding: every bit pattern is valid.
unsafe impl aya::Pod for UnservedKey {}
#[cfg(feature = "user")]
// SAFETY: as above.
unsafe impl aya::Pod for AttemptKey {}
