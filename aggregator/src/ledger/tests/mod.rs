//! Sequences of reports, and what the ledger makes of them.

mod beside;
mod open;

use std::net::Ipv6Addr;

use super::*;
use crate::flow::{ByClass, Protocol};

const BUCKET_MS: u64 = 10_000;
const EXTERNAL: usize = SourceClass::External.index();

fn endpoint(n: u16) -> EndpointKey {
    EndpointKey {
        address: Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 10, n),
        port: 8883,
        protocol: Protocol::Tcp,
    }
}

fn entry(endpoint: EndpointKey, cgroup_id: u64, opened: u64, established: u64) -> Entry {
    let mut classes = ByClass::<Counts>::default();
    classes[EXTERNAL] = Counts {
        opened,
        established,
        ..Default::default()
    };
    Entry {
        key: LedgerKey { endpoint, cgroup_id },
        pod_uid: None,
        classes,
        doors: vec![],
        ages: None,
    }
}

fn report(epoch: u64, sequence: u64, entries: Vec<Entry>) -> NodeReport {
    NodeReport {
        epoch,
        sequence,
        entries,
        ..Default::default()
    }
}

/// Without endpoints.
fn take(ledger: &mut NodeLedger, report: &NodeReport, at_ms: u64) -> Outcome {
    ledger.take(report, at_ms, at_ms, &Endpoints::new())
}

fn opened_since(ledger: &NodeLedger, endpoint: EndpointKey, ms: u64) -> u64 {
    let keys = ledger.at(&endpoint);
    keys.map(|(_, key)| key.opened(ledger.tick(ms), Tick::MAX)[EXTERNAL])
        .sum()
}

fn new_flows(ledger: &NodeLedger, endpoint: EndpointKey) -> u64 {
    opened_since(ledger, endpoint, 0)
}

fn established(ledger: &NodeLedger, endpoint: EndpointKey) -> u64 {
    let keys = ledger.at(&endpoint);
    keys.map(|(_, key)| key.counts()[EXTERNAL].established).sum()
}

/// Reports of one endpoint as (epoch, sequence, opened, established), the outcome of each, and what is shown at last.
fn check(reports: &[(u64, u64, u64, u64)], outcomes: &str, new: u64, open: u64) {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let mut got = String::new();
    for &(epoch, sequence, opened, established) in reports {
        let report = report(epoch, sequence, vec![entry(endpoint(1), 1, opened, established)]);
        got.push(match take(&mut ledger, &report, 50_000) {
            Outcome::Taken => 'T',
            Outcome::Baseline => 'B',
            Outcome::Stale => 's',
            Outcome::Rejected(_) => 'R',
        });
    }
    assert_eq!(got, outcomes, "{reports:?}");
    assert_eq!(
        (new_flows(&ledger, endpoint(1)), established(&ledger, endpoint(1))),
        (new, open),
        "{reports:?}"
    );
}

#[test]
fn sequences_within_an_epoch() {
    check(&[(7, 1, 10, 10)], "T", 10, 10);
    check(&[(7, 1, 10, 10), (7, 2, 15, 9)], "TT", 15, 9);
    // Sent again.
    check(
        &[(7, 1, 10, 10), (7, 2, 15, 9), (7, 2, 15, 9), (7, 1, 10, 10)],
        "TTss",
        15,
        9,
    );
    // Out of order.
    check(&[(7, 1, 10, 10), (7, 3, 20, 8), (7, 2, 15, 9)], "TTs", 20, 8);
    // Some were dropped; the next carries their counts.
    check(&[(7, 1, 10, 10), (7, 9, 99, 3)], "TT", 99, 3);
}

#[test]
fn a_first_report_that_is_not_the_first_of_its_epoch_is_a_baseline() {
    check(&[(7, 5, 1000, 40)], "B", 0, 40);
    check(&[(7, 5, 1000, 40), (7, 6, 1003, 41)], "BT", 3, 41);
    check(&[(7, 5, 1000, 40), (7, 5, 1000, 40), (7, 6, 1003, 41)], "BsT", 3, 41);
    // However large the counters are.
    check(&[(7, 5, u64::MAX - 1, 40), (7, 6, u64::MAX, 41)], "BT", 1, 41);
}

#[test]
fn a_new_epoch_starts_at_zero() {
    check(&[(7, 1, 10, 10), (8, 1, 2, 12)], "TT", 12, 12);
    check(&[(7, 1, 10, 10), (8, 1, 50, 12), (8, 2, 51, 11)], "TTT", 61, 11);
    // Its first report is missing.
    check(&[(7, 1, 10, 10), (8, 3, 50, 12), (8, 4, 51, 11)], "TBT", 11, 11);
    // The old epoch's reports come late.
    check(&[(7, 1, 10, 10), (8, 1, 2, 12), (7, 2, 90, 90)], "TTs", 12, 12);
}

#[test]
fn counters_that_go_backwards_change_nothing() {
    check(&[(7, 1, 10, 10), (7, 2, 9, 9)], "TR", 10, 10);
    check(&[(7, 1, 10, 10), (7, 2, 9, 9), (7, 2, 11, 9)], "TRT", 11, 9);
    check(
        &[(7, 1, 10, 10), (7, 2, 10 + (1 << 32), 9), (7, 3, 11, 8)],
        "TRT",
        11,
        8,
    );
    check(&[(7, 1, u64::MAX, 1)], "R", 0, 0);
    // Rejected, so its epoch has not begun either.
    check(&[(7, 1, 10, 10), (8, 1, u64::MAX, 1), (7, 2, 11, 9)], "TRT", 11, 9);

    let mut ledger = NodeLedger::new(BUCKET_MS);
    let mut closed = entry(endpoint(1), 1, 5, 0);
    closed.classes[EXTERNAL].closed = [0, 3, 2, 0, 0, 0];
    take(&mut ledger, &report(7, 1, vec![closed.clone()]), 0);
    closed.classes[EXTERNAL].closed = [0, 3, 1, 0, 0, 0];
    let outcome = take(&mut ledger, &report(7, 2, vec![closed]), 0);
    assert!(matches!(outcome, Outcome::Rejected(reason) if reason.contains("8883")));
}

