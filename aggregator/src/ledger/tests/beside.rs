//! What a ledger keeps beside the flows of its keys: front doors, whose a key is, attempts that reached no pod.

use super::*;

fn with_doors(doors: &[(u16, u64, u64)]) -> Entry {
    let door = |&(port, opened, established): &(u16, u64, u64)| {
        let key = DoorKey {
            address: endpoint(1).address,
            port,
            class: EXTERNAL,
        };
        let counts = DoorCounts {
            opened,
            established,
            closed: 0,
        };
        (key, counts)
    };
    Entry {
        doors: doors.iter().map(door).collect(),
        ..entry(endpoint(1), 1, 1000, 0)
    }
}

/// (port, new, established) of each door.
fn doors(ledger: &NodeLedger) -> Vec<(u16, u64, u64)> {
    let (_, key) = ledger.at(&endpoint(1)).next().unwrap();
    key.doors()
        .map(|(door, counts, flows)| (door.port, flows.opened.sum(0, Tick::MAX), counts.established))
        .collect()
}

#[test]
fn doors_are_counted_like_the_key() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    // Nobody knows when the flows of a baseline opened.
    take(&mut ledger, &report(7, 5, vec![with_doors(&[(443, 10, 4)])]), 0);
    assert_eq!(doors(&ledger), [(443, 0, 4)]);
    take(
        &mut ledger,
        &report(7, 6, vec![with_doors(&[(443, 12, 5), (80, 3, 3)])]),
        0,
    );
    assert_eq!(doors(&ledger), [(80, 3, 3), (443, 2, 5)]);
    // Sent again.
    take(
        &mut ledger,
        &report(7, 6, vec![with_doors(&[(443, 12, 5), (80, 3, 3)])]),
        0,
    );
    assert_eq!(doors(&ledger), [(80, 3, 3), (443, 2, 5)]);
    // A door that is away has no open flows; a new epoch begins at zero.
    take(&mut ledger, &report(8, 1, vec![with_doors(&[(443, 1, 1)])]), 0);
    assert_eq!(doors(&ledger), [(80, 3, 0), (443, 3, 1)]);
    ledger.expire(2 * RETENTION_MS);
    assert_eq!(doors(&ledger), [(443, 0, 1)]);
}

#[test]
fn doors_are_bounded_and_one_that_had_no_room_is_not_new() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let many: Vec<(u16, u64, u64)> = (1..=100).map(|port| (port, 1, 1)).collect();
    take(&mut ledger, &report(7, 1, vec![with_doors(&many)]), 0);
    assert_eq!(doors(&ledger).len(), 64);
    take(&mut ledger, &report(7, 2, vec![with_doors(&many[90..])]), 0);
    ledger.expire(2 * RETENTION_MS);
    assert_eq!(doors(&ledger).len(), 0, "those with room are away, and an hour old");
    take(
        &mut ledger,
        &report(7, 3, vec![with_doors(&many[90..])]),
        2 * RETENTION_MS,
    );
    assert_eq!(doors(&ledger)[0], (91, 0, 1));
}

#[test]
fn a_key_whose_pod_is_another_after_a_reboot_is_parted() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let of = |pod: &str, opened| Entry {
        pod_uid: Some(pod.into()),
        ..entry(endpoint(1), 1, opened, 0)
    };
    take(&mut ledger, &report(7, 1, vec![of("old", 10)]), 0);
    take(&mut ledger, &report(8, 1, vec![of("new", 3)]), 0);
    let (_, key) = ledger.at(&endpoint(1)).next().unwrap();
    assert_eq!(key.owner().pod().map(|pod| &**pod), Some("new"));
    assert_eq!(new_flows(&ledger, endpoint(1)), 3);
    assert_eq!(key.opened_before("old", 0, Tick::MAX)[EXTERNAL], 10);
    assert_eq!(key.opened_before("new", 0, Tick::MAX)[EXTERNAL], 0);
}

#[test]
fn since_when_all_is_counted() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let mut since = |epoch, sequence, started_ms, at_ms| {
        ledger.take(&report(epoch, sequence, vec![]), started_ms, at_ms, &Endpoints::new());
        ledger.counting_since_ms().unwrap()
    };
    assert_eq!(since(7, 1, 40, 50), 40);
    assert_eq!(since(7, 2, 40, 60), 40);
    // A new life of the counters, and one whose beginning was not seen.
    assert_eq!(since(8, 1, 80, 90), 80);
    assert_eq!(since(9, 5, 100, 130), 130);
    // Not in the future.
    assert_eq!(since(10, 1, 900, 140), 140);
}

#[test]
fn attempts_are_counted_like_flows() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let mut attempts = |epoch, sequence, attempts: u64| {
        let unserved = Unserved {
            at: endpoint(1),
            reason: UnservedReason::Dropped,
            attempts,
        };
        let report = NodeReport {
            unserved: vec![unserved],
            ..report(epoch, sequence, vec![])
        };
        take(&mut ledger, &report, 0);
        let (_, _, total, series) = ledger.unserved().next().unwrap();
        (total, series.sum(0, Tick::MAX))
    };
    assert_eq!(attempts(7, 3, 100), (100, 0));
    assert_eq!(attempts(7, 4, 105), (105, 5));
    assert_eq!(attempts(7, 4, 105), (105, 5));
    assert_eq!(attempts(8, 1, 2), (2, 7));
}

#[test]
fn attempts_are_bounded() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let at = |n: u16| Unserved {
        at: EndpointKey { port: n, ..endpoint(1) },
        reason: UnservedReason::Dropped,
        attempts: 1,
    };
    let report = NodeReport {
        unserved: (1..=5000).map(at).collect(),
        ..report(7, 1, vec![])
    };
    take(&mut ledger, &report, 0);
    assert_eq!(ledger.unserved().count(), 4096);
    assert_eq!(ledger.losses().entries_dropped, 904);
}
