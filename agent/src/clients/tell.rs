//! From what was gathered to what is told: in, events and sketches by ledger key; out, events in order of time, with the hashes of
//! their clients under each key.

use std::{cmp::Reverse, collections::HashMap};

use flowskew_agent_ebpf::{Address, LedgerKey};

use super::{
    Column, EndpointActivity, HeavyClient,
    gather::{Event, Gathered, Log},
    keys::Keys,
    sketches::{Heavy, MAX_HEAVY},
};

/// What happened at each ledger key at which anything happened. `addresses`: heavy clients are told by address too, and also when
/// all clients are told.
pub fn tell(gathered: Gathered, addresses: bool) -> Vec<EndpointActivity> {
    let Gathered { keys, logs, .. } = gathered;
    (logs.into_iter())
        .filter(|(_, log)| log.used)
        .map(|(key, log)| endpoint(key, log, &keys, addresses))
        .collect()
}

fn endpoint(key: LedgerKey, mut log: Log, keys: &Keys, addresses: bool) -> EndpointActivity {
    // CPUs write to the ring side by side.
    log.events.sort_by_key(|event| event.at_ns);
    let mut columns: Vec<Column> = keys.ids().map(Column::of).collect();
    for event in &log.events {
        for (column, hash) in columns.iter_mut().zip(keys.hashes(&event.client)) {
            column.clients.push(hash);
        }
    }
    let mut heavy = Vec::new();
    if let Some(sketches) = &log.sketches {
        for (column, distinct) in columns.iter_mut().zip(sketches.distinct()) {
            column.distinct = distinct;
        }
        heavy = sketches.heavy();
    } else if addresses {
        heavy = counted(&log.events);
    }
    for client in &heavy {
        for (column, hash) in columns.iter_mut().zip(keys.hashes(&client.client)) {
            column.heavy.push(HeavyClient {
                client: hash,
                opened: client.opened,
                error: client.error,
                address: addresses.then_some(client.client),
            });
        }
    }
    EndpointActivity {
        key,
        shift: log.shift,
        events: log.events,
        columns,
    }
}

/// The clients that opened most, counted.
fn counted(events: &[Event]) -> Vec<Heavy> {
    let mut opens: HashMap<Address, u64> = HashMap::new();
    for event in events.iter().filter(|event| event.cause.is_none()) {
        *opens.entry(event.client).or_default() += 1;
    }
    let mut opens: Vec<_> = opens.into_iter().collect();
    opens.sort_unstable_by_key(|&(client, opened)| (Reverse(opened), client));
    (opens.into_iter().take(MAX_HEAVY))
        .map(|(client, opened)| Heavy {
            client,
            opened,
            error: 0,
        })
        .collect()
}
