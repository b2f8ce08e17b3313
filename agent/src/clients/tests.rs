//! Streams of flows go in at the sink, and what comes out at reports is held against the streams themselves.

use std::collections::{HashMap, HashSet};

use datasketches::{common::NumStdDev, hll::HllSketch};
use fastrand::Rng;
use flowskew_agent_ebpf::{Flow, PROTOCOL_TCP, close_cause};
use proptest::prelude::*;

use super::{
    gather::{MAX_LEDGER_KEYS, MAX_SHIFT},
    keys::Keys,
    sketches::MAX_HEAVY,
    *,
};

const FIRST: ClientKey = ClientKey { id: 11, key: [1; 16] };
const SECOND: ClientKey = ClientKey { id: 22, key: [2; 16] };

fn address(number: u64) -> Address {
    let mut address = [0; 16];
    address[8..].copy_from_slice(&number.to_be_bytes());
    address
}

fn ledger_key(number: u64) -> LedgerKey {
    LedgerKey {
        cgroup_id: number,
        port: 80,
        protocol: PROTOCOL_TCP,
        ..LedgerKey::default()
    }
}

fn record(endpoint: u64, client: u64, at_ns: u64, cause: Option<u8>) -> FlowEvent {
    FlowEvent {
        flow: Flow {
            key: ledger_key(endpoint),
            client: address(client),
            opened_at_ns: 1,
            source_class: source_class::EXTERNAL,
            ..Flow::default()
        },
        at_ns,
        kind: cause.map_or(event_kind::OPENED, |_| event_kind::CLOSED),
        cause: cause.unwrap_or(0),
        padding: [0; 6],
    }
}

/// Gathers with these keys from the first event on.
fn clients(most: usize, addresses: bool, keys: &[ClientKey]) -> Clients {
    let mut clients = Clients::new(most, addresses);
    clients.set_keys(keys);
    assert_eq!(clients.take().endpoints, []);
    clients
}

/// Opens and closes of a few endpoints: some clients much heavier than others, times not quite in order.
fn stream(random: &mut Rng, events: u64, clients: u64) -> Vec<FlowEvent> {
    (0..events)
        .map(|number| {
            let client = random.u64(0..clients).min(random.u64(0..clients));
            let cause = random.bool().then_some(close_cause::CLIENT_FIN);
            let endpoint = random.u64(0..3).min(random.u64(0..3));
            record(endpoint, client, 1_000 + 10 * number + random.u64(0..30), cause)
        })
        .collect()
}

fn of_endpoint<'a>(stream: &'a [FlowEvent], key: &'a LedgerKey) -> impl Iterator<Item = &'a FlowEvent> {
    stream.iter().filter(move |record| record.flow.key == *key)
}

/// All of the clients in the sample, and none of the others.
fn holds_the_sample(told: &EndpointActivity, stream: &[FlowEvent], keys: &[ClientKey]) {
    let keys = Keys::new(keys);
    let mut expected: Vec<_> = of_endpoint(stream, &told.key)
        .filter(|record| keys.samples(&record.flow.client, told.shift))
        .collect();
    expected.sort_by_key(|record| record.at_ns);
    assert_eq!(told.events.len(), expected.len(), "shift {}", told.shift);
    for (event, record) in told.events.iter().zip(&expected) {
        let cause = (record.kind == event_kind::CLOSED).then_some(record.cause);
        assert_eq!(
            (event.at_ns, event.client, event.cause),
            (record.at_ns, record.flow.client, cause)
        );
    }
    assert_eq!(
        keys.ids().collect::<Vec<_>>(),
        told.columns.iter().map(|column| column.key_id).collect::<Vec<_>>()
    );
    for (index, column) in told.columns.iter().enumerate() {
        let hashes = expected
            .iter()
            .map(|record| keys.hashes(&record.flow.client).nth(index));
        assert!(column.clients.iter().copied().map(Some).eq(hashes));
    }
}

