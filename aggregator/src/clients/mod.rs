//! Single flows of clients, as agents tell them, enter; what clients did at a set of endpoints leaves.
//!
//! - [`ClientKeys`]: under which keys agents hash clients, and when these change
//! - [`Batch`]: one report's events at one ledger key
//! - [`ClientLog`]: the batches of one node
//! - [`hold`]: keeps the logs of all nodes within a bound
//! - [`gather`]: batches of several endpoints become events of one sample, heavy clients and numbers of distinct clients (pure)
//!
//! Sampling is nested: a batch with shift k tells everything of the clients whose hash, under any key in use, is below
//! 2^(64-k), and nothing else. Of batches with different shifts, the largest is a sample that all of them have told.
//!
//! Memory: an event takes 24 bytes, 32 while one key takes over from another; a batch 200 bytes more; a sketch of many clients
//! 2 KB. [`hold`] counts all of it against [`BYTES_PER_EVENT`] times the events that are configured, whatever agents send.

mod batch;
mod bound;
mod gather;
mod keys;
mod log;
pub mod sketch;

#[cfg(test)]
mod tests;

pub use batch::{Batch, Column, Heavy, MAX_HEAVY, MAX_SHIFT, Moment, in_sample};
pub use bound::{BYTES_PER_EVENT, Held, hold};
pub use gather::{Gathered, gather};
pub use keys::{ClientKey, ClientKeys, MIN_ROTATION};
pub use log::ClientLog;

use crate::ledger::RETENTION_MS;

/// How long events are kept: as far back as windows reach, and some for agents that are late.
pub const KEEP_MS: u64 = RETENTION_MS + 300_000;
