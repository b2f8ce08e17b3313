//! Tables: what a given Service must give, with numbers worked out by hand.

use super::*;
use crate::analysis::{AnalysisError, LoadInput};
use crate::report::{BalancerModel, Confidence, FindingCode, FlowKind};

/// 11 pods on 7 nodes as 3, 3, 1, 1, 1, 1, 1; each node gets exactly 1/7 of 21,000.
const PLACEMENT: [&[u64]; 7] = [&[1000; 3], &[1000; 3], &[3000], &[3000], &[3000], &[3000], &[3000]];

fn near(got: impl Into<Option<f64>>, want: f64, tolerance: f64) {
    let got = got.into().unwrap();
    assert!((got - want).abs() <= tolerance, "got {got}, want {want}");
}

/// Codes of the findings, with their kind.
fn codes(input: &ServiceInput) -> Vec<(FindingCode, FlowKind)> {
    analysis(input).findings.iter().map(|f| (f.code, f.kind)).collect()
}

#[test]
fn unequal_placement_has_the_worked_out_figures() {
    let got = analysis(&new_flows(&PLACEMENT));
    let new = &got.new;
    assert_eq!(new.flows, 21_000);
    near(new.peak_ratio, 11.0 / 7.0, 1e-12); // 1.571428...
    near(new.max_min, 3.0, 0.0);
    near(new.jain, 21.0 * 21.0 / (11.0 * 51.0), 1e-12); // (6*1 + 5*3)^2 / (11 (6*1 + 5*9)), in thousands
    let theil = new.theil.unwrap();
    let placement = 5.0 / 7.0 * (11.0f64 / 7.0).ln() + 2.0 / 7.0 * (11.0f64 / 21.0).ln(); // 0.13810
    near(theil.placement, placement, 1e-12);
    near(theil.total, placement, 1e-12);
    near(theil.load_balancer, 0.0, 1e-12);
    near(theil.within_node, 0.0, 1e-12);
    let test = new.test.unwrap();
    near(test.g, 42_000.0 * placement, 1e-6);
    assert_eq!(test.degrees, 10);
    assert!(test.p_value < 1e-100 && new.significant);
    assert_eq!(got.balancer.model, BalancerModel::EqualPerNode);
    near(got.expected_shares[0], 1.0 / 21.0, 1e-12);
    near(got.expected_shares[10], 1.0 / 7.0, 1e-12);
    near(got.node_expectations[0].equal_per_node, 1.0 / 7.0, 1e-12);
    near(got.node_expectations[0].weighted, 3.0 / 11.0, 1e-12);
    near(got.node_expectations[6].weighted, 1.0 / 11.0, 1e-12);
}

#[test]
fn unequal_placement_is_told_with_its_numbers() {
    let got = analysis(&new_flows(&PLACEMENT));
    assert_eq!(got.findings.len(), 1);
    let finding = &got.findings[0];
    assert_eq!(
        (finding.code, finding.kind, finding.flows),
        (FindingCode::PlacementSkew, FlowKind::New, 21_000)
    );
    near(finding.share_of_skew, 1.0, 1e-9);
    assert_eq!(finding.confidence, Confidence::High);
    assert_eq!(
        finding.sentence,
        "gateway/telemetry: pods are hot because of where they run: the load balancer picks a node first and gives each of 7 \
         nodes 1/7 = 14.3 % of new flows however many pods it has (measured: 14.3 % each), so the 5 pods alone on their node \
         get 14.3 % each and the 6 pods that share a node with 2 others get 4.8 % each where 9.1 % is ideal; this explains 100 \
         % of the skew of new flows, whose peak ratio is 1.57: spread the pods one per node; more replicas or restarts of the \
         hot pods do not help."
    );
    assert_eq!(
        finding.evidence,
        [
            "This is not chance: p < 1e-15 over 21,000 new flows in 5 min, and by chance the peak ratio stays below 1.07.",
            "The balancer is measured, not assumed: equal-per-node is over a million times likelier than weighted (Bayes \
             factor)."
        ]
    );
    assert_eq!(
        got.headline,
        format!("{} {}", finding.sentence, finding.evidence.join(" "))
    );
    assert_eq!(
        got.balancer.reason,
        "nodes get 14.3 % each of 21,000 new flows; equal-per-node gives 14.3 % each, and is over a million times \
         likelier than weighted"
    );
}

