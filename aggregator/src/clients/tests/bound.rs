//! Logs within their bound, whatever is sent.

use super::*;

#[test]
fn a_log_keeps_what_windows_reach() {
    let mut log = ClientLog::default();
    log.push(ledger_key(1), opens(10_000, &[1, 2]));
    log.push(ledger_key(1), opens(20_000, &[3]));
    log.push(ledger_key(2), opens(10_000, &[4]));
    assert_eq!((log.events(), log.batches(&ledger_key(1)).count()), (4, 2));
    log.expire(10_000 + KEEP_MS);
    assert_eq!(log.events(), 4);
    log.expire(10_001 + KEEP_MS);
    let left: Vec<u64> = log.batches(&ledger_key(1)).map(|batch| batch.at_ms).collect();
    assert_eq!((left, log.events()), (vec![20_000], 1));
    assert_eq!(log.batches(&ledger_key(2)).count(), 0);
    log.expire(20_001 + KEEP_MS);
    assert_eq!((log.events(), log.bytes()), (0, 0));
}

#[test]
fn an_event_takes_as_much_as_is_said() {
    let bytes = |clients: usize, columns| {
        let batch = opens(1_000, &vec![1; clients]);
        let column = batch.columns[0].clone();
        Batch {
            columns: vec![column; columns],
            ..batch
        }
        .bytes()
    };
    assert_eq!(bytes(100, 1) - bytes(0, 1), 100 * 24);
    assert_eq!(bytes(100, 2) - bytes(0, 2), 100 * BYTES_PER_EVENT);
    assert!(bytes(0, 1) <= 256, "{}", bytes(0, 1));
}

#[test]
fn within_the_bound_nothing_is_lost() {
    let mut log = ClientLog::default();
    log.push(ledger_key(1), opens(1_000, &[u64::MAX; 100]));
    let bytes = log.bytes();
    assert_eq!(hold([&mut log].into_iter(), bytes), Held::default());
    assert_eq!((log.events(), log.bytes()), (100, bytes));
}

#[test]
fn the_endpoint_with_most_events_gives_first() {
    let (mut busy, mut calm) = (ClientLog::default(), ClientLog::default());
    for second in 0..60 {
        let clients: Vec<u64> = (0..2_000).map(|n| hash(second * 2_000 + n)).collect();
        busy.push(ledger_key(1), opens(second * 1_000, &clients));
        busy.push(ledger_key(2), opens(second * 1_000, &clients[..20]));
        calm.push(ledger_key(1), opens(second * 1_000, &clients[..20]));
    }
    let limit = (busy.bytes() + calm.bytes()) / 2;
    let held = hold([&mut busy, &mut calm].into_iter(), limit);
    assert!(busy.bytes() + calm.bytes() <= limit);
    assert!(held.events_thinned > 60_000, "{held:?}");
    assert_eq!(held.batches_dropped, 0);
    let shifts = |log: &ClientLog, key| -> Vec<u32> {
        log.batches(&ledger_key(key))
            .map(|batch| batch.sampling_shift)
            .collect()
    };
    assert!(shifts(&busy, 1).iter().all(|&shift| shift > 0));
    assert!(
        shifts(&busy, 2)
            .iter()
            .chain(&shifts(&calm, 1))
            .all(|&shift| shift == 0)
    );
}

#[test]
fn a_flood_of_random_sources_keeps_its_clients_counted_and_memory_bounded() {
    // Ten nodes tell of 20,000 events a second, all of clients that nobody has seen before.
    let limit = 10_000 * BYTES_PER_EVENT;
    let mut logs: Vec<ClientLog> = (0..10).map(|_| ClientLog::default()).collect();
    let mut next = 0;
    let mut held = Held::default();
    for second in 1..=60 {
        for log in &mut logs {
            let clients: Vec<u64> = (next..next + 2_000).map(hash).collect();
            next += 2_000;
            log.push(ledger_key(1), opens(second * 1_000, &clients));
        }
        let cost = hold(logs.iter_mut(), limit);
        held.events_thinned += cost.events_thinned;
        held.batches_dropped += cost.batches_dropped;
        let bytes: usize = logs.iter().map(ClientLog::bytes).sum();
        assert!(bytes <= limit, "{bytes} in second {second}");
    }
    assert!(held.events_thinned > 1_000_000 && held.batches_dropped > 0, "{held:?}");
    // The newest is still told, with how many clients there were; of the rest it is said that it is missing.
    let places: Vec<(u32, Vec<Arc<Batch>>)> = logs
        .iter()
        .zip(0..)
        .map(|(log, place)| (place, log.batches(&ledger_key(1)).cloned().collect()))
        .collect();
    let last = gather(&places, KEY, 60_000, window(60_000, 61_000));
    let distinct = last.distinct.unwrap();
    assert!(distinct.low < 20_000.0 && 20_000.0 < distinct.high, "{distinct:?}");
    assert_eq!(last.missing_batches, 0);
    assert!(
        last.events
            .iter()
            .all(|event| in_sample(event.client, last.sampling_shift))
    );
    assert!(gather(&places, KEY, 0, window(0, 61_000)).missing_batches > 0);
}

#[test]
fn clients_that_are_in_every_sample_cannot_break_the_bound() {
    let limit = 10_000 * BYTES_PER_EVENT;
    let mut log = ClientLog::default();
    for second in 0..100 {
        // A client with hash 0, and many endpoints with nothing to tell.
        log.push(ledger_key(1), opens(second, &[0; 5_000]));
        (2..500).for_each(|n| log.push(ledger_key(n), opens(second, &[])));
        hold([&mut log].into_iter(), limit);
        assert!(log.bytes() <= limit, "{}", log.bytes());
    }
}
