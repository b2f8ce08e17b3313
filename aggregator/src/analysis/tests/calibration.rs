//! Calibration: on samples drawn from a known truth, how often is the analysis right? Seeded, hence repeatable.

use super::*;
use crate::report::{BalancerModel, FindingCode};

/// Marsaglia's xorshift64*: a few lines, repeatable on any machine.
struct Draws(u64);

impl Draws {
    fn below_one(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One flow after the other: a node by `node_shares`, then one of its pods, each alike.
    fn sample(&mut self, pods: &[usize], node_shares: &[f64], flows: u64) -> Vec<Vec<u64>> {
        let mut counts: Vec<Vec<u64>> = pods.iter().map(|n| vec![0; *n]).collect();
        for _ in 0..flows {
            let mut at = self.below_one();
            let mut node = 0;
            while node + 1 < pods.len() && at >= node_shares[node] {
                at -= node_shares[node];
                node += 1;
            }
            let pod = (self.below_one() * pods[node] as f64) as usize;
            counts[node][pod] += 1;
        }
        counts
    }

    fn analysis(&mut self, pods: &[usize], node_shares: &[f64], flows: u64) -> Analysis {
        let counts = self.sample(pods, node_shares, flows);
        analysis(&new_flows(&counts.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    }

    /// How many of `runs` samples give an analysis for which `hit` holds.
    fn hits(
        &mut self,
        runs: u64,
        (pods, node_shares, flows): (&[usize], &[f64], u64),
        hit: impl Fn(&Analysis) -> bool,
    ) -> u64 {
        (0..runs)
            .filter(|_| hit(&self.analysis(pods, node_shares, flows)))
            .count() as u64
    }
}

const CROWDED: [usize; 7] = [3, 3, 1, 1, 1, 1, 1];
const SPREAD: [usize; 11] = [1; 11];

fn weighted(pods: &[usize]) -> Vec<f64> {
    let all: usize = pods.iter().sum();
    pods.iter().map(|n| *n as f64 / all as f64).collect()
}

fn alarm(got: &Analysis) -> bool {
    got.new.significant || !got.findings.is_empty()
}

#[test]
fn even_services_alarm_at_most_once_in_a_hundred() {
    let mut draws = Draws(0x5eed_0001);
    let sizes = [(30, 4000), (60, 4000), (300, 4000), (3_000, 2000)].map(|size| (size, [&SPREAD[..], &CROWDED]));
    let cases = sizes
        .iter()
        .flat_map(|(size, placements)| placements.iter().map(|pods| (*size, *pods)));
    for ((flows, runs), pods) in cases.chain([((30_000, 2000), &SPREAD[..])]) {
        let alarms = draws.hits(runs, (pods, &weighted(pods), flows), alarm);
        assert!(
            alarms * 100 <= runs,
            "{alarms} false alarms in {runs} runs of {flows} flows over {pods:?}"
        );
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

#[test]
fn the_verdict_is_right_99_times_of_100() {
    let mut draws = Draws(0x5eed_0005);
    let leader = [0.002, 0.988, 0.002, 0.002, 0.002, 0.002, 0.002];
    let lopsided = [0.30, 0.05, 0.25, 0.10, 0.10, 0.10, 0.10];
    let cases: [(&[usize], Vec<f64>, BalancerModel); 7] = [
        (&CROWDED, vec![1.0 / 7.0; 7], BalancerModel::EqualPerNode),
        (&CROWDED, weighted(&CROWDED), BalancerModel::Weighted),
        (
            &CROWDED,
            vec![0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            BalancerModel::SingleLeader,
        ),
        (&CROWDED, leader.to_vec(), BalancerModel::SingleLeader),
        (&CROWDED, lopsided.to_vec(), BalancerModel::NoneFits),
        (&SPREAD, weighted(&SPREAD), BalancerModel::Undetermined),
        (&[2, 1], vec![0.5, 0.5], BalancerModel::EqualPerNode),
    ];
    for (pods, shares, want) in cases {
        let right = draws.hits(1000, (pods, &shares, 2_000), |got| got.balancer.model == want);
        assert!(right >= 990, "{want:?} in {right} of 1000 runs over {pods:?}");
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
