//! What agents tell of clients, and what is made of it: batches as an agent that samples would send them.

mod bound;
mod gathering;
mod rotation;
mod sketches;
mod thinning;

use std::net::Ipv6Addr;
use std::sync::Arc;

use super::*;
use crate::flow::{CloseCause, EndpointKey, Protocol};
use crate::ledger::LedgerKey;
use crate::report::Window;

/// The only key of most tests.
const KEY: u32 = 7;

/// Spreads numbers over the hash space, each its own place (D. Lea's and G. Steele's mix of SplittableRandom).
fn hash(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn ledger_key(n: u16) -> LedgerKey {
    LedgerKey {
        endpoint: EndpointKey {
            address: Ipv6Addr::LOCALHOST,
            port: n,
            protocol: Protocol::Tcp,
        },
        cgroup_id: 1,
    }
}

const OPENED: Moment = Moment {
    lifetime_plus_1: 0,
    before_ms: 0,
    closed: None,
};

/// One flow of each of these clients opened, under one key, at the time of the report.
fn opens(at_ms: u64, clients: &[u64]) -> Batch {
    Batch {
        at_ms,
        sampling_shift: 0,
        moments: clients.iter().map(|_| OPENED).collect(),
        columns: vec![Column {
            key_id: KEY,
            clients: clients.into(),
            ..Column::default()
        }],
    }
}

fn window(from_ms: u64, to_ms: u64) -> Window {
    Window { from_ms, to_ms }
}

/// Of one place, all of it.
fn gather_all(batches: &[Batch]) -> Gathered {
    let batches = batches.iter().cloned().map(Arc::new).collect();
    gather(&[(0, batches)], KEY, 0, window(0, u64::MAX))
}