#[test]
fn evidence_counts_for_less_when_flows_vary_more_than_independent_ones() {
    // 4,4,4,3 pods: equal gives 25 % each, weighted 26.7 % and 20 %. A hash that is a few percent off tells neither.
    let got = analysis(&new_flows(&[&[6750; 4], &[6250; 4], &[6000; 4], &[7600; 3]]));
    assert_eq!(got.balancer.model, BalancerModel::Undetermined, "{:?}", got.balancer);
    let got = analysis(&new_flows(&[&[6250; 4], &[6250; 4], &[6250; 4], &[8330; 3]]));
    assert_eq!(got.balancer.model, BalancerModel::EqualPerNode, "{:?}", got.balancer);
}

#[test]
fn two_and_one_pods_give_the_lone_pod_double() {
    let got = analysis(&new_flows(&[&[260, 240], &[500]]));
    near(got.new.peak_ratio, 1.5, 1e-12);
    assert_eq!(got.balancer.model, BalancerModel::EqualPerNode);
    assert!(
        got.headline
            .contains("the pod alone on its node gets 50.0 % and the 2 pods that share a node get 25.0 % each"),
        "{got:?}"
    );
}

#[test]
fn weighted_balancer_corrects_the_placement() {
    let got = analysis(&new_flows(&[
        &[1010, 990, 1000],
        &[1005, 1015, 995],
        &[985],
        &[1000],
        &[1020],
        &[1000],
        &[980],
    ]));
    assert_eq!(got.balancer.model, BalancerModel::Weighted);
    let theil = got.new.theil.unwrap();
    assert!(theil.placement < -0.1 && theil.load_balancer > 0.1, "{theil:?}");
    assert!(!got.new.significant);
    let codes: Vec<_> = got.findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [FindingCode::Even, FindingCode::LbWeighted]);
    assert!(
        got.findings[1]
            .sentence
            .contains("nodes of 1 to 3 pods give each pod about the same"),
        "{}",
        got.findings[1].sentence
    );
    assert!(
        got.expected_shares
            .iter()
            .all(|share| (share - 1.0 / 11.0).abs() < 1e-12)
    );
    assert_eq!(
        got.headline,
        "gateway/telemetry: 11,000 new flows in 5 min over 11 pods are even: peak ratio 1.02 is within chance (noise \
         floor 1.09, p = 0.999); the load balancer weights nodes by their pods."
    );
}

#[test]
fn single_leader_is_the_balancers_doing_and_not_the_placements() {
    for leader in [&[0u64, 0, 0][..], &[0]] {
        let mut nodes = [&[0u64, 0, 0][..], &[0, 0, 0], &[0], &[0], &[0]];
        let at = nodes.iter().position(|pods| pods.len() == leader.len()).unwrap();
        let led: Vec<u64> = leader.iter().map(|_| 3000 / leader.len() as u64).collect();
        nodes[at] = &led;
        let got = analysis(&new_flows(&nodes));
        assert_eq!(got.balancer.model, BalancerModel::SingleLeader);
        assert_eq!(got.findings.len(), 1, "{:?}", got.findings);
        assert_eq!(got.findings[0].code, FindingCode::LbSingleLeader);
        near(got.findings[0].share_of_skew, 1.0, 1e-9);
        near(got.expected_shares.iter().sum::<f64>(), 1.0, 1e-12);
        near(got.new.theil.unwrap().total, (9.0 / leader.len() as f64).ln(), 1e-12);
        assert_eq!(got.new.max_min, None);
    }
    let got = analysis(&new_flows(&[&[600, 590, 610], &[8], &[4]]));
    assert_eq!(got.balancer.model, BalancerModel::SingleLeader);
    assert_eq!(
        got.findings[0].sentence,
        "gateway/telemetry: the load balancer sends 99.3 % of new flows to one node, n1, with 3 ready pods, and leaves 2 other \
         nodes with 2 ready pods idle; this explains over 99 % of the skew of new flows, whose peak ratio is 1.68: a balancer in \
         layer 2 mode does this by design, one that routes to all nodes does not."
    );
}

