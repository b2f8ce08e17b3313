//! Single flows as an agent sends them, also a broken one.

use datasketches::hll::{HllSketch, HllType};
use proptest::prelude::*;

use super::*;

/// Two flows of one client opened 100 ms before the report, one closed 40 ms before it.
fn good() -> v1::EndpointActivity {
    let mut address = vec![0; 16];
    address[15] = 1;
    v1::EndpointActivity {
        address,
        port: 443,
        protocol: v1::Protocol::Tcp.into(),
        cgroup_id: 5,
        sampling_shift: 0,
        at_ms: vec![-100, 0, 60],
        kinds: vec![0, 0, 1 + v1::CloseCause::ClientRst as u32],
        lifetimes_ms: vec![8],
        columns: vec![v1::ClientColumn {
            key_id: 9,
            clients: vec![u64::MAX, u64::MAX, 4],
            ..Default::default()
        }],
    }
}

fn sampled() -> v1::EndpointActivity {
    let mut found = good();
    found.sampling_shift = 3;
    found.columns[0].clients = vec![1, 2, 3];
    found.columns[0].distinct = sketch();
    found.columns[0].heavy = vec![heavy(1)];
    found
}

fn sketch() -> Vec<u8> {
    let mut sketch = HllSketch::new(11, HllType::Hll8).unwrap();
    (0_u64..1000).for_each(|client| sketch.update(client));
    sketch.serialize()
}

fn heavy(client: u64) -> v1::HeavyClient {
    v1::HeavyClient {
        client,
        opened: 20,
        error: 2,
        address: vec![],
    }
}

#[test]
fn events_are_told_by_how_long_before_the_report_they_were() {
    let (taken, invalid) = activity(vec![good()]);
    let [(key, batch)] = &*taken else { panic!("{taken:?}") };
    assert_eq!((invalid, key.endpoint.port, key.cgroup_id), (0, 443, 5));
    let moment = |before_ms, closed, lifetime_plus_1| Moment {
        lifetime_plus_1,
        before_ms,
        closed,
    };
    let expected = [
        moment(100, None, 0),
        moment(100, None, 0),
        moment(40, Some(CloseCause::ClientRst), 8),
    ];
    assert_eq!(*batch.moments, expected);
    assert_eq!(*batch.columns[0].clients, [u64::MAX, u64::MAX, 4]);
    // A sketch of what the events say is not kept.
    let mut with_sketch = good();
    with_sketch.columns[0].distinct = vec![1, 2, 3];
    assert_eq!(activity(vec![with_sketch]).0, taken);
    // What happens while a report is made is told with it.
    let mut late = good();
    late.at_ms = vec![-1, 5, 10];
    assert_eq!(activity(vec![late]).0[0].1.moments[2].before_ms, 0);
}

#[test]
fn what_a_sample_leaves_out_is_in_its_sketches() {
    let (taken, _) = activity(vec![sampled()]);
    let column = &taken[0].1.columns[0];
    assert!((column.distinct.as_ref().unwrap().estimate() - 1000.0).abs() < 60.0);
    assert_eq!(
        (column.heavy[0].opened, column.heavy[0].error, column.unlisted),
        (20, 2, 2)
    );
    let mut full = sampled();
    full.columns[0].heavy = (1..=32).map(heavy).collect();
    assert_eq!(activity(vec![full]).0[0].1.columns[0].unlisted, 20);
}

