//! A view over many events is quick enough to be made whenever somebody asks.

use super::*;
use std::time::{Duration, Instant};

#[test]
fn twenty_thousand_events_take_milliseconds() {
    let pods = [3, 3, 1, 1, 1, 1, 1];
    let mut rng = Rng::with_seed(1);
    let mut proxy = Proxy::new(&pods, usize::MAX);
    let mut events = Vec::new();
    for i in 0..10_000 {
        let client = hash(rng.u64(..2000));
        let node = rng.usize(..pods.len());
        let place = proxy.open(&mut rng, client, node);
        events.push(opened(i * 100, client, place));
        events.push(closed(i * 100 + 50, client, place, Some(50)));
    }
    let mut input = with_events(service(&pods), events);
    input.affinity = AffinityInput::ClientIp(600);
    // The quickest of several: others use this machine too.
    let time = |_| {
        let begin = Instant::now();
        assert_eq!(view(&input).clients.flows, 10_000);
        begin.elapsed()
    };
    let quickest = (0..5).map(time).min().unwrap();
    // Released, it takes about 3 ms; a machine that is busy with other things takes longer.
    let allowed = if cfg!(debug_assertions) { 200 } else { 20 };
    assert!(quickest < Duration::from_millis(allowed), "{quickest:?}");
}
