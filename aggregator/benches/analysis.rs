//! How long the analysis takes on one core: one large Service, with and without what its clients did, and very many small ones.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use flowskew_aggregator::analysis::{
    AffinityInput, ClientEvent, ClientEventKind, ClientsInput, EndpointInput, NodeInput, ServiceInput, WindowInput,
    analyse,
};
use flowskew_aggregator::report::Window;

const END_MS: u64 = 3_600_000;

/// A repeatable number below `below` for each `i`: the finaliser of SplitMix64.
fn mixed(i: u64, below: u64) -> u64 {
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) % below
}

/// Endpoints on nodes of `largest` endpoints down to 1, over and over, with about `flows` flows each and the windows of 1, 5, 15
/// and 60 minutes.
fn service(name: usize, endpoints: usize, largest: usize, flows: u64) -> ServiceInput {
    let mut node_of = Vec::with_capacity(endpoints);
    let mut nodes = 0;
    while node_of.len() < endpoints {
        let on = largest - nodes % largest;
        node_of.extend(std::iter::repeat_n(nodes, on));
        nodes += 1;
    }
    node_of.truncate(endpoints);
    nodes = node_of.last().map_or(0, |last| last + 1);
    let flow = |e: usize, of: u64| of * 8 / 10 + mixed((name * 31 + e) as u64, of * 4 / 10 + 1);
    ServiceInput {
        service: format!("bench/service-{name}"),
        window: Window {
            from_ms: END_MS - 300_000,
            to_ms: END_MS,
        },
        asked_from_ms: END_MS - 300_000,
        affinity: AffinityInput::None,
        endpoints_changed_ms: None,
        nodes: (0..nodes)
            .map(|node| NodeInput {
                name: format!("node-{node}"),
                reporting: true,
                zone: ["a", "b", "c"][node % 3].to_owned(),
            })
            .collect(),
        endpoints: node_of
            .iter()
            .enumerate()
            .map(|(e, node)| EndpointInput {
                pod: format!("pod-{e}"),
                node: *node,
                new: flow(e, flows),
                established: flow(e, flows * 3),
                ..EndpointInput::default()
            })
            .collect(),
        former: Vec::new(),
        windows: [(60, 1), (300, 5), (900, 15), (3600, 60)]
            .map(|(seconds, times)| WindowInput {
                seconds,
                window: Window {
                    from_ms: END_MS - seconds * 1000,
                    to_ms: END_MS,
                },
                new: (0..endpoints).map(|e| flow(e, flows * times / 5)).collect(),
            })
            .into(),
        clients: None,
    }
}

/// The same, with its flows of `clients` clients told one by one.
fn with_clients(mut input: ServiceInput, clients: u64) -> ServiceInput {
    let places = input.endpoints.iter().enumerate();
    let mut events: Vec<ClientEvent> = places
        .flat_map(|(place, endpoint)| (0..endpoint.new).map(move |i| (place, i)))
        .map(|(place, i)| {
            let draw = place as u64 * 1_000_003 + i;
            ClientEvent {
                at_ms: END_MS - 1 - mixed(draw, 299_999),
                client: mixed(mixed(draw + 7, clients), u64::MAX),
                place: place as u32,
                what: ClientEventKind::Opened,
            }
        })
        .collect();
    events.sort_by_key(|event| event.at_ms);
    input.clients = Some(ClientsInput {
        events,
        ..ClientsInput::default()
    });
    input
}

fn large(criterion: &mut Criterion) {
    let plain = service(0, 1_000, 4, 20);
    let told = with_clients(plain.clone(), 5_000);
    let mut group = criterion.benchmark_group("one Service with 1,000 endpoints");
    group.bench_function("flow counts", |bench| bench.iter(|| analyse(black_box(&plain))));
    let events = told.clients.as_ref().map_or(0, |clients| clients.events.len());
    group.bench_function(format!("flow counts and {events} events of 5,000 clients"), |bench| {
        bench.iter(|| analyse(black_box(&told)));
    });
    group.finish();
}

fn many(criterion: &mut Criterion) {
    let services: Vec<ServiceInput> = (0..5_000).map(|name| service(name, 20, 3, 100)).collect();
    let mut group = criterion.benchmark_group("5,000 Services with 20 endpoints");
    group.sample_size(10);
    group.bench_function("flow counts", |bench| {
        bench.iter(|| {
            services
                .iter()
                .map(|input| analyse(black_box(input)))
                .filter(Result::is_ok)
                .count()
        });
    });
    group.finish();
}

criterion_group!(benches, large, many);
criterion_main!(benches);
