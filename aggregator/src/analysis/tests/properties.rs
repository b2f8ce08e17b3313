//! Properties that hold on any input.

use super::*;
use crate::report::Skew;
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

fn figures(skew: &Skew) -> Vec<f64> {
    let theil = skew
        .theil
        .map(|t| [t.total, t.load_balancer, t.placement, t.within_node]);
    let test = skew.test.map(|t| [t.g, t.p_value]);
    let single = [skew.peak_ratio, skew.max_min, skew.jain, skew.noise_floor];
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
            prop_assert!(skew.noise_floor.is_none_or(|f| (1.0 - 1e-12..=p + 1e-12).contains(&f)), "{skew:?}");
            prop_assert!(skew.test.is_none_or(|t| (0.0..=1.0).contains(&t.p_value)), "{skew:?}");
        }
        prop_assert!((got.expected_shares.iter().sum::<f64>() - 1.0).abs() <= 1e-9);
        prop_assert!(got.balancer.log_bayes_factor.is_none_or(f64::is_finite));
        for finding in &got.findings {
            prop_assert!(finding.share_of_skew.is_none_or(|s| (0.0..=1.0).contains(&s)), "{finding:?}");
            prop_assert!(!finding.sentence.contains("NaN") && !finding.sentence.contains("inf "), "{finding:?}");
        }
        prop_assert_eq!(got.findings.first().map_or(&got.headline, |f| &f.sentence), &got.headline);
    }

    #[test]
    fn order_of_endpoints_changes_nothing(input in any_service(), seed in any::<u64>()) {
        let mut shuffled = input.clone();
        // A cheap shuffle: by a hash of the name and the seed.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        shuffled.endpoints.sort_by_key(|e| e.pod.bytes().fold(seed, mix));
        let (a, b) = (analysis(&input), analysis(&shuffled));
        prop_assert_eq!(&a.headline, &b.headline);
        prop_assert_eq!(a.balancer.model, b.balancer.model);
        prop_assert_eq!(a.new.significant, b.new.significant);
        prop_assert!(close(a.new.theil.map(|t| t.total), b.new.theil.map(|t| t.total)));
        for (e, share) in input.endpoints.iter().zip(&a.expected_shares) {
            let at = shuffled.endpoints.iter().position(|other| other.pod == e.pod).unwrap();
            prop_assert_eq!(*share, b.expected_shares[at]);
        }
    }

    #[test]
    fn scaling_all_counts_keeps_shares(nodes in vec(vec(0u64..100_000, 1..6), 1..9), factor in 2u64..1000) {
        let build = |by: u64| {
            let scaled: Vec<Vec<u64>> = nodes.iter().map(|pods| pods.iter().map(|x| x * by).collect()).collect();
            analysis(&new_flows(&scaled.iter().map(Vec::as_slice).collect::<Vec<_>>())).new
        };
        let (a, b) = (build(1), build(factor));
        prop_assert!(close(a.peak_ratio, b.peak_ratio) && close(a.jain, b.jain) && close(a.max_min, b.max_min));
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
