//! What closed, what was open meanwhile, and how old open flows are.

use super::*;

fn open_at(ledger: &NodeLedger, from: u64, now_ms: u64) -> (u64, u128) {
    let (_, key) = ledger.at(&endpoint(1)).next().unwrap();
    let buckets = Buckets {
        width_ms: BUCKET_MS,
        now_ms,
    };
    let (flows, from) = (key.external(), ledger.tick(from));
    let open_now = key.counts()[EXTERNAL].established;
    (
        flows.closed.sum(from, Tick::MAX),
        flows.open_ms(open_now, from, buckets),
    )
}

/// Opened, established, and closed by two causes, of the external class; other classes close more.
fn busy(opened: u64, established: u64, closed: (u64, u64)) -> Entry {
    let mut entry = entry(endpoint(1), 1, opened, established);
    entry.classes[EXTERNAL].closed = [closed.0, closed.1, 0, 0, 0, 0];
    entry.classes[SourceClass::Pod.index()].closed[0] = 1_000 * closed.0;
    entry
}

#[test]
fn closes_are_counted_like_opens() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    // Of a baseline nobody knows when they closed.
    take(&mut ledger, &report(7, 5, vec![busy(100, 40, (50, 10))]), 10_000);
    assert_eq!(open_at(&ledger, 0, 20_000), (0, 40 * 20_000));
    take(&mut ledger, &report(7, 6, vec![busy(103, 38, (53, 12))]), 20_000);
    assert_eq!(open_at(&ledger, 0, 20_000), (5, 40 * 20_000));
    assert_eq!(open_at(&ledger, 20_000, 30_000), (5, 38 * 10_000));
    // Again, and out of order.
    take(&mut ledger, &report(7, 6, vec![busy(103, 38, (53, 12))]), 20_000);
    take(&mut ledger, &report(7, 4, vec![busy(90, 40, (40, 10))]), 20_000);
    assert_eq!(open_at(&ledger, 0, 20_000).0, 5);
    // A new epoch begins at zero: its closes are new, and what it finds open was open before.
    let mut found_open = busy(2, 30, (1, 8));
    found_open.classes[EXTERNAL].seeded = 37;
    take(&mut ledger, &report(8, 1, vec![found_open]), 30_000);
    assert_eq!(open_at(&ledger, 30_000, 40_000), (9, 30 * 10_000));
    assert_eq!(open_at(&ledger, 20_000, 40_000), (14, 30 * 10_000 + 37 * 10_000));
    ledger.expire(RETENTION_MS + 30_000);
    assert_eq!(open_at(&ledger, 0, 0).0, 9);
}

#[test]
fn closes_that_no_node_can_have_are_rejected() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    take(&mut ledger, &report(7, 1, vec![busy(5, 0, (5, 0))]), 0);
    let outcome = take(&mut ledger, &report(7, 2, vec![busy(5, 0, (1 << 33, 0))]), 0);
    assert!(matches!(outcome, Outcome::Rejected(_)));
    assert_eq!(open_at(&ledger, 0, 0).0, 5);
}

#[test]
fn the_newest_ages_are_kept_by_our_clock() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    // The agent's clock is a million seconds behind.
    let mut ages = |epoch, sequence, read: Option<u64>, established| {
        let entry = Entry {
            ages: read.map(|read_at_ms| FlowAges {
                read_at_ms,
                buckets: vec![(9, established)],
                unknown: sequence,
            }),
            ..busy(10, established, (0, 0))
        };
        let report = NodeReport {
            taken_at_ms: 5_000,
            ..report(epoch, sequence, vec![entry])
        };
        take(&mut ledger, &report, 1_000_005_000);
        let (_, key) = ledger.at(&endpoint(1)).next().unwrap();
        key.ages().map(|ages| (ages.read_at_ms, ages.unknown))
    };
    assert_eq!(ages(7, 1, None, 4), None);
    assert_eq!(ages(7, 2, Some(4_700), 4), Some((1_000_004_700, 2)));
    // Nobody looked; then none is open.
    assert_eq!(ages(7, 3, None, 4), Some((1_000_004_700, 2)));
    assert_eq!(ages(7, 4, None, 0), None);
    // Not later than the report, and not of another epoch.
    assert_eq!(ages(7, 5, Some(9_000), 4), Some((1_000_005_000, 5)));
    assert_eq!(ages(8, 1, None, 4), None);
    assert_eq!(ages(8, 2, Some(5_000), 4), Some((1_000_005_000, 2)));
    take(&mut ledger, &report(8, 3, vec![]), 1_000_010_000);
    let (_, key) = ledger.at(&endpoint(1)).next().unwrap();
    assert_eq!(key.ages(), None, "no flow is open at a key that is away");
}
