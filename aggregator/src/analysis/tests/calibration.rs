//! Calibration: on samples drawn from a known truth, how often is the analysis right? Seeded, hence repeatable.

use super::draws::{Binds, Draws};
use super::*;
use crate::analysis::significance::{REJECT, g_test};
use crate::report::{BalancerModel, FindingCode};

const CROWDED: [usize; 7] = [3, 3, 1, 1, 1, 1, 1];
const SPREAD: [usize; 11] = [1; 11];
const RUNS: u64 = 2_000;

fn weighted(pods: &[usize]) -> Vec<f64> {
    let all: usize = pods.iter().sum();
    pods.iter().map(|n| *n as f64 / all as f64).collect()
}

fn alarm(got: &Analysis) -> bool {
    got.new.significant || got.findings.iter().any(|finding| finding.code.is_fault())
}

#[test]
fn even_services_alarm_at_most_once_in_a_hundred() {
    let mut draws = Draws(0x5eed_0001);
    for flows in [30, 60, 300, 3_000, 30_000] {
        for pods in [&SPREAD[..], &CROWDED] {
            let alarms = draws.hits(RUNS, (pods, &weighted(pods), flows), alarm);
            assert!(
                alarms * 100 <= RUNS,
                "{alarms} false alarms in {RUNS} runs of {flows} flows over {pods:?}"
            );
        }
    }
}

#[test]
fn the_noise_floor_is_the_least_that_holds_99_times_of_100() {
    let mut draws = Draws(0x5eed_0002);
    for flows in [30, 300, 3_000] {
        let (mut above, mut reached) = (0, 0);
        for _ in 0..4000 {
            let new = draws.analysis(&SPREAD, &weighted(&SPREAD), flows).new;
            above += u32::from(new.peak_ratio > new.noise_floor);
            reached += u32::from(new.peak_ratio >= new.noise_floor);
        }
        // 1 % is 40 of 4000; 3 standard errors are 19.
        assert!(above <= 59, "{above} of 4000 above the floor at {flows} flows");
        assert!(
            reached >= 21,
            "{reached} of 4000 at or above the floor at {flows} flows: it is too high"
        );
    }
}

#[test]
fn crowded_placement_is_found_from_500_flows() {
    let mut draws = Draws(0x5eed_0003);
    for flows in [500, 2_000] {
        let found = |got: &Analysis| {
            got.findings
                .first()
                .is_some_and(|f| f.code == FindingCode::PlacementSkew)
        };
        let hits = draws.hits(2000, (&CROWDED, &[1.0 / 7.0; 7], flows), found);
        assert!(hits > 1980, "{hits} of 2000 runs of {flows} flows");
    }
}

#[test]
fn crowded_placement_raises_no_other_finding() {
    let mut draws = Draws(0x5eed_0004);
    let only = |got: &Analysis| got.findings.len() == 1 && got.findings[0].share_of_skew > Some(0.95);
    let hits = draws.hits(300, (&CROWDED, &[1.0 / 7.0; 7], 20_000), only);
    assert!(hits >= 297, "{hits} of 300");
}

/// Share of each node on [`CROWDED`], with zones of 2, 2 and 3 nodes that get the same.
const BY_ZONE: [f64; 7] = [
    1.0 / 6.0,
    1.0 / 6.0,
    1.0 / 6.0,
    1.0 / 6.0,
    1.0 / 9.0,
    1.0 / 9.0,
    1.0 / 9.0,
];

/// In how many of 1,000 runs of 2,000 flows of 500 clients is the verdict `want`? Zones are known.
fn verdicts(draws: &mut Draws, pods: &[usize], shares: &[f64], binds: Binds, want: BalancerModel) -> u32 {
    let right = (0..1_000).filter(|_| {
        let mut input = draws.with_clients((pods, shares, 2_000), 500, binds);
        for (node, zone) in input.nodes.iter_mut().zip(["a", "a", "b", "b", "c", "c", "c"]) {
            node.zone = zone.to_owned();
        }
        analysis(&input).balancer.model == want
    });
    right.count() as u32
}

