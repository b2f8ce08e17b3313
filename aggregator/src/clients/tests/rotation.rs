//! Keys, and what windows over a change of keys show.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use super::*;
use crate::ledger::RETENTION_MS;

const MINUTE: u64 = 60_000;

fn key(id: u32) -> ClientKey {
    ClientKey { id, key: [0; 16] }
}

fn ids(keys: &ClientKeys) -> Vec<u32> {
    keys.in_use().iter().map(|key| key.id).collect()
}

#[test]
fn one_key_takes_over_from_another() {
    let mut keys = ClientKeys::default();
    assert_eq!(keys.current(), None);
    let mut next = 0;
    let mut at = |hours: u64, minutes: u64| {
        let now_ms = (hours * 60 + minutes) * MINUTE;
        let new = || {
            next += 1;
            Ok::<_, Infallible>(key(next))
        };
        let Ok(changed) = keys.advance(now_ms, Duration::from_secs(86_400), new);
        (changed, ids(&keys), keys.current())
    };
    assert_eq!(at(100, 0), (true, vec![1], Some(1)));
    assert_eq!(at(123, 59), (false, vec![1], Some(1)));
    assert_eq!(at(124, 0), (true, vec![1, 2], Some(1)));
    assert_eq!(at(125, 4), (false, vec![1, 2], Some(1)));
    assert_eq!(at(125, 5), (true, vec![2], Some(2)));
    assert_eq!(at(147, 59), (false, vec![2], Some(2)));
    assert_eq!(at(148, 0), (true, vec![2, 3], Some(2)));
    // A clock that was set back changes nothing; one that was set forward one step at a time.
    assert_eq!(at(3, 0), (false, vec![2, 3], Some(2)));
    assert_eq!(at(900, 0), (true, vec![3], Some(3)));
}

#[test]
fn without_randomness_the_keys_stay_and_the_next_call_tries_again() {
    let mut keys = ClientKeys::default();
    let rotation = MIN_ROTATION;
    assert_eq!(keys.advance(0, rotation, || Err("no randomness")), Err("no randomness"));
    assert_eq!(keys.current(), None);
    assert_eq!(keys.advance(1, rotation, || Ok::<_, &str>(key(1))), Ok(true));
    let later = millis_of(rotation) + 1;
    assert!(keys.advance(later, rotation, || Err("no randomness")).is_err());
    assert_eq!(ids(&keys), [1]);
    // An id that is in use is not taken again.
    let mut drawn = [1, 1, 2].into_iter().map(key);
    assert_eq!(
        keys.advance(later, rotation, || drawn.next().ok_or("no more")),
        Ok(true)
    );
    assert_eq!(ids(&keys), [1, 2]);
}

fn millis_of(duration: Duration) -> u64 {
    crate::millis(duration)
}

#[test]
fn keys_are_random_and_not_shown() {
    let (one, two) = (ClientKey::random().unwrap(), ClientKey::random().unwrap());
    assert_ne!(one.key, two.key);
    let shown = format!("{:?}", ClientKey { id: 3, key: [0xab; 16] });
    assert_eq!(shown, "ClientKey { id: 3, .. }");
}

#[test]
fn a_window_over_a_change_of_keys_sees_each_client_once() {
    const CLIENTS: u64 = 30;
    let mut keys = ClientKeys::default();
    let mut log = ClientLog::default();
    let mut used = HashSet::new();
    let start = 1_000 * MINUTE;
    // Nine hours: every client opens a flow each ten minutes, and agents learn of keys one report late.
    let mut told: Vec<ClientKey> = vec![];
    for now in (0..9 * 60).map(|minute| start + minute * MINUTE) {
        let known = std::mem::replace(&mut told, keys.in_use().to_vec());
        let Ok(_changed) = keys.advance(now, MIN_ROTATION, || {
            let id = u32::try_from(now / MINUTE).unwrap_or_default();
            Ok::<_, Infallible>(key(id))
        });
        let clients: Vec<u64> = (0..CLIENTS)
            .filter(|client| (client + now / MINUTE).is_multiple_of(10))
            .collect();
        let batch = Batch {
            columns: known
                .iter()
                .map(|key| Column {
                    key_id: key.id,
                    clients: clients
                        .iter()
                        .map(|&client| hash(client ^ u64::from(key.id) << 32))
                        .collect(),
                    ..Column::default()
                })
                .collect(),
            ..opens(now, &clients)
        };
        log.push(ledger_key(1), batch);
        log.expire(now);
        if now < start + RETENTION_MS + 5 * MINUTE {
            continue;
        }
        let current = keys.current().unwrap();
        used.insert(current);
        let batches = log.batches(&ledger_key(1)).cloned().collect();
        let from_ms = now - RETENTION_MS;
        let found = gather(&[(0, batches)], current, from_ms, window(from_ms, now));
        let distinct: HashSet<u64> = found.events.iter().map(|event| event.client).collect();
        assert_eq!((distinct.len() as u64, found.missing_batches), (CLIENTS, 0), "{now}");
        assert_eq!(found.events.len() as u64, CLIENTS * 61 / 10, "{now}");
    }
    assert!(used.len() >= 3, "{used:?}");
}
