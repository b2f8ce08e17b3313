//! Batches of several endpoints enter; what their clients did leaves, as one sample that all of the batches have told. Pure.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv6Addr;
use std::sync::Arc;

use super::batch::{Batch, Column, MAX_HEAVY, Summary, in_sample};
use super::sketch::Distinct;
use crate::analysis::{ClientEvent, HeavyInput};
use crate::report::{Estimate, Window};

/// What clients did at a set of endpoints.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gathered {
    /// k: of the clients whose hash is below 2^(64-k) everything is told, of the others nothing.
    pub sampling_shift: u32,
    /// In order of time.
    pub events: Vec<ClientEvent>,
    /// By endpoint, the clients that opened most flows within the window, sampled or not; at most [`MAX_HEAVY`] each. Empty when
    /// the shift is 0.
    pub heavy: Vec<HeavyInput>,
    /// Distinct clients that opened flows within the window. `None` when the shift is 0: the events say it; or when nobody
    /// knows.
    pub distinct: Option<Estimate>,
    /// The same for each of the places.
    pub distinct_by_place: Vec<Option<Estimate>>,
    /// Batches that do not name clients under the key asked for, or that were forgotten: their events are not in here.
    pub missing_batches: u64,
    /// Addresses of clients, as far as agents tell them; each client once.
    pub addresses: Vec<(u64, String)>,
}

/// Puts together what clients did since `asked_from_ms`, and within the window how many there were and which were heavy. Clients
/// are named by their hashes under one key. A place is what events call it, and its batches; no place twice.
///
/// A report's flows belong to the window in which it was taken, as in the ledger.
pub fn gather(places: &[(u32, Vec<Arc<Batch>>)], key_id: u32, asked_from_ms: u64, window: Window) -> Gathered {
    let mut found = Gathered::default();
    let mut told: Vec<(u32, Vec<(&Batch, &Column)>)> = Vec::with_capacity(places.len());
    for (place, batches) in places {
        let asked = batches
            .iter()
            .filter(|batch| (asked_from_ms..=window.to_ms).contains(&batch.at_ms));
        let mut with_column = Vec::new();
        for batch in asked {
            match batch.column(key_id) {
                Some(column) => with_column.push((&**batch, column)),
                None => found.missing_batches += 1,
            }
        }
        told.push((*place, with_column));
    }
    let all = || told.iter().flat_map(|(_, batches)| batches);
    found.sampling_shift = all().map(|(batch, _)| batch.sampling_shift).max().unwrap_or(0);
    let addresses: BTreeMap<u64, Ipv6Addr> = all()
        .flat_map(|(_, column)| &column.heavy)
        .filter_map(|heavy| Some((heavy.client, heavy.address?)))
        .collect();
    found.addresses = addresses
        .into_iter()
        .map(|(client, address)| (client, address.to_canonical().to_string()))
        .collect();
    for (place, batches) in &told {
        let events = batches
            .iter()
            .flat_map(|told| events(*place, *told, found.sampling_shift));
        found.events.extend(events.filter(|event| event.at_ms >= asked_from_ms));
    }
    found.events.sort_by_key(|event| event.at_ms);
    if found.sampling_shift == 0 {
        found.distinct_by_place = vec![None; places.len()];
        return found;
    }
    let mut everywhere = Distinct::default();
    for (place, batches) in &told {
        let mut here = Distinct::default();
        let mut heavy = HeavyClients::default();
        for (batch, column) in batches.iter().filter(|(batch, _)| batch.at_ms >= window.from_ms) {
            let summary = batch.summary(column);
            here.add(summary.distinct.as_ref());
            everywhere.add(summary.distinct.as_ref());
            heavy.add(&summary);
        }
        found.distinct_by_place.push(here.estimate());
        found.heavy.extend(heavy.most(*place));
    }
    found.distinct = everywhere.estimate();
    found
}

/// The events of a batch, of clients in the sample of this shift.
fn events<'a>(
    place: u32,
    (batch, column): (&'a Batch, &'a Column),
    shift: u32,
) -> impl Iterator<Item = ClientEvent> + use<'a> {
    let named = column.clients.iter().zip(&batch.moments);
    named
        .filter(move |(client, _)| in_sample(**client, shift))
        .map(move |(client, moment)| ClientEvent {
            at_ms: batch.at_ms.saturating_sub(moment.before_ms.into()),
            client: *client,
            place,
            what: moment.kind(),
        })
}

/// Heavy clients of one place, over several batches.
#[derive(Default)]
struct HeavyClients {
    clients: HashMap<u64, Listed>,
    /// What a client may have opened that no batch lists.
    unlisted: u64,
}

#[derive(Default)]
struct Listed {
    opened: u64,
    error: u64,
    /// As in [`HeavyClients`], of the batches that list it.
    unlisted: u64,
}

impl HeavyClients {
    fn add(&mut self, summary: &Summary) {
        self.unlisted = self.unlisted.saturating_add(summary.unlisted);
        for heavy in &summary.heavy {
            let listed = self.clients.entry(heavy.client).or_default();
            listed.opened = listed.opened.saturating_add(heavy.opened);
            listed.error = listed.error.saturating_add(heavy.error);
            listed.unlisted = listed.unlisted.saturating_add(summary.unlisted);
        }
    }

    /// Those that are sure to have opened most.
    fn most(self, place: u32) -> impl Iterator<Item = HeavyInput> {
        let unlisted = self.unlisted;
        let mut all: Vec<HeavyInput> = self
            .clients
            .into_iter()
            .map(|(client, listed)| {
                // In a batch that does not list it, it may have opened as many as that leaves out.
                let elsewhere = unlisted.saturating_sub(listed.unlisted);
                HeavyInput {
                    client,
                    place,
                    opened: listed.opened.saturating_add(elsewhere),
                    error: listed.error.saturating_add(elsewhere),
                }
            })
            .filter(|heavy| heavy.error < heavy.opened)
            .collect();
        all.sort_unstable_by_key(|heavy| (std::cmp::Reverse(heavy.opened - heavy.error), heavy.client));
        all.into_iter().take(MAX_HEAVY)
    }
}