/// The sketches are of all opens, whoever was told.
fn holds_the_sketches(told: &EndpointActivity, stream: &[FlowEvent], keys: &[ClientKey]) {
    let keys = Keys::new(keys);
    let mut opens: HashMap<Address, u64> = HashMap::new();
    for record in of_endpoint(stream, &told.key).filter(|record| record.kind == event_kind::OPENED) {
        *opens.entry(record.flow.client).or_default() += 1;
    }
    let all: u64 = opens.values().sum();
    for (index, column) in told.columns.iter().enumerate() {
        if told.shift == 0 {
            assert!(column.distinct.is_empty() && column.heavy.is_empty());
            continue;
        }
        let sketch = HllSketch::deserialize(&column.distinct).expect("a sketch");
        let bounds = sketch.lower_bound(NumStdDev::Three) * 0.95..=sketch.upper_bound(NumStdDev::Three) * 1.05;
        assert!(bounds.contains(&(opens.len() as f64)), "{} in {bounds:?}", opens.len());
        let by_hash: HashMap<u64, u64> = (opens.iter())
            .filter_map(|(client, count)| Some((keys.hashes(client).nth(index)?, *count)))
            .collect();
        for heavy in &column.heavy {
            let truth = by_hash.get(&heavy.client).copied().unwrap_or(0);
            assert!(
                (heavy.opened - heavy.error..=heavy.opened).contains(&truth),
                "{truth}: {heavy:?}"
            );
            assert!(heavy.error as f64 <= 3.5 / 256.0 * all as f64, "{heavy:?} of {all}");
        }
        assert!(column.heavy.len() <= MAX_HEAVY && column.heavy.is_sorted_by(|a, b| a.opened >= b.opened));
        let told_heavy: HashSet<_> = column.heavy.iter().map(|heavy| heavy.client).collect();
        let must_be_told = (by_hash.iter()).filter(|(_, count)| **count * 20 > all);
        for (client, count) in must_be_told {
            assert!(told_heavy.contains(client), "{count} of {all} are missing");
        }
    }
}

#[test]
fn with_room_for_all_each_event_is_told_exactly() {
    let keys = [FIRST, SECOND];
    let mut clients = clients(10_000, false, &keys);
    let mut sink = clients.sink();
    let stream = stream(&mut Rng::with_seed(3), 5_000, 400);
    stream.iter().for_each(&mut *sink);
    let activity = clients.take();
    assert_eq!(activity.endpoints.len(), 3);
    for told in &activity.endpoints {
        assert_eq!(told.shift, 0);
        holds_the_sample(told, &stream, &keys);
        holds_the_sketches(told, &stream, &keys);
    }
    let expected = Totals {
        events: 5_000,
        ..Totals::default()
    };
    assert_eq!(clients.totals(), expected);
    assert_eq!(clients.take().endpoints, [], "nothing is told twice");
}

