//! Properties that hold on any input.

use super::views::view;
use super::*;
use crate::analysis::conclude;
use crate::analysis::design::{ClientView, Design};
use crate::analysis::shares::Split;
use crate::report::{Cause, FlowKind, Skew, Theil};
use proptest::collection::vec;
use proptest::prelude::*;

/// Counts of any size up to 2^53, with many zeros and small ones.
fn flows() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0u64..50, 0u64..100_000, 0u64..=1 << 53, Just(1 << 53)]
}

/// 1 to 8 nodes of 1 to 5 pods; now and then a node is silent.
fn any_service() -> impl Strategy<Value = ServiceInput> {
    let pods = vec((flows(), flows()), 1..6);
    (
        vec(pods, 1..9),
        proptest::option::weighted(0.1, any::<prop::sample::Index>()),
    )
        .prop_map(|(nodes, silent)| {
            let mut input = service(&nodes.iter().map(Vec::as_slice).collect::<Vec<_>>());
            if let Some(silent) = silent {
                let count = input.nodes.len();
                input.nodes[silent.index(count)].reporting = false;
            }
            input
        })
}

/// Clients of any kind: some flows are of heavy ones, and some clients keep their place.
#[derive(Debug, Clone)]
struct AnyClients {
    /// Part of the flows of each endpoint that heavy clients have; enough for any service.
    heavy: Vec<f64>,
    sticky: [bool; 2],
    deff: (f64, f64),
    pairs: (u64, u64),
}

impl AnyClients {
    fn view(&self, input: &ServiceInput) -> ClientView {
        let (nodes, within) = self.deff;
        let heavy = input.endpoints.iter().zip(&self.heavy);
        ClientView {
            heavy: heavy.map(|(e, part)| e.new as f64 * part).collect(),
            design: Design {
                whole: f64::max(nodes, within),
                nodes,
                within,
            },
            pods_sticky: self.sticky[0],
            nodes_sticky: self.sticky[1],
            node_pairs: (self.pairs.0.max(self.pairs.1), self.pairs.0.min(self.pairs.1)),
            ..view(input)
        }
    }
}

fn any_clients() -> impl Strategy<Value = AnyClients> {
    let part = prop_oneof![Just(0.0), Just(1.0), 0.0..1.0];
    let deff = || prop_oneof![Just(1.0), 1.0..50.0];
    (
        vec(part, 45),
        any::<[bool; 2]>(),
        (deff(), deff()),
        (0u64..1000, 0u64..1000),
    )
        .prop_map(|(heavy, sticky, deff, pairs)| AnyClients {
            heavy,
            sticky,
            deff,
            pairs,
        })
}

fn add_up(causes: &[Cause], theil: Option<Theil>) -> bool {
    let total = theil.map_or(0.0, |theil| theil.total);
    let (nats, shares) = causes.iter().fold((0.0, 0.0), |(nats, shares), cause| {
        (nats + cause.nats, shares + cause.share.unwrap_or(0.0))
    });
    causes.is_empty() == theil.is_none()
        && (nats - total).abs() <= 1e-11
        && (total == 0.0 || (shares - 1.0).abs() <= 1e-9 / total.min(1.0))
}

fn figures(skew: &Skew) -> Vec<f64> {
    let theil = skew
        .theil
        .map(|t| [t.total, t.load_balancer, t.placement, t.within_node]);
    let test = skew.test.map(|t| [t.g, t.p_value]);
    let single = [
        skew.peak_ratio,
        skew.max_min,
        skew.jain,
        skew.noise_floor,
        skew.cv,
        skew.gini,
        Some(skew.effective_flows),
    ];
    let all = single
        .into_iter()
        .flatten()
        .chain(theil.into_iter().flatten())
        .chain(test.into_iter().flatten());
    all.collect()
}

