//! Which counters the kernel's ledger can forget: in, the ledger and the cgroups that are gone; out, keys that cannot change any
//! more. Each container that starts makes a key, and the ledger is bounded.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use flowskew_agent_ebpf::{LedgerKey, LedgerValue};

/// Time that counters of a cgroup that is gone must have been unchanged, so that reports have told them many times.
const UNCHANGED_FOR: Duration = Duration::from_secs(1_200);

/// Keys that may soon be forgotten.
#[derive(Debug, Default)]
pub struct Forgetting(HashMap<LedgerKey, (LedgerValue, Instant)>);

impl Forgetting {
    /// Keys that can be forgotten now: their cgroup is gone, no flow of theirs is open, and nothing has changed for a while.
    pub fn due(&mut self, entries: Vec<(LedgerKey, LedgerValue)>, gone: &HashSet<u64>, now: Instant) -> Vec<LedgerKey> {
        let mut before = std::mem::take(&mut self.0);
        let mut due = Vec::new();
        for (key, value) in entries {
            let is_closed = value.classes.iter().all(|counts| counts.established == 0);
            if !is_closed || !gone.contains(&key.cgroup_id) {
                continue;
            }
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
    fn only_what_is_gone_closed_and_unchanged_is_due() {
        let key = |cgroup_id| LedgerKey {
            cgroup_id,
            port: 80,
            ..LedgerKey::default()
        };
        let value = |opened, established| {
            let mut value = LedgerValue::default();
            value.classes[1].opened = opened;
            value.classes[1].established = established;
            value
        };
        let start = Instant::now();
        let gone = HashSet::from([1, 2, 3]);
        let mut forgetting = Forgetting::default();
        let first = vec![
            (key(1), value(5, 0)),
            (key(2), value(5, 1)),
            (key(3), value(5, 0)),
            (key(4), value(5, 0)),
        ];
        assert_eq!(forgetting.due(first.clone(), &gone, start), []);
        // Another flow on the third, and the second has closed its last.
        let second = vec![
            (key(1), value(5, 0)),
            (key(2), value(5, 0)),
            (key(3), value(6, 0)),
            (key(4), value(5, 0)),
        ];
        assert_eq!(forgetting.due(second.clone(), &gone, start + UNCHANGED_FOR), [key(1)]);
        assert_eq!(
            forgetting.due(second, &gone, start + UNCHANGED_FOR * 2),
            [key(1), key(2), key(3)]
        );
    }
}
