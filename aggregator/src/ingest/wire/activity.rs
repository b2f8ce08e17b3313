//! Single flows of an agent's clients: checked, bounded, and made of plain types.

use std::collections::HashSet;

use flowskew_proto::v1;

use super::entry::{address, place};
use crate::clients::{Batch, Column, Heavy, KEEP_MS, MAX_HEAVY, MAX_SHIFT, Moment, in_sample, sketch};
use crate::flow::CloseCause;
use crate::ledger::LedgerKey;

/// Events of one report that are read.
const MAX_EVENTS: usize = 200_000;
/// Keys under which clients are named at once: two while one takes over, and one that an agent learns of late.
const MAX_COLUMNS: usize = 3;

/// What makes sense, each ledger key once, and how many events were left out.
pub(super) fn activity(found: Vec<v1::EndpointActivity>) -> (Vec<(LedgerKey, Batch)>, u64) {
    let mut left = MAX_EVENTS;
    let mut invalid = 0;
    let mut seen = HashSet::new();
    let mut taken = Vec::with_capacity(found.len());
    for found in found {
        // One without events may have a sketch.
        let events = found.kinds.len();
        match batch(&found).filter(|(key, _)| events <= left && seen.insert(*key)) {
            Some(batch) => {
                left -= events;
                taken.push(batch);
            }
            None => invalid += events.max(1) as u64,
        }
    }
    (taken, invalid)
}

/// The batch, its time yet to be set: whoever takes the report knows the clock. `None` for one that makes no sense.
fn batch(found: &v1::EndpointActivity) -> Option<(LedgerKey, Batch)> {
    let events = found.kinds.len();
    let key = LedgerKey {
        endpoint: place(&found.address, found.port, found.protocol)?,
        cgroup_id: found.cgroup_id,
    };
    let shift = found.sampling_shift;
    let is_sane = shift <= MAX_SHIFT
        && found.at_ms.len() == events
        && (1..=MAX_COLUMNS).contains(&found.columns.len())
        && found.columns.iter().all(|column| column.clients.len() == events);
    if !is_sane {
        return None;
    }
    let columns: Vec<Column> = found
        .columns
        .iter()
        .map(|found| column(found, shift))
        .collect::<Option<_>>()?;
    let ids: HashSet<u32> = columns.iter().map(|column| column.key_id).collect();
    let is_sampled = |event: usize| {
        let mut clients = columns.iter().filter_map(|column| column.clients.get(event));
        clients.any(|&client| in_sample(client, shift))
    };
    if ids.len() < columns.len() || !(0..events).all(is_sampled) {
        return None;
    }
    let batch = Batch {
        at_ms: 0,
        sampling_shift: shift,
        moments: moments(found)?,
        columns,
    };
    Some((key, batch))
}

fn moments(found: &v1::EndpointActivity) -> Option<Box<[Moment]>> {
    let mut lifetimes = found.lifetimes_ms.iter();
    let mut since_report_ms: i64 = 0;
    let mut moments = Vec::with_capacity(found.kinds.len());
    for (&step_ms, &kind) in found.at_ms.iter().zip(&found.kinds) {
        since_report_ms = since_report_ms.checked_add(step_ms)?;
        if since_report_ms.unsigned_abs() > KEEP_MS {
            return None;
        }
        let closed = cause(kind)?;
        moments.push(Moment {
            lifetime_plus_1: if closed.is_some() { *lifetimes.next()? } else { 0 },
            // What happens while a report is made is told with it.
            before_ms: u32::try_from((-since_report_ms).max(0)).ok()?,
            closed,
        });
    }
    lifetimes.next().is_none().then(|| moments.into())
}

/// How an event closed a flow; the inner `None`: it opened one. The outer: no such event.
fn cause(kind: u32) -> Option<Option<CloseCause>> {
    let Some(cause) = kind.checked_sub(1) else {
        return Some(None);
    };
    Some(Some(
        match v1::CloseCause::try_from(i32::try_from(cause).ok()?).ok()? {
            v1::CloseCause::Unspecified => CloseCause::Other,
            v1::CloseCause::ClientFin => CloseCause::ClientFin,
            v1::CloseCause::ServerFin => CloseCause::ServerFin,
            v1::CloseCause::ClientRst => CloseCause::ClientRst,
            v1::CloseCause::ServerRst => CloseCause::ServerRst,
            v1::CloseCause::Timeout => CloseCause::Timeout,
        },
    ))
}

fn column(found: &v1::ClientColumn, shift: u32) -> Option<Column> {
    if found.heavy.len() > MAX_HEAVY {
        return None;
    }
    let heavy: Vec<Heavy> = found.heavy.iter().map(heavy).collect::<Option<_>>()?;
    let clients: HashSet<u64> = heavy.iter().map(|heavy| heavy.client).collect();
    if clients.len() < heavy.len() {
        return None;
    }
    let is_full = heavy.len() == MAX_HEAVY;
    let least = heavy.iter().map(|heavy| heavy.opened).min().filter(|_| is_full);
    let error = heavy.iter().map(|heavy| heavy.error).max().unwrap_or(0);
    Some(Column {
        key_id: found.key_id,
        clients: found.clients.clone().into(),
        distinct: match (shift, &found.distinct) {
            // The events say it.
            (0, _) => None,
            (_, bytes) if bytes.is_empty() => None,
            (_, bytes) => Some(sketch::decode(bytes)?),
        },
        // A client without a place in the list opened no more than the last of a full one; else no more than the sketch behind
        // the list may have missed, or a flow that makes nobody heavy.
        unlisted: least.unwrap_or(error.max(1)),
        heavy,
    })
}

fn heavy(found: &v1::HeavyClient) -> Option<Heavy> {
    let is_sane = found.opened > 0 && found.error <= found.opened;
    is_sane.then_some(())?;
    Some(Heavy {
        client: found.client,
        opened: found.opened,
        error: found.error,
        address: if found.address.is_empty() {
            None
        } else {
            Some(address(&found.address)?)
        },
    })
}

#[cfg(test)]
mod tests;