#[test]
fn what_makes_no_sense_is_left_out_and_counted() {
    type Spoil = fn(&mut v1::EndpointActivity);
    let check = |what: &str, spoil: Spoil| {
        let (mut bad, mut other) = (sampled(), good());
        spoil(&mut bad);
        other.cgroup_id = 6;
        let events = bad.kinds.len().max(1) as u64;
        let (taken, invalid) = activity(vec![bad, other]);
        assert_eq!((taken.len(), invalid), (1, events), "{what}");
    };
    check("short address", |bad| bad.address = vec![1, 2, 3, 4]);
    check("no port", |bad| bad.port = 0);
    check("large port", |bad| bad.port = 65_536);
    check("unknown protocol", |bad| bad.protocol = 132);
    check("large shift", |bad| bad.sampling_shift = 33);
    check("a shift beyond the hash", |bad| bad.sampling_shift = u32::MAX);
    check("a time too few", |bad| bad.at_ms = vec![-100, 0]);
    check("a kind too few", |bad| bad.kinds = vec![0, 1]);
    check("a client too few", |bad| bad.columns[0].clients = vec![1, 2]);
    check("a lifetime too few", |bad| bad.lifetimes_ms = vec![]);
    check("a lifetime too many", |bad| bad.lifetimes_ms = vec![8, 8]);
    check("unknown kind", |bad| bad.kinds[2] = 7);
    check("a kind beyond integers", |bad| bad.kinds[2] = u32::MAX);
    check("a client that is not sampled", |bad| {
        bad.columns[0].clients[1] = u64::MAX
    });
    check("no clients", |bad| bad.columns.clear());
    check("a key twice", |bad| bad.columns.push(bad.columns[0].clone()));
    check("long ago", |bad| bad.at_ms[0] = -4_000_000);
    check("far ahead", |bad| bad.at_ms[0] = 4_000_000);
    check("beyond time", |bad| bad.at_ms = vec![i64::MIN, 0, 0]);
    check("beyond time, in steps", |bad| bad.at_ms = vec![-1, i64::MIN, i64::MIN]);
    check("a sketch that is none", |bad| bad.columns[0].distinct = vec![7; 100]);
    check("a long list", |bad| bad.columns[0].heavy = (0..33).map(heavy).collect());
    check("a heavy client twice", |bad| {
        bad.columns[0].heavy = vec![heavy(1), heavy(1)]
    });
    check("an error above the flows", |bad| bad.columns[0].heavy[0].error = 21);
    check("a heavy client without flows", |bad| {
        (bad.columns[0].heavy[0].opened, bad.columns[0].heavy[0].error) = (0, 0);
    });
    check("a heavy client's address", |bad| {
        bad.columns[0].heavy[0].address = vec![1]
    });
    check("nothing", |bad| *bad = v1::EndpointActivity::default());
    // The same place twice: the first counts.
    assert_eq!(activity(vec![good(), good()]), (activity(vec![good()]).0, 3));
}

#[test]
fn the_events_of_a_report_are_bounded() {
    let many = |cgroup_id, events| v1::EndpointActivity {
        cgroup_id,
        at_ms: vec![-1; events],
        kinds: vec![0; events],
        lifetimes_ms: vec![],
        columns: vec![v1::ClientColumn {
            key_id: 9,
            clients: vec![1; events],
            ..Default::default()
        }],
        ..good()
    };
    // Each at most an hour before the report.
    let (taken, invalid) = activity((0..5).map(|n| many(n, 60_000)).collect());
    assert_eq!((taken.len(), invalid), (3, 120_000));
    let (taken, invalid) = activity((0..5).map(|n| many(n, 40_000)).collect());
    assert_eq!((taken.len(), invalid), (5, 0));
    let (taken, invalid) = activity(vec![many(1, 200_001), many(2, 10)]);
    assert_eq!((taken.len(), invalid), (1, 200_001));
}

fn any_activity() -> impl Strategy<Value = v1::EndpointActivity> {
    let column = (
        0_u32..3,
        prop::collection::vec(any::<u64>(), 0..4),
        prop::collection::vec(any::<u8>(), 0..60),
        prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..4),
    );
    (
        prop::collection::vec(any::<i64>(), 0..4),
        prop::collection::vec(0_u32..9, 0..4),
        prop::collection::vec(any::<u64>(), 0..4),
        prop::collection::vec(column, 0..4),
        0_u32..40,
    )
        .prop_map(
            |(at_ms, kinds, lifetimes_ms, columns, sampling_shift)| v1::EndpointActivity {
                at_ms,
                kinds,
                lifetimes_ms,
                sampling_shift,
                columns: columns
                    .into_iter()
                    .map(|(key_id, clients, distinct, heavy)| v1::ClientColumn {
                        key_id,
                        clients,
                        distinct,
                        heavy: heavy
                            .into_iter()
                            .map(|(client, opened, error)| v1::HeavyClient {
                                client,
                                opened,
                                error,
                                address: vec![],
                            })
                            .collect(),
                    })
                    .collect(),
                ..good()
            },
        )
}

proptest! {
    #[test]
    fn whatever_is_taken_is_whole(found in prop::collection::vec(any_activity(), 0..4)) {
        let (taken, _) = activity(found);
        for (_, batch) in taken {
            for column in &batch.columns {
                prop_assert_eq!(column.clients.len(), batch.moments.len());
            }
            // Nor does the log break on it.
            let thinned = batch.thinned(batch.sampling_shift + 1);
            prop_assert!(thinned.moments.len() <= batch.moments.len());
        }
    }
}