#[test]
fn the_verdict_is_right_99_times_of_100() {
    let mut draws = Draws(0x5eed_0005);
    let even = [1.0 / 7.0; 7];
    let led = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let leaking = [0.002, 0.988, 0.002, 0.002, 0.002, 0.002, 0.002];
    let lopsided = [0.30, 0.05, 0.25, 0.10, 0.10, 0.10, 0.10];
    let cases = [
        (even, Binds::Nothing, BalancerModel::EqualPerNode),
        (even, Binds::Pods, BalancerModel::EqualPerNode),
        (even, Binds::Nodes, BalancerModel::SourceHash),
        (BY_ZONE, Binds::Nothing, BalancerModel::ZoneEqual),
        (led, Binds::Nothing, BalancerModel::SingleLeader),
        (leaking, Binds::Nothing, BalancerModel::SingleLeader),
        (lopsided, Binds::Nothing, BalancerModel::NoneFits),
    ];
    for (shares, binds, want) in cases {
        let right = verdicts(&mut draws, &CROWDED, &shares, binds, want);
        assert!(right >= 990, "{want:?} in {right} of 1000 runs, clients keep {binds:?}");
    }
    let by_pods: [f64; 7] = std::array::from_fn(|node| weighted(&CROWDED)[node]);
    let right = verdicts(&mut draws, &CROWDED, &by_pods, Binds::Nothing, BalancerModel::Weighted);
    assert!(right >= 990, "weighted in {right} of 1000 runs");
}

#[test]
fn even_placement_leaves_the_verdict_open_but_for_hash_and_leader() {
    let mut draws = Draws(0x5eed_0007);
    let pods = [2; 7];
    let cases = [
        ([1.0 / 7.0; 7], Binds::Nothing, BalancerModel::Undetermined),
        ([1.0 / 7.0; 7], Binds::Nodes, BalancerModel::SourceHash),
        (
            [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            Binds::Nothing,
            BalancerModel::SingleLeader,
        ),
    ];
    for (shares, binds, want) in cases {
        let right = verdicts(&mut draws, &pods, &shares, binds, want);
        assert!(right >= 990, "{want:?} in {right} of 1000 runs, clients keep {binds:?}");
    }
}

#[test]
fn few_bound_clients_do_not_pass_for_significant() {
    let mut draws = Draws(0x5eed_0008);
    let pods = [3, 3];
    for clients in [20, 120, 400] {
        let (mut counted, mut significant) = (0, 0);
        for _ in 0..RUNS {
            let input = draws.with_clients((&pods, &[0.5, 0.5], 20 * clients), clients, Binds::Pods);
            let got = analysis(&input);
            let flows: Vec<u64> = input.endpoints.iter().map(|endpoint| endpoint.new).collect();
            counted += u32::from(g_test(&flows, &[1.0 / 6.0; 6], 1.0).p_value < REJECT);
            significant += u32::from(got.new.significant);
        }
        assert!(
            counted > 500,
            "{counted} of {RUNS}: independent flows of {clients} clients would alarm"
        );
        assert!(
            significant * 100 <= RUNS as u32,
            "{significant} of {RUNS} with {clients} clients"
        );
    }
}

#[test]
fn few_flows_never_name_a_wrong_model() {
    let mut draws = Draws(0x5eed_0006);
    for flows in [50, 100, 200] {
        let wrong = |got: &Analysis| {
            !matches!(
                got.balancer.model,
                BalancerModel::EqualPerNode | BalancerModel::Undetermined
            )
        };
        let hits = draws.hits(2000, (&CROWDED, &[1.0 / 7.0; 7], flows), wrong);
        assert!(hits <= 20, "{hits} of 2000 runs of {flows} flows");
    }
}
