//! Front doors of flows: what the agent remembers from one of its lives to the next. The programs do not use it.

use crate::{Address, LedgerKey};

/// Most front doors, counted by ledger key and source class: entries of DOORS.
pub const MAX_DOORS: u32 = 4_096;

/// Key of DOORS: the flows of one ledger key and source class that came through one front door.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DoorKey {
    /// Where the flows are counted.
    pub key: LedgerKey,
    /// The address that the clients dialled.
    pub address: Address,
    /// The port that the clients dialled, host order.
    pub port: u16,
    /// [`crate::source_class`] at the moment they opened.
    pub source_class: u8,
    /// Zero.
    pub padding: u8,
    /// Zero. Words, since the compiler clears a row of bytes with a call.
    pub padding_word: u32,
}

/// Value of DOORS.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoorValue {
    /// Flows that became established.
    pub opened: u64,
    /// Flows that were known to come through this door and ended.
    pub closed: u64,
    /// Flows that were known to come through this door and whose end was not counted.
    pub established: u64,
}

/// The one value of DOOR_COVERAGE: what became of the flows whose front door was asked for.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoorCoverage {
    /// Counted at a door.
    pub found: u64,
    /// Looked up, and not known to the node's connection tracking.
    pub not_found: u64,
    /// Not looked up, or without room to be counted.
    pub skipped: u64,
}

const _: () = assert!(size_of::<DoorKey>() == 56);
const _: () = assert!(size_of::<DoorValue>() == 24);
const _: () = assert!(size_of::<DoorCoverage>() == 24);

#[cfg(feature = "user")]
// SAFETY: repr(C), made of integers and byte arrays with explicit padding: every bit pattern is valid.
unsafe impl aya::Pod for DoorKey {}
#[cfg(feature = "user")]
// SAFETY: as above.
unsafe impl aya::Pod for DoorValue {}
#[cfg(feature = "user")]
// SAFETY: as above.
unsafe impl aya::Pod for DoorCoverage {}
