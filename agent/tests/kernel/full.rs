//! Maps that are full: counts stay exact, and losses are counted.

use std::{collections::HashSet, net::Ipv4Addr};

use flowskew_agent::config::MapSizes;
use flowskew_agent_ebpf::PROTOCOL_TCP;

use crate::common::{SIZES, counting, counts, endpoint, listen, open};

#[test]
fn when_flows_is_full_opened_and_closed_stay_exact_and_the_loss_is_counted() {
    let Some(kernel) = counting(&MapSizes { max_flows: 64, ..SIZES }) else {
        return;
    };
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 6));
    let flows: Vec<_> = (0..200).map(|_| open(&listener, address)).collect();
    let full = kernel.snapshot().expect("counters").losses.flows_full;
    assert!(
        full >= 136,
        "64 fit, and other tests of this machine may take some: {full}"
    );
    assert_eq!(
        (counts(&kernel, address).opened, counts(&kernel, address).established),
        (200, 200)
    );
    for (client, server) in flows {
        drop(client);
        drop(server);
    }
    let end = counts(&kernel, address);
    assert_eq!(
        (end.opened, end.established, end.closed.iter().sum::<u64>()),
        (200, 0, 200)
    );
    assert!(kernel.snapshot().expect("counters").losses.orphan_close >= 136);
}

#[test]
fn when_the_ledger_is_full_the_loss_is_counted() {
    let Some(kernel) = counting(&MapSizes { max_ledger: 1, ..SIZES }) else {
        return;
    };
    let flows: Vec<_> = (0..8).map(|_| listen(Ipv4Addr::new(127, 9, 0, 7))).collect();
    let _open: Vec<_> = flows
        .iter()
        .map(|(listener, address)| open(listener, *address))
        .collect();
    let snapshot = kernel.snapshot().expect("counters");
    assert!(snapshot.losses.ledger_full >= 7, "{:?}", snapshot.losses);
    assert_eq!(snapshot.entries.len(), 1);
}

#[test]
fn when_the_ring_is_full_counts_stay_exact_and_the_loss_is_counted() {
    let Some(mut kernel) = counting(&MapSizes {
        ring_bytes: 4_096,
        ..SIZES
    }) else {
        return;
    };
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 8));
    let key = endpoint(address, PROTOCOL_TCP);
    kernel.watch(&HashSet::from([key])).expect("watches");
    let mut ring = kernel.take_events().expect("a ring");
    for _ in 0..100 {
        drop(open(&listener, address));
    }
    let mut read = 0;
    while ring.next().is_some() {
        read += 1;
    }
    let snapshot = kernel.snapshot().expect("counters");
    assert_eq!(counts(&kernel, address).opened, 100);
    assert!(read < 200, "the ring did overflow: {read}");
    assert_eq!(
        read + snapshot.losses.ring_full,
        200,
        "each event was told or counted as lost"
    );
}
