//! What clients are asked to do. An `open` step enters; requests to the clients leave.

use std::ops::Range;

use crate::clients::{Lifetime, OpenFlows, Pick, Reconnect};
use crate::net::{Family, MAX_SOURCES};
use crate::scenario::open::{LifetimeSpread, MAX_CLIENTS, MAX_NAT_ADDRESSES, Open, Order};

/// The first of the addresses that many clients share; below it are those of single clients.
const FIRST_SHARED_ADDRESS: u64 = 100_000;

/// Most attempts at the same time of a step that lasts for a time.
const CONCURRENCY_AT_A_RATE: usize = 512;

const _: () =
    assert!(MAX_CLIENTS <= FIRST_SHARED_ADDRESS && FIRST_SHARED_ADDRESS + MAX_NAT_ADDRESSES <= MAX_SOURCES as u64);

/// So many flows of the step: those from clients with an address of their own, and those from shared addresses; either can
/// be none. Together they have the rate of the step.
pub fn open(open: &Open, flows: u64, family: Family, seed: u64) -> [OpenFlows; 2] {
    let part = |of: u64| {
        open.rate
            .map(|rate| rate.get() as f64 * of as f64 / flows.max(1) as f64)
    };
    let seed = open.seed.as_ref().map_or(seed, |seed| seed.value.get());
    let (addresses, percent) = open.nat.map_or((0, 0), |nat| (nat.addresses.get(), nat.percent.get()));
    let shared = flows * percent / 100;
    [
        (flows - shared, 0..open.clients.get()),
        (shared, FIRST_SHARED_ADDRESS..FIRST_SHARED_ADDRESS + addresses),
    ]
    .map(|(flows, addresses)| OpenFlows {
        flows,
        rate: part(flows),
        seed,
        ..request(open, family, addresses, seed)
    })
}

fn request(open: &Open, family: Family, addresses: Range<u64>, seed: u64) -> OpenFlows {
    let lifetime = match (open.lifetime.map(|span| span.as_millis()), open.lifetime_spread) {
        (None, _) => Lifetime::Held,
        (Some(ms), LifetimeSpread::Fixed) => Lifetime::Fixed { ms },
        (Some(ms), LifetimeSpread::Exponential) => Lifetime::Exponential { mean_ms: ms as f64 },
    };
    OpenFlows {
        group: open.group.clone(),
        // Asserted above: all numbers fit.
        sources: addresses
            .map(|n| family.client_source(u32::try_from(n).unwrap_or(0)))
            .collect(),
        pick: match open.order {
            Order::InTurn => Pick::RoundRobin,
            Order::Shuffled => Pick::Shuffled { seed },
            Order::Random => Pick::Random,
        },
        lifetime,
        close: open.ends,
        reconnect: open.reconnect.as_ref().map(|reconnect| Reconnect {
            min_ms: reconnect.value.min.as_millis(),
            max_ms: reconnect.value.max.as_millis(),
        }),
        // Where the rate is all, a client that waits must not keep others from starting.
        concurrency: match open.time {
            Some(_) => CONCURRENCY_AT_A_RATE,
            None => OpenFlows::default().concurrency,
        },
        connect_timeout_ms: open
            .timeout
            .map_or(OpenFlows::default().connect_timeout_ms, |timeout| timeout.as_millis()),
        datagram_every_ms: open.datagram_every.as_ref().map(|every| every.value.as_millis()),
        ..OpenFlows::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn requests(yaml: &str) -> [OpenFlows; 2] {
        let step: Open = serde_saphyr::from_str(yaml).unwrap();
        open(&step, step.number(), Family::V4, 7)
    }

    #[test]
    fn shared_addresses_take_their_part_of_flows_and_rate() {
        let [own, shared] = requests("{flows: 1001, rate: 500, clients: 3, nat: {addresses: 2, percent: 40}}");
        assert_eq!([own.flows, shared.flows], [601, 400]);
        assert_eq!([own.sources.len(), shared.sources.len()], [3, 2]);
        assert!((own.rate.unwrap() + shared.rate.unwrap() - 500.0).abs() < 1e-9);
        let all: BTreeSet<_> = own.sources.iter().chain(&shared.sources).collect();
        assert_eq!(all.len(), 5, "no address is both");
    }

    #[test]
    fn without_sharing_there_is_one_request() {
        let [own, shared] = requests("{flows: 10, lifetime: 2s, lifetime_spread: exponential, ends: rst}");
        assert_eq!([own.flows, shared.flows], [10, 0]);
        assert_eq!(
            (own.rate, own.lifetime),
            (None, Lifetime::Exponential { mean_ms: 2_000.0 })
        );
        assert_eq!(own.close, crate::clients::CloseHow::Rst);
    }

    #[test]
    fn an_order_has_the_seed_of_the_step_or_one_of_its_own() {
        let pick = |yaml| {
            let [own, shared] = requests(yaml);
            assert_eq!((own.pick, own.seed), (shared.pick, shared.seed));
            (own.pick, own.seed)
        };
        assert_eq!(pick("{flows: 10}"), (Pick::RoundRobin, 7));
        assert_eq!(pick("{flows: 10, order: shuffled}"), (Pick::Shuffled { seed: 7 }, 7));
        assert_eq!(pick("{flows: 10, order: random, seed: 9}"), (Pick::Random, 9));
    }

    #[test]
    fn a_time_is_a_number_of_flows() {
        let [own, _] = requests("{for: 2s, rate: 500, lifetime: 0s, timeout: 3s}");
        assert_eq!((own.flows, own.rate), (1000, Some(500.0)));
        assert_eq!(
            (own.lifetime, own.connect_timeout_ms),
            (Lifetime::Fixed { ms: 0 }, 3000)
        );
    }
}