#[test]
fn uneven_nodes_that_no_model_explains() {
    let got = analysis(&new_flows(&[&[4000], &[2000], &[2000], &[2000]]));
    assert_eq!(got.balancer.model, BalancerModel::NoneFits);
    assert_eq!(got.balancer.log_bayes_factor, None);
    assert_eq!(got.findings.len(), 1);
    assert_eq!(got.findings[0].code, FindingCode::LbUneven);
    assert!(
        got.headline.contains(
            "gives node n1 40.0 % of new flows and node n2 20.0 % where 25.0 % is even, in a way that no known model"
        ),
        "{}",
        got.headline
    );
}

#[test]
fn one_hot_pod_of_a_node_is_within_node_skew() {
    let got = analysis(&new_flows(&[&[1600, 200, 200], &[660, 670, 670]]));
    assert_eq!(got.balancer.model, BalancerModel::Undetermined);
    assert!(
        got.balancer.reason.contains("placement is even"),
        "{}",
        got.balancer.reason
    );
    assert_eq!(got.findings.len(), 1);
    assert_eq!(got.findings[0].code, FindingCode::WithinNodeSkew);
    assert!(
        got.headline
            .contains("on node n1 pod n1-1 gets 80.0 % of the node's new flows where 1/3 = 33.3 % is even"),
        "{}",
        got.headline
    );
}

#[test]
fn causes_are_ranked_and_their_shares_add_up() {
    // Placement as above, and one pod of the first node takes most of its node's flows.
    let mut nodes = PLACEMENT;
    nodes[0] = &[2600, 200, 200];
    let got = analysis(&new_flows(&nodes));
    let codes: Vec<_> = got.findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [FindingCode::PlacementSkew, FindingCode::WithinNodeSkew]);
    near(
        got.findings.iter().filter_map(|f| f.share_of_skew).sum::<f64>(),
        1.0,
        1e-9,
    );
}

#[test]
fn a_balancer_that_over_corrects_is_held_against_weighted() {
    // Weighted would give 75 % and 25 %; the balancer gives 90 % and 10 %.
    let got = analysis(&new_flows(&[&[3000, 3000, 3000], &[1000]]));
    assert_eq!(got.balancer.model, BalancerModel::NoneFits);
    assert_eq!(got.findings[0].code, FindingCode::LbUneven);
    near(got.findings[0].share_of_skew, 1.0, 1e-9);
    assert!(
        got.headline.contains(
            "gives node n1 90.0 % of new flows where its pods are due 75.0 %, and node n2 10.0 % where 25.0 % is due"
        ),
        "{}",
        got.headline
    );
}

#[test]
fn few_flows_are_counted_and_nothing_is_concluded() {
    let got = analysis(&new_flows(&[
        &[5],
        &[1],
        &[2],
        &[3],
        &[4],
        &[1],
        &[5],
        &[2],
        &[3],
        &[1],
        &[3],
    ]));
    assert_eq!((got.new.flows, got.new.test, got.new.significant), (30, None, false));
    assert_eq!(got.balancer.model, BalancerModel::Undetermined);
    assert_eq!(
        (got.findings.len(), got.findings[0].code),
        (1, FindingCode::InsufficientData)
    );
    assert_eq!(
        got.headline,
        "gateway/telemetry: 30 new flows in 5 min over 11 pods are too few to tell skew from chance (55 are needed): \
         nothing is concluded."
    );
    let got = analysis(&new_flows(&[&[16], &[9], &[12], &[14], &[9]]));
    assert!(got.new.test.is_some());
    assert_eq!(
        (got.findings.len(), got.findings[0].code),
        (1, FindingCode::InsufficientData)
    );
    assert!(got.headline.contains("60 new flows"), "{}", got.headline);
    assert!(got.headline.contains("too few to conclude"), "{}", got.headline);
}