fn close(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
        (a, b) => a == b,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_figure_is_a_number_in_its_range(input in any_service()) {
        let got = analysis(&input);
        for skew in [&got.new, &got.established] {
            prop_assert!(figures(skew).iter().all(|x| x.is_finite()), "{skew:?}");
            if let Some(t) = skew.theil {
                let parts = t.load_balancer + t.placement + t.within_node;
                prop_assert!((t.total - parts).abs() <= 1e-12, "{t:?}");
                prop_assert!(t.total >= 0.0 && t.load_balancer >= 0.0 && t.within_node >= 0.0);
                prop_assert!(t.load_balancer + t.placement >= -1e-12, "{t:?}");
            }
            let p = input.endpoints.len() as f64;
            prop_assert!(skew.peak_ratio.is_none_or(|r| (1.0 - 1e-12..=p + 1e-12).contains(&r)));
            prop_assert!(skew.jain.is_none_or(|j| (1.0 / p - 1e-12..=1.0 + 1e-12).contains(&j)));
            // Jain's index is 1 / (1 + cv^2).
            prop_assert!(close(skew.jain, skew.cv.map(|cv| 1.0 / (1.0 + cv * cv))), "{skew:?}");
            prop_assert!(skew.gini.is_none_or(|g| (0.0..=1.0 - 1.0 / p + 1e-12).contains(&g)), "{skew:?}");
            prop_assert!(skew.noise_floor.is_none_or(|f| (1.0 - 1e-12..=p + 1e-12).contains(&f)), "{skew:?}");
            prop_assert!(skew.test.is_none_or(|t| (0.0..=1.0).contains(&t.p_value)), "{skew:?}");
        }
        prop_assert!((got.expected_shares.iter().sum::<f64>() - 1.0).abs() <= 1e-9);
        prop_assert!(got.balancer.log_bayes_factor.is_none_or(f64::is_finite));
        for finding in &got.findings {
            prop_assert!(finding.share_of_skew.is_none_or(|s| (0.0..=1.0).contains(&s)), "{finding:?}");
            prop_assert!(!finding.sentence.contains("NaN") && !finding.sentence.contains("inf "), "{finding:?}");
        }
        prop_assert!(!got.findings.is_empty());
        prop_assert!(got.headline.starts_with(&got.findings[0].sentence));
        let faults = got.findings.iter().filter(|finding| finding.code.is_fault()).count();
        prop_assert!(faults == got.findings.len() || faults == 0, "{:?}", got.findings);
    }

    #[test]
    fn causes_add_up_to_the_index(input in any_service(), clients in any_clients()) {
        let new = Split::of(&input, FlowKind::New);
        let got = conclude(&input, &new, Some(clients.view(&input)), None);
        prop_assert!(add_up(&got.causes, got.new.theil), "{:?} {:?}", got.causes, got.new.theil);
        let established = (&got.established_causes, got.established.theil);
        prop_assert!(add_up(established.0, established.1), "{established:?}");
        let ranked = |causes: &[Cause]| causes.windows(2).all(|pair| pair[0].nats >= pair[1].nats);
        prop_assert!(ranked(&got.causes) && ranked(&got.established_causes));
        // What is named is not negative, and what a finding tells is in the list.
        prop_assert!(got.causes.iter().all(|cause| cause.code.is_none() || cause.nats >= 0.0), "{:?}", got.causes);
        for finding in got.findings.iter().filter(|finding| finding.share_of_skew.is_some()) {
            let causes = if finding.kind == FlowKind::New { &got.causes } else { &got.established_causes };
            let cause = causes.iter().find(|cause| cause.code == Some(finding.code));
            prop_assert!(close(cause.and_then(|cause| cause.share), finding.share_of_skew), "{finding:?} {causes:?}");
        }
    }

    #[test]
    fn order_of_endpoints_changes_nothing(input in any_service(), clients in any_clients(), seed in any::<u64>()) {
        let mut order: Vec<usize> = (0..input.endpoints.len()).collect();
        // A cheap shuffle: by a hash of the name and the seed.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        order.sort_by_key(|e| input.endpoints[*e].pod.bytes().fold(seed, mix));
        let mut shuffled = input.clone();
        shuffled.endpoints = order.iter().map(|e| input.endpoints[*e].clone()).collect();
        let before = clients.view(&input);
        let after = ClientView {
            heavy: order.iter().map(|e| before.heavy[*e]).collect(),
            ..clients.view(&input)
        };
        let a = conclude(&input, &Split::of(&input, FlowKind::New), Some(before), None);
        let b = conclude(&shuffled, &Split::of(&shuffled, FlowKind::New), Some(after), None);
        prop_assert_eq!(&a.headline, &b.headline);
        let told = |got: &Analysis| -> Vec<_> {
            got.findings.iter().map(|f| (f.code, f.kind, f.sentence.clone(), f.confidence)).collect()
        };
        prop_assert_eq!(told(&a), told(&b));
        prop_assert_eq!(a.balancer.model, b.balancer.model);
        prop_assert_eq!(a.new.significant, b.new.significant);
        prop_assert!(close(a.new.theil.map(|t| t.total), b.new.theil.map(|t| t.total)));
        prop_assert!(close(a.new.gini, b.new.gini) && close(a.new.cv, b.new.cv));
        for (a, b) in [(&a.causes, &b.causes), (&a.established_causes, &b.established_causes)] {
            prop_assert_eq!(a.len(), b.len());
            for (a, b) in a.iter().zip(b) {
                prop_assert!(a.code == b.code && (a.nats - b.nats).abs() <= 1e-9, "{a:?} {b:?}");
            }
        }
        for (at, e) in order.iter().enumerate() {
            prop_assert_eq!(a.expected_shares[*e], b.expected_shares[at]);
        }
    }

    #[test]
    fn two_windows_added_equal_the_joint_one(nodes in vec(vec((0u64..100_000, 0u64..100_000), 1..6), 1..9)) {
        let counts = |of: fn(&(u64, u64)) -> u64| -> Vec<u64> { nodes.iter().flatten().map(of).collect() };
        let joint: Vec<Vec<u64>> = nodes.iter().map(|pods| pods.iter().map(|(a, b)| a + b).collect()).collect();
        let mut input = new_flows(&joint.iter().map(Vec::as_slice).collect::<Vec<_>>());
        input.windows = vec![
            window(100, &counts(|both| both.0)),
            window(200, &counts(|both| both.1)),
            window(300, &counts(|both| both.0 + both.1)),
        ];
        let got = analysis(&input);
        let [a, b, both] = [0, 1, 2].map(|at: usize| &got.windows[at]);
        prop_assert_eq!([a.seconds, b.seconds, both.seconds], [100, 200, 300]);
        prop_assert_eq!(&both.new, &got.new);
        prop_assert_eq!(a.new.flows + b.new.flows, got.new.flows);
        // Evenness of a mixture: flows that lean different ways even each other out, never the other way.
        let nats = |skew: &Skew| skew.theil.map_or(0.0, |theil| theil.total * skew.flows as f64);
        prop_assert!(nats(&got.new) <= nats(&a.new) + nats(&b.new) + 1e-6);
    }

    #[test]
    fn scaling_all_counts_keeps_shares(nodes in vec(vec(0u64..100_000, 1..6), 1..9), factor in 2u64..1000) {
        let build = |by: u64| {
            let scaled: Vec<Vec<u64>> = nodes.iter().map(|pods| pods.iter().map(|x| x * by).collect()).collect();
            analysis(&new_flows(&scaled.iter().map(Vec::as_slice).collect::<Vec<_>>())).new
        };
        let (a, b) = (build(1), build(factor));
        prop_assert!(close(a.peak_ratio, b.peak_ratio) && close(a.jain, b.jain) && close(a.max_min, b.max_min));
        prop_assert!(close(a.gini, b.gini) && close(a.cv, b.cv));
        prop_assert!(close(a.theil.map(|t| t.placement), b.theil.map(|t| t.placement)));
        prop_assert!(close(a.theil.map(|t| t.within_node), b.theil.map(|t| t.within_node)));
        prop_assert!(b.noise_floor <= a.noise_floor, "more flows, less noise");
    }

    #[test]
    fn full_counters_do_not_overflow(
        nodes in vec(vec(prop_oneof![Just(u64::MAX), Just(u64::MAX - 1), Just(0)], 1..4), 1..4)
    ) {
        let got = analysis(&new_flows(&nodes.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        prop_assert!(figures(&got.new).iter().all(|x| x.is_finite()), "{:?}", got.new);
    }
}
