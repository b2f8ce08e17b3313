//! Which counters the kernel's maps can forget: in, those that are over; out, those that have been reported long enough. Each
//! container that starts makes a key of the ledger, and maps are bounded.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

/// Time that counters must have been over and unchanged, so that reports have told them many times.
const UNCHANGED_FOR: Duration = Duration::from_secs(1_200);

/// Counters that are over, with their values, and since when these have not changed.
#[derive(Debug)]
pub struct Forgetting<K, V>(HashMap<K, (V, Instant)>);

impl<K, V> Default for Forgetting<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Eq> Forgetting<K, V> {
    /// Keys that can be forgotten now. `over`: all whose counters should not change any more.
    pub fn due(&mut self, over: impl Iterator<Item = (K, V)>, now: Instant) -> Vec<K> {
        let mut before = std::mem::take(&mut self.0);
        let mut due = Vec::new();
        for (key, value) in over {
            let since = match before.remove(&key) {
                Some((unchanged, since)) if unchanged == value => since,
                _ => now,
            };
            if now.duration_since(since) >= UNCHANGED_FOR {
                due.push(key);
            } else {
                self.0.insert(key, (value, since));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_not_changed_for_long_is_due() {
        let start = Instant::now();
        let mut forgetting = Forgetting::default();
        let mut due = |over: &[(&'static str, u64)], after: Duration| {
            let mut due = forgetting.due(over.iter().copied(), start + after);
            due.sort_unstable();
            due
        };
        let never: [&str; 0] = [];
        assert_eq!(due(&[("same", 5), ("grows", 5), ("back", 5)], Duration::ZERO), never);
        assert_eq!(due(&[("same", 5), ("grows", 6)], UNCHANGED_FOR / 2), never);
        assert_eq!(due(&[("same", 5), ("grows", 6), ("back", 5)], UNCHANGED_FOR), ["same"]);
        assert_eq!(due(&[("grows", 6), ("back", 5)], UNCHANGED_FOR * 3 / 2), ["grows"]);
    }
}
