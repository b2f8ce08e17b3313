//! Batches with fewer clients.

use super::*;

#[test]
fn samples_are_nested() {
    assert!(in_sample(u64::MAX, 0) && !in_sample(u64::MAX, 1));
    assert!(in_sample((1 << 63) - 1, 1) && !in_sample(1 << 63, 1));
    assert!(in_sample((1 << 32) - 1, MAX_SHIFT) && !in_sample(1 << 32, MAX_SHIFT));
    assert!(in_sample(0, MAX_SHIFT));
}

#[test]
fn a_smaller_sample_keeps_its_clients_and_says_who_is_gone() {
    let far = u64::MAX;
    let mut batch = opens(1_000, &[far, 1, far, 2, far]);
    // It closed one: nobody opened by that.
    batch.moments[1].closed = Some(CloseCause::ClientFin);
    let thinned = batch.thinned(3);
    let column = thinned.column(KEY).unwrap();
    assert_eq!((thinned.sampling_shift, &*column.clients), (3, &[1, 2][..]));
    assert_eq!(thinned.moments[0], batch.moments[1]);
    let heavy: Vec<(u64, u64)> = column.heavy.iter().map(|heavy| (heavy.client, heavy.opened)).collect();
    assert_eq!((heavy, column.unlisted), (vec![(far, 3)], 1));
    assert!((column.distinct.as_ref().unwrap().estimate() - 2.0).abs() < 0.01);
    // Once more: what the sketches say stays.
    let again = thinned.thinned(MAX_SHIFT);
    assert_eq!(again.column(KEY).unwrap().heavy, column.heavy);
    assert_eq!(again.column(KEY).unwrap().distinct, column.distinct);
    // A larger sample cannot be made of a smaller one.
    assert_eq!(thinned.thinned(1).sampling_shift, 3);
}

#[test]
fn a_client_that_is_in_the_sample_under_any_key_stays() {
    let mut batch = opens(1_000, &[u64::MAX, u64::MAX]);
    batch.columns.push(Column {
        key_id: KEY + 1,
        clients: [1, u64::MAX].into(),
        ..Column::default()
    });
    let thinned = batch.thinned(5);
    let clients: Vec<&[u64]> = thinned.columns.iter().map(|column| &*column.clients).collect();
    assert_eq!(clients, [&[u64::MAX][..], &[1][..]]);
    // Asked under the first key, that one is not in the sample.
    assert!(gather_all(&[thinned]).events.is_empty());
}

#[test]
fn of_many_heavy_clients_the_heaviest_are_listed() {
    let clients: Vec<u64> = (0..100)
        .flat_map(|n| std::iter::repeat_n(hash(n), 2 + n as usize))
        .collect();
    let thinned = opens(1_000, &clients).thinned(1);
    let column = thinned.column(KEY).unwrap();
    assert_eq!(column.heavy.len(), MAX_HEAVY);
    assert_eq!((column.heavy[0].client, column.heavy[0].opened), (hash(99), 101));
    assert_eq!(column.unlisted, 101 - MAX_HEAVY as u64);
}