#[test]
fn without_flows_or_endpoints_values_are_unknown() {
    let got = analysis(&new_flows(&[&[0, 0], &[0]]));
    assert_eq!(
        (got.new.peak_ratio, got.new.jain, got.new.noise_floor, got.new.theil),
        (None, None, None, None)
    );
    near(got.expected_shares[2], 0.5, 1e-12);
    assert!(got.node_expectations.iter().all(|e| e.single_leader == 0.0));
    assert_eq!(
        got.headline,
        "gateway/telemetry: no external flow opened in 5 min, and none is established."
    );

    assert!(got.causes.is_empty() && got.established_causes.is_empty());
    assert_eq!(
        (got.findings.len(), got.findings[0].code),
        (1, FindingCode::InsufficientData)
    );

    let got = analysis(&new_flows(&[]));
    assert!(got.expected_shares.is_empty());
    assert_eq!(
        (got.findings.len(), got.findings[0].code),
        (1, FindingCode::InsufficientData)
    );
    assert_eq!(got.headline, "gateway/telemetry: no endpoint is ready.");
}

#[test]
fn one_endpoint_has_nothing_to_be_compared_with() {
    let got = analysis(&new_flows(&[&[5000]]));
    assert_eq!(
        (got.new.peak_ratio, got.new.noise_floor, got.new.test),
        (Some(1.0), Some(1.0), None)
    );
    assert!(got.balancer.reason.contains("one node"), "{}", got.balancer.reason);
    assert!(got.headline.contains("only ready pod"), "{}", got.headline);
    assert_eq!(
        (got.findings[0].code, got.findings[0].confidence),
        (FindingCode::Even, Confidence::Certain)
    );
}

#[test]
fn established_flows_that_predate_a_change_are_persistence() {
    let old = |new, established| (new, established);
    let input = service(&[
        &[old(1010, 500), old(990, 500), old(1000, 500)],
        &[old(1000, 1500), old(1005, 1500), old(995, 1500)],
    ]);
    let got = analysis(&input);
    assert!(!got.new.significant && got.established.significant);
    assert_eq!(codes(&input), [(FindingCode::Persistence, FlowKind::Established)]);
    assert!(got.findings[0].share_of_skew.unwrap() > 0.99);
    assert_eq!(
        got.findings[0].sentence,
        "gateway/telemetry: established flows keep an earlier split: their peak ratio is 1.50 (6,000 flows), that of new flows \
         is 1.01 (6,000 new flows in 5 min); left alone they stay so until these flows close: a maximum connection age or a \
         staggered restart of all pods moves them, new flows alone do not."
    );
}