#[test]
fn a_key_that_appears_later_counts_from_zero() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    take(&mut ledger, &report(7, 5, vec![entry(endpoint(1), 1, 100, 1)]), 0);
    take(
        &mut ledger,
        &report(7, 6, vec![entry(endpoint(1), 1, 100, 1), entry(endpoint(2), 1, 7, 7)]),
        0,
    );
    assert_eq!(new_flows(&ledger, endpoint(2)), 7);
}

#[test]
fn a_key_that_is_away_has_no_open_flows_and_may_be_counted_afresh() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    take(&mut ledger, &report(7, 1, vec![entry(endpoint(1), 1, 10, 4)]), 0);
    take(&mut ledger, &report(7, 2, vec![]), 0);
    let afresh = report(7, 3, vec![entry(endpoint(1), 1, 2, 2)]);
    assert_eq!(take(&mut ledger, &afresh, 0), Outcome::Taken);
    assert_eq!(new_flows(&ledger, endpoint(1)), 12);
    take(&mut ledger, &report(7, 4, vec![]), 0);
    assert_eq!(
        (new_flows(&ledger, endpoint(1)), established(&ledger, endpoint(1))),
        (12, 0)
    );
}

#[test]
fn cgroups_of_one_address_are_summed() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let entries = vec![
        entry(endpoint(1), 5, 10, 1),
        entry(endpoint(1), 9, 20, 2),
        entry(endpoint(2), 5, 40, 4),
    ];
    take(&mut ledger, &report(7, 1, entries), 0);
    assert_eq!(
        (new_flows(&ledger, endpoint(1)), established(&ledger, endpoint(1))),
        (30, 3)
    );
}

#[test]
fn windows_are_made_of_buckets_and_end_after_an_hour() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let start = 1_700_000_000_000;
    for (sequence, opened) in [(1, 1), (2, 11), (3, 111)] {
        let at_ms = start + (sequence - 1) * 2 * BUCKET_MS;
        take(
            &mut ledger,
            &report(7, sequence, vec![entry(endpoint(1), 1, opened, 0)]),
            at_ms,
        );
    }
    let since = |ledger: &NodeLedger, ms| opened_since(ledger, endpoint(1), ms);
    assert_eq!(since(&ledger, start), 111);
    assert_eq!(since(&ledger, start + BUCKET_MS), 110);
    assert_eq!(since(&ledger, start + 4 * BUCKET_MS), 100);
    assert_eq!(since(&ledger, start + 5 * BUCKET_MS), 0);
    ledger.expire(start + RETENTION_MS + BUCKET_MS);
    assert_eq!(since(&ledger, 0), 110);
    ledger.expire(start + 2 * RETENTION_MS);
    assert_eq!(since(&ledger, 0), 0);
    // Its counters are still what the next report is compared with.
    take(
        &mut ledger,
        &report(7, 4, vec![entry(endpoint(1), 1, 112, 0)]),
        start + 2 * RETENTION_MS,
    );
    assert_eq!(since(&ledger, 0), 1);
}

#[test]
fn keys_that_are_gone_for_an_hour_are_forgotten() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let start = 1_700_000_000_000;
    take(&mut ledger, &report(7, 1, vec![entry(endpoint(1), 1, 5, 5)]), start);
    take(&mut ledger, &report(7, 2, vec![]), start);
    ledger.expire(start + RETENTION_MS - 1);
    assert_eq!(ledger.keys.len(), 1);
    ledger.expire(start + RETENTION_MS + BUCKET_MS);
    assert!(ledger.keys.is_empty());
}

#[test]
fn endpoints_are_kept_before_other_keys() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let others = |count| (0..count).map(|n| entry(endpoint(1), n, 1, 1));
    let full = u64::try_from(MAX_KEYS).unwrap();
    take(&mut ledger, &report(7, 1, others(full).collect()), 0);
    assert_eq!((ledger.keys.len(), ledger.losses().entries_dropped), (MAX_KEYS, 0));

    let endpoints: Endpoints = [(endpoint(2), "".into())].into();
    let crowd = || others(full).chain([entry(endpoint(2), 1, 3, 3)]).collect();
    ledger.take(&report(7, 2, crowd()), 0, 0, &endpoints);
    assert_eq!((ledger.keys.len(), ledger.losses().entries_dropped), (MAX_KEYS, 1));
    assert_eq!(new_flows(&ledger, endpoint(2)), 3);
}

#[test]
fn a_key_that_had_no_room_is_not_new_when_it_finds_some() {
    let mut ledger = NodeLedger::new(BUCKET_MS);
    let crowd = || (0..=u64::try_from(MAX_KEYS).unwrap()).map(|n| entry(endpoint(1), n, 1, 1));
    take(&mut ledger, &report(7, 1, crowd().collect()), 0);
    assert_eq!(new_flows(&ledger, endpoint(1)), u64::try_from(MAX_KEYS).unwrap());
    // One has gone, and all others fit; the flow of the one is forgotten for them.
    take(&mut ledger, &report(7, 2, crowd().skip(1).collect()), 0);
    assert_eq!(new_flows(&ledger, endpoint(1)), u64::try_from(MAX_KEYS).unwrap() - 1);
    assert_eq!(ledger.losses().entries_dropped, 1, "told as long as the epoch lasts");
}