#[test]
fn only_external_clients_are_told() {
    let mut clients = clients(10, false, &[FIRST]);
    let mut sink = clients.sink();
    let mut event = record(1, 1, 1, None);
    for class in [source_class::UNCLASSIFIED, source_class::POD, source_class::NODE] {
        event.flow.source_class = class;
        sink(&event);
    }
    event.flow.source_class = source_class::EXTERNAL;
    event.kind = 99;
    sink(&event);
    assert_eq!(clients.take().endpoints, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever was thinned when, what is told is what a sample of that size from the start would have told, over several
    /// reports.
    #[test]
    fn too_many_clients_are_sampled_whole(seed: u64, most in 20_usize..3_000, two in any::<bool>()) {
        let keys = if two { vec![FIRST, SECOND] } else { vec![FIRST] };
        let mut random = Rng::with_seed(seed);
        let mut clients = clients(most, false, &keys);
        let mut sink = clients.sink();
        for _ in 0..4 {
            let events = random.u64(0..6_000);
            let stream = stream(&mut random, events, 1_500);
            stream.iter().for_each(&mut *sink);
            let activity = clients.take();
            let held: usize = activity.endpoints.iter().map(|told| told.events.len()).sum();
            prop_assert!(held <= most, "{} of {}", held, most);
            let seen: HashSet<_> = stream.iter().map(|record| record.flow.key).collect();
            prop_assert_eq!(activity.endpoints.len(), seen.len());
            for told in &activity.endpoints {
                holds_the_sample(told, &stream, &keys);
                holds_the_sketches(told, &stream, &keys);
            }
        }
        prop_assert_eq!(clients.totals().dropped, 0);
    }
}

#[test]
fn when_it_is_quiet_again_all_clients_are_told_again() {
    let mut clients = clients(100, false, &[FIRST]);
    let mut sink = clients.sink();
    for client in 0..5_000 {
        sink(&record(1, client, client, None));
    }
    let shift = clients.take().endpoints[0].shift;
    assert!((5..9).contains(&shift), "5,000 clients in a room for 100: {shift}");
    assert_eq!(clients.totals().shift, shift);
    // The flood was not quiet, so the report after it still tells as few; each with one event is.
    for expected in (0..=shift).rev() {
        sink(&record(1, 1, 1, None));
        let told = clients.take();
        assert_eq!(told.endpoints[0].shift, expected);
    }
    assert_eq!(clients.totals().shift, 0);
}

#[test]
fn keys_change_with_a_report_and_without_keys_nothing_is_lost() {
    let mut clients = Clients::new(100, false);
    let mut sink = clients.sink();
    let mut ids_after = |keys: Option<&[ClientKey]>| {
        sink(&record(1, 1, 1, None));
        if let Some(keys) = keys {
            clients.set_keys(keys);
        }
        sink(&record(1, 2, 2, None));
        let told = clients.take();
        assert_eq!(clients.totals().dropped, 0);
        let columns = told.endpoints.first().map(|told| &told.columns);
        (columns.into_iter().flatten())
            .map(|column| (column.key_id, column.clients.len()))
            .collect::<Vec<_>>()
    };
    assert_eq!(ids_after(None), []);
    assert_eq!(ids_after(Some(&[FIRST])), []);
    assert_eq!(ids_after(Some(&[FIRST, SECOND])), [(11, 2)]);
    assert_eq!(ids_after(Some(&[SECOND])), [(11, 2), (22, 2)]);
    assert_eq!(ids_after(Some(&[])), [(22, 2)]);
    assert_eq!(ids_after(None), []);
}

#[test]
fn addresses_are_told_of_heavy_clients_when_that_is_allowed() {
    let opens = |clients: &Clients| {
        let mut sink = clients.sink();
        for client in 0..40_u64 {
            for at in 0..=client {
                sink(&record(1, client, at, None));
            }
            sink(&record(1, client, 99, Some(close_cause::OTHER)));
        }
    };
    let mut quiet = clients(10_000, false, &[FIRST]);
    opens(&quiet);
    assert_eq!(quiet.take().endpoints[0].columns[0].heavy, []);
    let mut telling = clients(10_000, true, &[FIRST]);
    opens(&telling);
    let told = telling.take();
    let heavy = &told.endpoints[0].columns[0].heavy;
    assert_eq!(heavy.len(), MAX_HEAVY);
    assert_eq!(
        (heavy[0].opened, heavy[0].error, heavy[0].address),
        (40, 0, Some(address(39)))
    );
    assert_eq!(Some(heavy[0].client), Keys::new(&[FIRST]).hashes(&address(39)).next());
    let mut sampling = clients(100, true, &[FIRST]);
    opens(&sampling);
    let told = sampling.take();
    assert_eq!(told.endpoints[0].columns[0].heavy[0].address, Some(address(39)));
}

#[test]
fn a_flood_of_addresses_takes_no_more_room_than_the_bounds_allow() {
    let most = 500;
    let mut gathering = Gathering::new(most);
    gathering.set_keys(&[FIRST]);
    gathering.take();
    let mut random = Rng::with_seed(5);
    let endpoints = MAX_LEDGER_KEYS as u64 + 10;
    for round in 0..6 {
        // The endpoints one after another, so that each in turn has the most events.
        for endpoint in 0..endpoints {
            for at in 0..40 {
                let event = Event {
                    at_ns: at,
                    opened_at_ns: at,
                    client: address(random.u64(..)),
                    cause: None,
                };
                gathering.offer(&ledger_key(endpoint), event);
            }
        }
        let gathered = gathering.take();
        assert_eq!(gathered.logs.len(), MAX_LEDGER_KEYS);
        assert_eq!(gathered.dropped, (round + 1) * 400, "what found no ledger key");
        let held: usize = gathered.logs.iter().map(|(_, log)| log.events.len()).sum();
        let room: usize = gathered.logs.iter().map(|(_, log)| log.events.capacity()).sum();
        assert!(held <= most, "{held} events");
        // The smallest list has room for four.
        assert!(room <= 2 * most + 4 * MAX_LEDGER_KEYS, "room for {room} events");
    }
    // Endpoints at which nothing happens any more make room for others.
    for _ in 0..MAX_SHIFT {
        gathering.take();
    }
    assert_eq!(gathering.take().logs.len(), 0);
}

#[test]
fn what_finds_no_room_at_all_is_counted() {
    let mut clients = clients(0, false, &[FIRST]);
    let mut sink = clients.sink();
    for at in 0..7 {
        sink(&record(1, at, at, None));
    }
    assert!(clients.take().endpoints.iter().all(|told| told.events.is_empty()));
    assert_eq!((clients.totals().events, clients.totals().dropped), (0, 7));
}