#[test]
fn established_skew_that_new_flows_still_feed_is_one_finding() {
    let nodes: Vec<Vec<(u64, u64)>> = PLACEMENT
        .iter()
        .map(|n| n.iter().map(|x| (*x, *x / 2)).collect())
        .collect();
    let input = service(&nodes.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(codes(&input), [(FindingCode::PlacementSkew, FlowKind::New)]);
}

#[test]
fn established_skew_with_few_new_flows_is_told_by_its_own_parts() {
    let nodes: Vec<Vec<(u64, u64)>> = PLACEMENT.iter().map(|n| n.iter().map(|x| (1, *x)).collect()).collect();
    let input = service(&nodes.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(codes(&input), [(FindingCode::PlacementSkew, FlowKind::Established)]);
    let headline = analysis(&input).headline;
    assert!(headline.contains("skew of established flows"), "{headline}");
    assert!(
        headline.contains("(from 11 new flows in 5 min it cannot be told whether this goes on)"),
        "{headline}"
    );
}

#[test]
fn few_new_flows_that_follow_the_established_split_are_not_called_even() {
    // 63 new flows split like the established ones: enough to be tested, not enough to be significant.
    let nodes: Vec<Vec<(u64, u64)>> = PLACEMENT
        .iter()
        .map(|n| n.iter().map(|x| (x * 3 / 1000, *x)).collect())
        .collect();
    let input = service(&nodes.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let got = analysis(&input);
    assert!(got.new.test.is_some() && !got.new.significant);
    assert_eq!(codes(&input), [(FindingCode::PlacementSkew, FlowKind::Established)]);
}

#[test]
fn a_silent_node_withholds_every_other_conclusion() {
    let mut input = new_flows(&PLACEMENT);
    input.nodes[1].reporting = false;
    let got = analysis(&input);
    assert_eq!(got.balancer.model, BalancerModel::Undetermined);
    assert!(got.balancer.reason.contains("node n2"), "{}", got.balancer.reason);
    assert!(!got.new.significant && got.new.test.is_none() && got.new.peak_ratio.is_some());
    assert_eq!(got.findings.len(), 1);
    assert_eq!(
        (
            got.findings[0].code,
            got.findings[0].share_of_skew,
            got.findings[0].confidence
        ),
        (FindingCode::NodeSilent, None, Confidence::Certain)
    );
    assert_eq!((got.causes.len(), got.causes[0].code), (1, None));
    assert_eq!(
        got.headline,
        "gateway/telemetry: no agent reports from node n2: the flows of 3 of 11 ready pods are unknown, so every share \
         is suspect and no cause of skew is named."
    );
}

#[test]
fn a_small_difference_in_a_large_sample_is_no_finding() {
    let got = analysis(&new_flows(&[&[5_100_000], &[4_900_000]]));
    assert!(got.new.significant);
    assert_eq!((got.findings.len(), got.findings[0].code), (1, FindingCode::Even));
    // The list of causes still says what the little is.
    assert_eq!(got.causes[0].code, Some(FindingCode::LbUneven));
    assert!(
        got.headline.contains("even to within 5.0 %: peak ratio 1.02"),
        "{}",
        got.headline
    );
}

#[test]
fn a_starved_pod_below_the_noise_floor_is_named() {
    let mut counts = vec![[20u64]; 99];
    counts.push([0]);
    let got = analysis(&new_flows(&counts.iter().map(|c| &c[..]).collect::<Vec<_>>()));
    assert!(!got.new.significant);
    let got = analysis(&new_flows(&[
        &[300],
        &[300],
        &[300],
        &[300],
        &[300],
        &[300],
        &[300],
        &[300],
        &[300],
        &[190],
    ]));
    assert!(
        got.new.test.unwrap().p_value < 0.001 && !got.new.significant,
        "{:?}",
        got.new
    );
    assert!(
        got.headline
            .contains("n10-1 gets the least, 6.6 %, where 10.0 % is ideal"),
        "{}",
        got.headline
    );
}

#[test]
fn input_that_contradicts_itself_is_an_error() {
    let mut input = new_flows(&[&[1], &[1]]);
    input.endpoints[1].node = 2;
    let want = AnalysisError::NodeOutOfRange {
        pod: "n2-1".to_owned(),
        node: 2,
        nodes: 2,
    };
    assert_eq!(analyse(&input), Err(want));
    input.endpoints[1].node = 0;
    assert_eq!(
        analyse(&input),
        Err(AnalysisError::NodeWithoutEndpoint { node: "n2".to_owned() })
    );
    input.endpoints[1].node = 1;
    input.windows.push(window(60, &[1]));
    let want = AnalysisError::WindowLength {
        seconds: 60,
        counts: 1,
        endpoints: 2,
    };
    assert_eq!(analyse(&input), Err(want));
}

#[test]
fn the_hot_pod_is_hot_only_when_its_load_says_so() {
    let told = |cores: [Option<f64>; 3]| {
        let mut input = new_flows(&[&[2500, 2500], &[5000]]);
        for (endpoint, cpu_cores) in input.endpoints.iter_mut().zip(cores) {
            endpoint.load = Some(LoadInput {
                cpu_cores,
                throttled_share: Some(0.12),
                listen_overflows: Some(1234),
            });
        }
        let got = analysis(&input);
        assert!(got.headline.starts_with(&got.findings[0].sentence));
        got.headline.split_once(" The hot pod").map(|(_, rest)| rest.to_owned())
    };
    assert_eq!(
        told([Some(0.25), Some(0.3), Some(2.75)]).unwrap(),
        " really is hot: n2-1 uses 2.75 CPUs against a mean of 1.10, its CPU limit holds it up 12.0 % of the time, its \
         accept queue was full 1,234 times."
    );
    // As busy as others, busiest without most flows, not known for all, idle.
    assert_eq!(told([Some(1.0), Some(1.0), Some(1.2)]), None);
    assert_eq!(told([Some(3.0), Some(0.5), Some(1.0)]), None);
    assert_eq!(told([Some(0.25), None, Some(2.75)]), None);
    assert_eq!(told([Some(0.0); 3]), None);
}
