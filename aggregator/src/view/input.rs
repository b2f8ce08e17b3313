//! Figures of one Service port enter; what the analysis is given leaves.

use std::sync::Arc;

use flowskew_proto::ages::lower_bound_ms;

use super::report::EXTERNAL;
use crate::analysis::{
    AffinityInput, AgesInput, ClientsInput, EndpointInput, FormerEndpoint, LoadInput, NodeInput, ServiceInput,
    WindowInput,
};
use crate::clients::{Batch, Gathered, gather};
use crate::ledger::FlowAges;
use crate::report::GoneState;
use crate::state::{EndpointFigures, Figures, GoneFigures, PortFigures};

pub(super) fn input(figures: &Figures, port: &PortFigures, window: usize) -> ServiceInput {
    let nodes = port.nodes.iter().map(|node| NodeInput {
        name: node.name.clone(),
        reporting: node.reporting,
        zone: node.zone.clone(),
    });
    let gathered = gathered(figures, port, window);
    let distinct = |position: usize| *gathered.as_ref()?.distinct_by_place.get(position)?;
    let endpoints = port.endpoints.iter().enumerate();
    let former = former(port).map(|gone| FormerEndpoint {
        pod: gone.pod.clone(),
        node: gone.node.clone(),
        since_ms: gone.unready_since_ms.or(gone.gone_ms),
        established: gone.tally.counts[EXTERNAL].established,
    });
    ServiceInput {
        service: port.service.to_string(),
        window: port.windows[window],
        asked_from_ms: figures.windows[window].span.from_ms,
        affinity: match port.affinity_timeout_seconds {
            None => AffinityInput::None,
            Some(seconds) => AffinityInput::ClientIp(seconds),
        },
        endpoints_changed_ms: port.endpoints_changed_ms,
        nodes: nodes.collect(),
        endpoints: endpoints
            .map(|(position, found)| EndpointInput {
                distinct: distinct(position),
                ..endpoint(found, window)
            })
            .collect(),
        former: former.collect(),
        windows: windows(figures, port),
        clients: gathered.map(|found| clients(found, port)),
    }
}

fn endpoint(endpoint: &EndpointFigures, window: usize) -> EndpointInput {
    EndpointInput {
        pod: endpoint.pod.clone(),
        node: endpoint.node,
        new: endpoint.tally.opened[window][EXTERNAL],
        established: endpoint.tally.counts[EXTERNAL].established,
        closed: endpoint.tally.closed[window],
        open_ms: endpoint.tally.open_ms[window],
        ready_since_ms: endpoint.ready_since_ms,
        ages: ages(&endpoint.ages),
        distinct: None,
        load: endpoint.load_rates[window].map(|rates| LoadInput {
            cpu_cores: rates.cpu_cores,
            throttled_share: rates.throttled_share,
            // Of the whole node they say nothing about the pod.
            listen_overflows: rates.listen_overflows.filter(|_| !rates.shares_network),
        }),
    }
}

/// Endpoints that have been the Service's, or may be again.
fn former(port: &PortFigures) -> impl Iterator<Item = &GoneFigures> {
    port.gone.iter().filter(|gone| gone.state != GoneState::OtherPod)
}

fn windows(figures: &Figures, port: &PortFigures) -> Vec<WindowInput> {
    let new = |window: usize| {
        port.endpoints
            .iter()
            .map(move |found| found.tally.opened[window][EXTERNAL])
    };
    let standard = figures.windows.iter().zip(&port.windows).enumerate();
    standard
        .filter_map(|(position, (asked, window))| {
            Some(WindowInput {
                seconds: asked.seconds?,
                window: *window,
                new: new(position).collect(),
            })
        })
        .collect()
}

/// The readings of all ledger keys, as one at the time of the newest: flows that were looked at before that are older by then.
fn ages(readings: &[Arc<FlowAges>]) -> Option<AgesInput> {
    let read_at_ms = readings.iter().map(|ages| ages.read_at_ms).max()?;
    let mut buckets: Vec<(f64, f64, u64)> = Vec::new();
    for ages in readings {
        let older_ms = (read_at_ms - ages.read_at_ms) as f64;
        buckets.extend(ages.buckets.iter().map(|&(bucket, flows)| {
            let bucket = u32::from(bucket);
            (
                lower_bound_ms(bucket) + older_ms,
                lower_bound_ms(bucket + 1) + older_ms,
                flows,
            )
        }));
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    buckets.dedup_by(|next, sum| {
        let same = (next.0, next.1) == (sum.0, sum.1);
        if same {
            sum.2 = sum.2.saturating_add(next.2);
        }
        same
    });
    Some(AgesInput {
        read_at_ms,
        buckets,
        unknown: readings.iter().fold(0, |sum, ages| sum.saturating_add(ages.unknown)),
    })
}

/// What clients did; `None` when nobody tells.
fn gathered(figures: &Figures, port: &PortFigures, window: usize) -> Option<Gathered> {
    let activity = port.endpoints.iter().map(|endpoint| &endpoint.activity);
    let activity: Vec<&Vec<Arc<Batch>>> = activity.chain(former(port).map(|gone| &gone.activity)).collect();
    if !port.shared_with.is_empty() || activity.iter().all(|batches| batches.is_empty()) {
        return None;
    }
    let places: Vec<(u32, Vec<Arc<Batch>>)> = (0..).zip(activity.into_iter().cloned()).collect();
    let asked_from_ms = figures.windows[window].span.from_ms;
    Some(gather(
        &places,
        figures.client_key?,
        asked_from_ms,
        port.windows[window],
    ))
}

fn clients(found: Gathered, port: &PortFigures) -> ClientsInput {
    // What found the kernel's ring full was never told.
    let lost = port
        .nodes
        .iter()
        .flat_map(|node| [node.losses.activity_dropped, node.losses.ring_full]);
    ClientsInput {
        sampling_shift: found.sampling_shift,
        events: found.events,
        heavy: found.heavy,
        distinct: found.distinct,
        missing: lost.fold(found.missing_batches, u64::saturating_add),
        addresses: found.addresses,
    }
}
