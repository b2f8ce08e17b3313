//! Single flows of clients and the keys that name them, as the owner keeps them.

use super::*;
use crate::clients::{BYTES_PER_EVENT, Batch, Column, Moment};
use crate::ledger::LedgerKey;

/// So many flows at one endpoint, each of another client.
fn activity(events: u64) -> Vec<(LedgerKey, Batch)> {
    let opened = Moment {
        lifetime_plus_1: 0,
        before_ms: 0,
        closed: None,
    };
    let batch = Batch {
        moments: (0..events).map(|_| opened).collect(),
        columns: vec![Column {
            key_id: 1,
            clients: (0..events).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect(),
            ..Column::default()
        }],
        ..Batch::default()
    };
    let key = LedgerKey {
        endpoint: key(1),
        cgroup_id: 1,
    };
    vec![(key, batch)]
}

fn report(sequence: u64, opened: u64, events: u64) -> NodeReport {
    NodeReport {
        sequence,
        entries: vec![entry(1, 1, opened, 0)],
        activity: activity(events),
        ..Default::default()
    }
}

async fn totals(owner: &Owner) -> Totals {
    owner.handle.metrics(vec![]).await.unwrap().totals
}

#[tokio::test]
async fn what_clients_did_is_taken_with_its_report_and_once() {
    let owner = Owner::start();
    owner.see(view(&[("a", 1, true)])).await;
    let _a = owner.connect("a", 1).await;
    let kept = async |sequence, opened, events| {
        owner.send("a", 1, report(sequence, opened, events)).await;
        totals(&owner).await.client_events
    };
    // Of an epoch that nobody knows: when these flows opened is not known either.
    assert_eq!(kept(5, 100, 7).await, 0);
    assert_eq!(kept(6, 110, 10).await, 10);
    // Again, late, and impossible.
    assert_eq!(kept(6, 110, 10).await, 10);
    assert_eq!(kept(3, 90, 10).await, 10);
    assert_eq!(kept(7, 1, 10).await, 10);
    assert_eq!(kept(7, 115, 5).await, 15);
    // By a stream that is not the node's.
    owner.send("a", 2, report(8, 120, 5)).await;
    assert_eq!(totals(&owner).await.client_events, 15);
}

#[tokio::test]
async fn what_made_no_sense_is_missing_and_says_so() {
    let owner = Owner::start();
    owner.see(view(&[("a", 1, true)])).await;
    let _a = owner.connect("a", 1).await;
    let losses = async |report: NodeReport| {
        owner.send("a", 1, report).await;
        owner.handle.nodes().await.unwrap()[0].losses
    };
    let with = |sequence, invalid_activity, activity_dropped| {
        let mut report = report(sequence, sequence, 1);
        report.invalid_activity = invalid_activity;
        report.losses.activity_dropped = activity_dropped;
        report
    };
    assert_eq!(losses(with(1, 3, 10)).await.activity_dropped, 13);
    assert_eq!(losses(with(2, 4, 10)).await.activity_dropped, 17);
    // The same again is not another.
    assert_eq!(losses(with(2, 4, 10)).await.activity_dropped, 17);
    let last = losses(with(3, 0, 12)).await;
    assert_eq!((last.activity_dropped, last.entries_dropped), (19, 0));
    assert_eq!(totals(&owner).await.client_events_invalid, 7);
}

#[tokio::test]
async fn a_flood_from_several_nodes_stays_within_the_bound() {
    let owner = Owner::start();
    owner.see(view(&[("a", 1, true)])).await;
    let nodes = ["a", "b", "c"];
    let mut streams = Vec::new();
    for node in nodes {
        streams.push(owner.connect(node, 1).await);
    }
    for sequence in 1..=20 {
        for node in nodes {
            owner.send(node, 1, report(sequence, 2_000 * sequence, 2_000)).await;
        }
        let totals = totals(&owner).await;
        assert!(totals.client_events * 24 <= SETTINGS.client_events as usize * BYTES_PER_EVENT);
        assert!(totals.client_events > 0);
    }
    let totals = totals(&owner).await;
    assert!(totals.client_events_thinned > 60_000, "{totals:?}");
}

#[tokio::test]
async fn every_agent_is_told_the_same_key() {
    let owner = Owner::start();
    owner.see(view(&[("a", 1, true)])).await;
    let told = async |node: &str| {
        let admission = owner.connect(node, 1).await;
        let assignment = admission.assignments.borrow().clone().unwrap();
        assignment.client_keys.clone()
    };
    let keys = told("a").await;
    assert_eq!((keys.len(), told("b").await), (1, keys.clone()));
}

#[test]
fn a_change_of_keys_is_told_to_agents() {
    let mut state = State::new(SETTINGS);
    state.see(view(&[("a", 1, true)]));
    let hello = Hello {
        node: "a".to_owned(),
        ..Default::default()
    };
    state.rotate(1_000);
    let mut assignments = state
        .nodes
        .connect(hello, 1, state.plan.as_ref(), state.client_keys.in_use())
        .unwrap()
        .assignments;
    let mut ids = || -> Vec<u32> {
        let assignment = assignments.borrow_and_update().clone().unwrap();
        assignment.client_keys.iter().map(|key| key.id).collect()
    };
    let first = ids();
    state.rotate(2_000);
    assert_eq!(ids(), first);
    let rotated_ms = 1_000 + crate::millis(SETTINGS.client_key_rotation);
    state.rotate(rotated_ms);
    let both = ids();
    assert_eq!(
        (both.len(), both[0], state.client_keys.current()),
        (2, first[0], Some(first[0]))
    );
    state.rotate(rotated_ms + crate::clients::KEEP_MS);
    assert_eq!((ids(), state.client_keys.current()), (vec![both[1]], Some(both[1])));
}
