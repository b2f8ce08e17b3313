//! The whole of a Service's persistence, with numbers worked out by hand.

use super::super::shares::Split;
use super::super::{
    AgesInput, ClientEvent, ClientEventKind, ClientsInput, EndpointInput, FormerEndpoint, NodeInput, ServiceInput,
};
use super::*;
use crate::flow::CloseCause;
use crate::report::{FlowKind, Window};

const NOW: u64 = 100 * 3_600_000;

/// Two pods on one node, one of which came half an hour ago: 900 and 100 flows, each open for the whole hour of the window. `new`
/// flows of each opened within it, and `closed` of the first closed.
fn service(new: [u64; 2], closed: u64) -> ServiceInput {
    let pod = |i: usize| EndpointInput {
        pod: format!("gw-{i}"),
        new: new[i],
        established: [900, 100][i],
        closed: [closed, 0][i],
        open_ms: u128::from([900_u64, 100][i]) * 3_600_000,
        ready_since_ms: [None, Some(NOW - 1_800_000)][i],
        ages: Some(AgesInput {
            read_at_ms: NOW,
            buckets: [vec![(0.0, 1.6e6, 100), (7.2e6, 8.0e6, 750)], vec![(0.0, 1.6e6, 100)]][i].clone(),
            unknown: [50, 0][i],
        }),
        ..EndpointInput::default()
    };
    ServiceInput {
        service: "a/b".to_owned(),
        window: Window {
            from_ms: NOW - 3_600_000,
            to_ms: NOW,
        },
        asked_from_ms: NOW - 3_600_000,
        affinity: Default::default(),
        endpoints_changed_ms: Some(NOW - 1_800_000),
        nodes: vec![NodeInput {
            name: "n".to_owned(),
            reporting: true,
            zone: String::new(),
        }],
        endpoints: vec![pod(0), pod(1)],
        former: vec![FormerEndpoint {
            pod: "gw-9".to_owned(),
            established: 7,
            ..FormerEndpoint::default()
        }],
        windows: Vec::new(),
        clients: None,
    }
}

fn of(input: &ServiceInput) -> Persistence {
    persistence(input, &Split::of(input, FlowKind::New), EVEN_PEAK_RATIO).unwrap()
}

fn near(found: Option<f64>, expected: f64) {
    let found = found.unwrap();
    assert!((found / expected - 1.0).abs() < 1e-3, "{found}, not {expected}");
}

#[test]
fn flows_wane_as_they_close() {
    let found = of(&service([50, 50], 100));
    // 100 closes in 1,000 flow-hours. Garwood: 81.36 to 121.63.
    let hazard = found.hazard_per_hour.unwrap();
    assert_eq!((found.closes, found.flow_hours, found.left_on_gone), (100, 1000.0, 7));
    near(Some(hazard.value), 0.1);
    near(Some(hazard.low), 0.08136);
    near(Some(hazard.high), 0.12163);
    // Shares are 0.9 w + 0.5 (1 - w), below 0.6 at w = 1/4. 1000 are open and stay so at 100 an hour, so w = exp(-h t).
    near(found.hours_to_even, 10.0 * 4.0_f64.ln());
    let at = |h: f64| (h * 1000.0 * 3.0 / 100.0).ln_1p() / h;
    near(found.hours_to_even_low, at(0.12163));
    near(found.hours_to_even_high, at(0.08136));
    // 750 + 50 of 1,000 are older than half an hour.
    let before = found.before_change.unwrap();
    assert_eq!((before.low, before.value, before.high), (0.8, 0.8, 0.8));
    assert_eq!(found.endpoints[0].before_change.unwrap(), Estimate::exact(800.0));
    let median = found.endpoints[0].median_seconds.unwrap();
    assert_eq!((median.low, median.high), (7200.0, 8000.0));
    for part in [
        "Of 1,000 established flows half are older than about 2.1 h, and 80.0 % opened before the ready pods last changed 30 min ago",
        "; pod gw-1 came later and holds 10.0 % of them; 7 more flows still open on pods that are not ready any more",
        "each hour 10.0 % of the open flows, short and long ones together, close (100 closes seen), so their peak ratio of 1.80 is below 1.20 in about 14 h (",
        " if new flows stay as even as they are; a maximum connection age or a staggered restart",
    ] {
        assert!(found.sentence.contains(part), "{part} is not in {}", found.sentence);
    }
}

#[test]
fn nothing_closed_leaves_a_lower_end() {
    let found = of(&service([50, 50], 0));
    let hazard = found.hazard_per_hour.unwrap();
    assert_eq!((hazard.value, hazard.low), (0.0, 0.0));
    near(Some(hazard.high), 2.9957 / 1000.0);
    assert_eq!((found.hours_to_even, found.hours_to_even_high), (None, None));
    near(found.hours_to_even_low, (0.0029957_f64 * 30.0).ln_1p() / 0.0029957);
    assert!(
        found.sentence.contains("none closed in 1000.0 flow-hours"),
        "{}",
        found.sentence
    );
}

