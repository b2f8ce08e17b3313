//! The worked examples of docs/analysis.md: each number in their tables is computed again.

use std::collections::BTreeMap;

use super::super::persistence::{EVEN_PEAK_RATIO, persistence};
use super::super::shares::Split;
use super::*;
use crate::report::{BalancerModel, Estimate, FlowKind};
use crate::{
    analysis::{AffinityInput, AgesInput, ClientEvent, ClientEventKind, ClientsInput},
    report::FindingCode,
};

const DOCUMENT: &str = include_str!("../../../../docs/analysis.md");

/// The table after a marker: rows of a figure and its value.
fn table(marker: &str) -> BTreeMap<&'static str, &'static str> {
    let (_, after) = DOCUMENT
        .split_once(&format!("<!-- worked: {marker} -->"))
        .unwrap_or_else(|| panic!("no example {marker} in docs/analysis.md"));
    let rows = after.lines().skip_while(|line| !line.starts_with("|---"));
    rows.skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (cells[1], cells[2])
        })
        .collect()
}

/// Each figure is in the table, with as many digits as are written there, and the table has no other.
fn check(marker: &str, figures: &[(&str, f64)]) {
    let table = table(marker);
    let mut wrong = Vec::new();
    for (name, value) in figures {
        let Some(written) = table.get(name) else {
            wrong.push(format!("| {name} | {value} | is not there"));
            continue;
        };
        let decimals = written.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let computed = format!("{value:.decimals$}");
        if computed != *written {
            wrong.push(format!("{name}: written {written}, computed {value}"));
        }
    }
    let names: Vec<&str> = figures.iter().map(|(name, _)| *name).collect();
    wrong.extend(
        table
            .keys()
            .filter(|name| !names.contains(name))
            .map(|name| format!("{name}: not computed")),
    );
    assert!(wrong.is_empty(), "{marker}:\n{}", wrong.join("\n"));
}

#[test]
fn placement() {
    let got = analysis(&new_flows(&[
        &[100, 100, 100],
        &[100, 100, 100],
        &[300],
        &[300],
        &[300],
        &[300],
        &[300],
    ]));
    let theil = got.new.theil.unwrap();
    let test = got.new.test.unwrap();
    assert_eq!(got.balancer.model, BalancerModel::EqualPerNode);
    assert_eq!(got.findings[0].code, FindingCode::PlacementSkew);
    check(
        "placement",
        &[
            ("peak ratio", got.new.peak_ratio.unwrap()),
            ("max/min", got.new.max_min.unwrap()),
            ("coefficient of variation", got.new.cv.unwrap()),
            ("Gini coefficient", got.new.gini.unwrap()),
            ("Jain index", got.new.jain.unwrap()),
            ("Theil index T", theil.total),
            ("of the load balancer", theil.load_balancer),
            ("of the placement", theil.placement),
            ("within nodes", theil.within_node),
            ("G = 2 X T", test.g),
            ("degrees of freedom", f64::from(test.degrees)),
            ("noise floor", got.new.noise_floor.unwrap()),
            (
                "ln Bayes factor of equal-per-node",
                got.balancer.log_bayes_factor.unwrap(),
            ),
            ("share of placement-skew", got.causes[0].share.unwrap()),
        ],
    );
}

/// Twelve clients of a node with two pods, eight bound to the first; each opens ten flows, in turn.
#[test]
fn pinning() {
    let mut input = new_flows(&[&[80, 40]]);
    input.affinity = AffinityInput::ClientIp(10_800);
    let event = |round: u64, client: u64| ClientEvent {
        at_ms: 1_000 + round * 1_000 + client,
        client,
        place: u32::from(client >= 8),
        what: ClientEventKind::Opened,
    };
    input.clients = Some(ClientsInput {
        events: (0..10)
            .flat_map(|round| (0..12).map(move |client| event(round, client)))
            .collect(),
        ..ClientsInput::default()
    });
    let got = analysis(&input);
    let clients = got.clients.unwrap();
    let tier = got.affinity.unwrap().pod_tier.unwrap();
    let kappa: Estimate = tier.kappa.unwrap();
    assert_eq!(got.findings[0].code, FindingCode::AffinityPinning);
    check(
        "pinning",
        &[
            ("peak ratio", got.new.peak_ratio.unwrap()),
            ("flows", got.new.flows as f64),
            ("effective flows", got.new.effective_flows),
            ("distinct clients", clients.distinct.value),
            ("effective clients", clients.effective.unwrap().value),
            ("share of the ten heaviest", clients.top_share.unwrap().value),
            ("pairs", tier.pairs as f64),
            ("observed", tier.observed),
            ("chance", tier.chance),
            ("kappa", kappa.value),
            ("lower end of kappa", kappa.low),
        ],
    );
}

/// Two pods, of which one came half an hour ago; nobody tells single flows.
#[test]
fn an_old_skew() {
    const HOUR: u64 = 3_600_000;
    let mut input = service(&[&[(50, 900), (50, 100)]]);
    (input.window.from_ms, input.window.to_ms, input.asked_from_ms) = (99 * HOUR, 100 * HOUR, 99 * HOUR);
    input.endpoints_changed_ms = Some(100 * HOUR - HOUR / 2);
    for (endpoint, (old, young)) in input.endpoints.iter_mut().zip([(800, 100), (0, 100)]) {
        endpoint.open_ms = u128::from(endpoint.established) * u128::from(HOUR);
        endpoint.ages = Some(AgesInput {
            read_at_ms: 100 * HOUR,
            buckets: vec![(0.0, 1.6e6, young), (7.2e6, 8.0e6, old)],
            unknown: 0,
        });
    }
    input.endpoints[0].closed = 100;
    let found = persistence(&input, &Split::of(&input, FlowKind::New), EVEN_PEAK_RATIO).unwrap();
    let hazard = found.hazard_per_hour.unwrap();
    check(
        "persistence",
        &[
            ("share from before the change", found.before_change.unwrap().value),
            ("closes", found.closes as f64),
            ("flow-hours", found.flow_hours),
            ("hazard an hour", hazard.value),
            ("its lower end", hazard.low),
            ("its upper end", hazard.high),
            ("hours to even", found.hours_to_even.unwrap()),
            ("at the earliest", found.hours_to_even_low.unwrap()),
            ("at the latest", found.hours_to_even_high.unwrap()),
        ],
    );
}
