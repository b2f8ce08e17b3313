//! Batches of several endpoints become one sample.

use super::*;
use crate::analysis::{ClientEvent, ClientEventKind};
use crate::report::Estimate;
use proptest::prelude::*;

#[test]
fn events_come_in_order_of_time_from_all_places_and_with_what_happened() {
    let closed = Moment {
        lifetime_plus_1: 51,
        before_ms: 400,
        closed: Some(CloseCause::ServerRst),
    };
    let unknown = Moment {
        lifetime_plus_1: 0,
        before_ms: 100,
        closed: Some(CloseCause::Timeout),
    };
    let first = Batch {
        moments: [closed, unknown].into(),
        ..opens(2_000, &[1, 2])
    };
    let second = Batch {
        moments: [Moment {
            before_ms: 300,
            ..OPENED
        }]
        .into(),
        ..opens(2_000, &[3])
    };
    let places = [(4, vec![Arc::new(first)]), (9, vec![Arc::new(second)])];
    let found = gather(&places, KEY, 0, window(0, 2_000));
    let event = |at_ms, client, place, what| ClientEvent {
        at_ms,
        client,
        place,
        what,
    };
    let end = |cause, lifetime_ms| ClientEventKind::Closed { cause, lifetime_ms };
    assert_eq!(
        found.events,
        [
            event(1_600, 1, 4, end(CloseCause::ServerRst, Some(50))),
            event(1_700, 3, 9, ClientEventKind::Opened),
            event(1_900, 2, 4, end(CloseCause::Timeout, None)),
        ]
    );
    assert_eq!((found.sampling_shift, found.missing_batches), (0, 0));
    assert_eq!((found.distinct, found.distinct_by_place), (None, vec![None, None]));
    assert!(found.heavy.is_empty());
}

#[test]
fn only_what_was_asked_for_is_told() {
    let late = Batch {
        moments: [Moment {
            before_ms: 900,
            ..OPENED
        }]
        .into(),
        ..opens(5_500, &[2])
    };
    let batches = [opens(4_000, &[1]), late, opens(6_000, &[3]), opens(9_000, &[4])].map(Arc::new);
    let clients = |from_ms, to_ms| -> Vec<u64> {
        let found = gather(&[(0, batches.to_vec())], KEY, from_ms, window(from_ms, to_ms));
        found.events.iter().map(|event| event.client).collect()
    };
    assert_eq!(clients(4_000, 6_000), [1, 2, 3]);
    // Reported since, opened before.
    assert_eq!(clients(5_000, 6_000), [3]);
}

#[test]
fn a_batch_that_does_not_name_clients_under_the_key_is_missing() {
    let mut other = opens(1_000, &[1]);
    other.columns[0].key_id = KEY + 1;
    let found = gather_all(&[other, Batch::forgotten(1_500), opens(2_000, &[2])]);
    assert_eq!(found.missing_batches, 2);
    assert_eq!(found.events.len(), 1);
    // Before anybody asks, nothing is missing.
    let places = [(0, vec![Arc::new(Batch::forgotten(1_500))])];
    assert_eq!(gather(&places, KEY, 1_501, window(1_501, 9_000)).missing_batches, 0);
}

#[test]
fn addresses_are_told_once_and_as_people_write_them() {
    let told = |at_ms| {
        let mut batch = opens(at_ms, &[5]);
        batch.columns[0].heavy = vec![Heavy {
            client: 5,
            opened: 1,
            error: 0,
            address: Some("::ffff:192.0.2.7".parse().unwrap()),
        }];
        batch
    };
    let found = gather_all(&[told(1_000), told(2_000)]);
    assert_eq!(found.addresses, [(5, "192.0.2.7".to_owned())]);
}

#[test]
fn heavy_clients_of_sampled_batches_are_bounded_on_both_sides() {
    // The sample of the second is too small for anybody to be in it.
    let first = opens(1_000, &[1, 1, 1, 2, 2, 3]);
    let mut second = opens(2_000, &[]);
    second.sampling_shift = 20;
    second.columns[0].heavy = vec![Heavy {
        client: 1,
        opened: 10,
        error: 2,
        address: None,
    }];
    second.columns[0].unlisted = 4;
    let found = gather_all(&[first, second]);
    let heavy: Vec<(u64, u64, u64)> = found
        .heavy
        .iter()
        .map(|heavy| (heavy.client, heavy.opened, heavy.error))
        .collect();
    // The second opened 2 flows, and 4 more at most. The third, which no batch lists, is not heavy.
    assert_eq!(heavy, [(1, 13, 2), (2, 6, 4)]);
}

/// What agents with samples of different size tell of the same flows.
fn sampled(clients: &[u64], at_ms: u64, shift: u32) -> Batch {
    opens(at_ms, clients).thinned(shift)
}

proptest! {
    #[test]
    fn a_client_of_the_sample_is_told_whole_and_others_not_at_all(
        clients in prop::collection::vec(0_u64..50, 1..300),
        shifts in prop::collection::vec(0_u32..4, 1..6),
    ) {
        let clients: Vec<u64> = clients.into_iter().map(hash).collect();
        let parts: Vec<&[u64]> = clients.chunks(clients.len().div_ceil(shifts.len())).collect();
        let batches: Vec<Batch> = parts.iter().zip(&shifts).map(|(part, &shift)| sampled(part, 1_000, shift)).collect();
        let found = gather_all(&batches);
        let largest = shifts.iter().take(parts.len()).max().copied().unwrap_or(0);
        prop_assert_eq!(found.sampling_shift, largest);
        let told: Vec<u64> = found.events.iter().map(|event| event.client).collect();
        let expected: Vec<u64> = clients.iter().copied().filter(|&client| in_sample(client, largest)).collect();
        prop_assert_eq!(told, expected);
    }

    #[test]
    fn sketches_say_how_many_and_who_whatever_the_samples(
        counts in prop::collection::vec(1_usize..40, 1..60),
        shift in 1_u32..20,
    ) {
        // Each client opens so many flows; every second one comes in a report whose sample is smaller.
        let flows = counts.iter().enumerate().flat_map(|(n, &count)| std::iter::repeat_n(hash(n as u64), count));
        let (odd, even): (Vec<_>, Vec<_>) = flows.enumerate().partition(|(i, _)| i % 2 == 1);
        let clients = |part: Vec<(usize, u64)>| -> Vec<u64> { part.into_iter().map(|(_, client)| client).collect() };
        let found = gather_all(&[sampled(&clients(even), 1_000, 0), sampled(&clients(odd), 2_000, shift)]);
        let Estimate { low, high, value } = found.distinct.unwrap();
        let truth = counts.len() as f64;
        prop_assert!(low <= truth + 1e-9 && truth <= high + 0.01, "{} is not within {} and {}", truth, low, high);
        prop_assert!((value - truth).abs() < 0.5, "{value}");
        prop_assert_eq!(found.distinct_by_place, [found.distinct]);
        for heavy in found.heavy {
            let n = (0..counts.len()).find(|&n| hash(n as u64) == heavy.client).unwrap();
            let truth = counts[n] as u64;
            prop_assert!(heavy.opened - heavy.error <= truth && truth <= heavy.opened, "{:?} {}", heavy, truth);
        }
    }
}