#[test]
fn uneven_new_flows_never_even_out() {
    let found = of(&service([900, 100], 100));
    assert_eq!(
        (found.hours_to_even, found.hours_to_even_low, found.hours_to_even_high),
        (None, None, None)
    );
    assert!(
        found.sentence.contains("for new flows are uneven too: "),
        "{}",
        found.sentence
    );
    let none = of(&service([0, 0], 100));
    assert_eq!(none.hours_to_even, None);
    assert!(
        none.sentence.contains("no flow opened within the window"),
        "{}",
        none.sentence
    );
}

#[test]
fn few_new_flows_are_not_taken_at_their_word() {
    // 9 of 10 would be uneven for good, if they were enough to tell.
    let found = of(&service([9, 1], 100));
    near(found.hours_to_even, 10.0 * (0.1_f64 * 1000.0 * 3.0 / 10.0).ln_1p());
    assert!(
        found
            .sentence
            .contains("equal shares of new flows, which are too few to measure"),
        "{}",
        found.sentence
    );
}

#[test]
fn even_unknown_and_empty_are_said() {
    let mut even = service([50, 50], 10);
    even.endpoints[0].established = 110;
    assert_eq!(of(&even).hours_to_even, Some(0.0));
    assert!(
        of(&even)
            .sentence
            .contains("even already: their peak ratio is 1.05, below 1.20"),
        "{}",
        of(&even).sentence
    );
    let mut few = service([50, 50], 10);
    (few.endpoints[0].established, few.endpoints[1].established) = (4, 2);
    assert_eq!(of(&few).hours_to_even, None);
    assert!(
        of(&few).sentence.contains("no more than chance"),
        "{}",
        of(&few).sentence
    );
    let mut silent = service([50, 50], 10);
    silent.nodes[0].reporting = false;
    assert_eq!(of(&silent).hours_to_even, None);
    let mut blind = service([50, 50], 10);
    blind.endpoints.iter_mut().for_each(|endpoint| endpoint.ages = None);
    assert_eq!(persistence(&blind, &Split::of(&blind, FlowKind::New), 1.2), None);
}

#[test]
fn the_order_of_endpoints_makes_no_difference() {
    let input = service([60, 40], 100);
    let mut turned = input.clone();
    turned.endpoints.reverse();
    let (a, mut b) = (of(&input), of(&turned));
    b.endpoints.reverse();
    assert_eq!(a, b);
}

/// `old` flows of the first pod that closed after half an hour of the window, and short ones that came and went within it.
fn with_closes(mut input: ServiceInput, old: u64, short: u64) -> ServiceInput {
    let closed = |lifetime_ms| ClientEvent {
        at_ms: NOW - 1_800_000,
        client: 1,
        place: 0,
        what: ClientEventKind::Closed {
            cause: CloseCause::ClientFin,
            lifetime_ms,
        },
    };
    let events = (0..old).map(|i| closed(if i % 2 == 0 { None } else { Some(3_600_000) }));
    input.clients = Some(ClientsInput {
        events: events.chain((0..short).map(|_| closed(Some(1_000)))).collect(),
        ..ClientsInput::default()
    });
    input.endpoints[0].closed = old + short;
    input
}

#[test]
fn short_flows_do_not_hide_that_none_of_the_old_ones_closes() {
    let found = of(&with_closes(service([20_000, 20_000], 0), 0, 20_000));
    assert_eq!((found.closes, found.hours_to_even), (0, None));
    // 750 + 50 of the 1,000 were open when the window began.
    assert_eq!(found.flow_hours, 800.0);
    assert!(
        found
            .sentence
            .contains("none of those that were open when the window began closed"),
        "{}",
        found.sentence
    );
    // Without ages by flow they cannot be told apart, and the sentence says so.
    let mixed = of(&service([20_000, 20_000], 20_000));
    assert!(mixed.hours_to_even.unwrap() < 1.0);
    assert!(
        mixed.sentence.contains("short and long ones together"),
        "{}",
        mixed.sentence
    );
}

#[test]
fn the_rate_is_that_of_the_flows_that_were_open_when_the_window_began() {
    let found = of(&with_closes(service([50, 50], 0), 80, 1_000));
    // 800 open for an hour, 80 for half of one.
    assert_eq!((found.closes, found.flow_hours), (80, 840.0));
    near(found.hazard_per_hour.map(|hazard| hazard.value), 80.0 / 840.0);
    assert!(
        found
            .sentence
            .contains("of the flows that were open when the window began close (80 closes seen)"),
        "{}",
        found.sentence
    );
    let mut sampled = with_closes(service([50, 50], 0), 10, 100);
    sampled.clients.as_mut().unwrap().sampling_shift = 3;
    assert_eq!((of(&sampled).closes, of(&sampled).flow_hours), (80, 840.0));
    // What is missing may be closes.
    let mut missing = with_closes(service([50, 50], 0), 80, 1_000);
    missing.clients.as_mut().unwrap().missing = 1;
    assert_eq!(of(&missing).closes, 1_080);
}
