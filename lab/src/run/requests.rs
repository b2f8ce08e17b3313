//! What clients are asked to do. An `open` step enters; requests to the clients leave.

use std::ops::Range;

use crate::clients::{Lifetime, OpenFlows, Pick, Reconnect};
use crate::net::{Family, MAX_SOURCES};
use crate::scenario::spec::{LifetimeSpread, MAX_CLIENTS, MAX_NAT_ADDRESSES, Open};

/// The first of the addresses that many clients share; below it are those of single clients.
const FIRST_SHARED_ADDRESS: u64 = 100_000;

const _: () =
    assert!(MAX_CLIENTS <= FIRST_SHARED_ADDRESS && FIRST_SHARED_ADDRESS + MAX_NAT_ADDRESSES <= MAX_SOURCES as u64);

/// The flows from clients with an address of their own, and those from shared addresses; either can be none. Together
/// they have the rate of the step.
pub fn open(open: &Open, family: Family, seed: u64) -> [OpenFlows; 2] {
    let flows = open.flows.get();
    let (addresses, percent) = open.nat.map_or((0, 0), |nat| (nat.addresses.get(), nat.percent.get()));
    let shared = flows * percent / 100;
    [
        request(open, family, seed, flows - shared, 0..open.clients.get()),
        request(
            open,
            family,
            seed,
            shared,
            FIRST_SHARED_ADDRESS..FIRST_SHARED_ADDRESS + addresses,
        ),
    ]
}

fn request(open: &Open, family: Family, seed: u64, flows: u64, addresses: Range<u64>) -> OpenFlows {
    let lifetime = match (open.lifetime.map(|span| span.as_millis()), open.lifetime_spread) {
        (None, _) => Lifetime::Held,
        (Some(ms), LifetimeSpread::Fixed) => Lifetime::Fixed { ms },
        (Some(ms), LifetimeSpread::Exponential) => Lifetime::Exponential { mean_ms: ms as f64 },
    };
    OpenFlows {
        group: open.group.clone(),
        flows,
        // Asserted above: all numbers fit.
        sources: addresses
            .map(|n| family.client_source(u32::try_from(n).unwrap_or(0)))
            .collect(),
        pick: Pick::RoundRobin,
        rate: open
            .rate
            .map(|rate| rate.get() as f64 * flows as f64 / open.flows.get() as f64),
        lifetime,
        close: open.ends,
        reconnect: open.reconnect.as_ref().map(|reconnect| Reconnect {
            min_ms: reconnect.value.min.as_millis(),
            max_ms: reconnect.value.max.as_millis(),
        }),
        seed,
        ..OpenFlows::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn requests(yaml: &str) -> [OpenFlows; 2] {
        open(&serde_saphyr::from_str(yaml).unwrap(), Family::V4, 7)
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
}
