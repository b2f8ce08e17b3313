//! The logs of all nodes enter; they leave within the bound.

use std::collections::BinaryHeap;

use super::ClientLog;

/// Memory that is allowed for each event that may be kept.
pub const BYTES_PER_EVENT: usize = 32;

/// What it cost to stay within the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Events of clients that are not in the sample any more. What is told of the others is complete.
    pub events_thinned: u64,
    /// Batches forgotten before their time: nothing is known of clients at that endpoint then.
    pub batches_dropped: u64,
}

/// Shrinks the ledger keys that take most memory, until all logs together take an eighth less than the limit in bytes, so that
/// this is not needed again at once. Does nothing within the limit.
pub fn hold<'a>(logs: impl Iterator<Item = &'a mut ClientLog>, limit: usize) -> Held {
    let mut logs: Vec<&mut ClientLog> = logs.collect();
    let mut total: usize = logs.iter().map(|log| log.bytes()).sum();
    let mut held = Held::default();
    if total <= limit {
        return held;
    }
    let mut largest: BinaryHeap<_> = logs
        .iter()
        .enumerate()
        .flat_map(|(node, log)| log.bytes_by_key().map(move |(bytes, key)| (bytes, node, key)))
        .collect();
    while total > limit - limit / 8
        && let Some((before, node, key)) = largest.pop()
        && let Some(log) = logs.get_mut(node)
    {
        let (after, cost) = log.shrink(&key);
        held.events_thinned += cost.events_thinned;
        held.batches_dropped += cost.batches_dropped;
        total = total - before + after;
        if after > 0 {
            largest.push((after, node, key));
        }
    }
    held
}
