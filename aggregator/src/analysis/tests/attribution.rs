//! Attribution: what each cause must give, on flows and clients made by hand.

use super::views::{broken, heavy, stickiness, view};
use super::*;
use crate::analysis::conclude;
use crate::analysis::design::{ClientView, Design};
use crate::analysis::shares::Split;
use crate::report::{
    BalancerModel, Cause, Confidence, EndpointAges, Estimate, Finding, FindingCode, FlowKind, Persistence,
};

fn with(input: &ServiceInput, view: ClientView) -> Analysis {
    conclude(input, &Split::of(input, FlowKind::New), Some(view), None)
}

fn codes(findings: &[Finding]) -> Vec<FindingCode> {
    findings.iter().map(|finding| finding.code).collect()
}

/// The part of the causes that has this code, in nats.
fn part(causes: &[Cause], code: Option<FindingCode>) -> f64 {
    let of = causes.iter().filter(|cause| cause.code == code);
    of.map(|cause| cause.nats).sum()
}

fn near(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-9, "got {got}, want {want}");
}

#[test]
fn a_heavy_client_bound_to_a_pod_is_what_goes_without_it() {
    // Without the 4,000 flows of one client each pod has 1,000.
    let input = new_flows(&[&[5000, 1000], &[1000, 1000]]);
    let mut clients = heavy(view(&input), 0.5, &[4000.0, 0.0, 0.0, 0.0]);
    (clients.pods_sticky, clients.nodes_sticky) = (true, true);
    let got = with(&input, clients);
    assert_eq!(codes(&got.findings), [FindingCode::ClientConcentration]);
    let finding = &got.findings[0];
    near(finding.share_of_skew.unwrap(), 1.0);
    assert_eq!(finding.confidence, Confidence::Certain);
    near(
        part(&got.causes, Some(FindingCode::ClientConcentration)),
        got.new.theil.unwrap().total,
    );
    assert_eq!(
        finding.sentence,
        "gateway/telemetry: heavy clients open 50.0 % of new flows, 192.0.2.1, which looks like an address that many share, \
         alone 50.0 %, and each is bound to one pod of one node; this explains 100 % of the skew of new flows, whose peak ratio \
         is 2.50: affinity cannot spread what is behind one address, so let heavy clients come from more addresses or take \
         affinity off."
    );
    assert!(
        finding.evidence[0].contains("as unevenly as 4.0 equal ones"),
        "{:?}",
        finding.evidence
    );
}

#[test]
fn a_heavy_client_explains_only_the_tier_it_is_bound_in() {
    let input = new_flows(&[&[5000, 1000], &[1000, 1000]]);
    let mut clients = heavy(view(&input), 0.5, &[4000.0, 0.0, 0.0, 0.0]);
    clients.pods_sticky = true;
    let got = with(&input, clients);
    let theil = got.new.theil.unwrap();
    near(
        part(&got.causes, Some(FindingCode::ClientConcentration)),
        theil.within_node,
    );
    near(part(&got.causes, Some(FindingCode::LbUneven)), theil.load_balancer);
    // Bound nowhere, it is no cause.
    let got = with(&input, heavy(view(&input), 0.5, &[4000.0, 0.0, 0.0, 0.0]));
    near(part(&got.causes, Some(FindingCode::WithinNodeSkew)), theil.within_node);
    near(part(&got.causes, Some(FindingCode::ClientConcentration)), 0.0);
}

#[test]
fn one_client_with_all_flows_on_one_pod_is_concentration_and_no_single_leader() {
    let input = new_flows(&[&[900, 0], &[0]]);
    let mut clients = heavy(view(&input), 1.0, &[900.0, 0.0, 0.0]);
    clients.affinity.pod_tier = Some(stickiness(899, 1.0, 1.0));
    clients.affinity.node_tier = Some(stickiness(899, 1.0, 1.0));
    clients.node_pairs = (899, 899);
    let got = with(&input, clients);
    assert_eq!(got.balancer.model, BalancerModel::Undetermined, "{:?}", got.balancer);
    assert_eq!(
        codes(&got.findings)[0],
        FindingCode::ClientConcentration,
        "{:?}",
        got.findings
    );
    assert!(!codes(&got.findings).contains(&FindingCode::EndpointIdle));
}

#[test]
fn clients_bound_to_pods_are_pinning_as_counted_and_not_significant() {
    let input = new_flows(&[&[1200, 900, 900]]);
    let mut clients = view(&input);
    clients.pods_sticky = true;
    clients.design = Design {
        whole: 50.0,
        nodes: 1.0,
        within: 50.0,
    };
    clients.affinity.pod_tier = Some(stickiness(2000, 1.0, 1.0 / 3.0));
    let got = with(&input, clients);
    assert!(!got.new.significant, "60 independent flows would say nothing");
    assert_eq!(got.new.effective_flows, 60.0);
    assert_eq!(codes(&got.findings), [FindingCode::AffinityPinning]);
    let finding = &got.findings[0];
    assert!(
        finding
            .sentence
            .contains("the 3,000 flows count for no more than 60 independent ones"),
        "{finding:?}"
    );
    assert!(
        finding.evidence[0].contains("finds the same pod of its node in 100.0 % of 2,000 cases"),
        "{finding:?}"
    );
}

#[test]
fn an_idle_pod_is_named_with_its_part_of_the_skew() {
    let input = new_flows(&[&[1500, 1500, 0], &[1000, 1000, 1000]]);
    let got = analysis(&input);
    assert_eq!(codes(&got.findings), [FindingCode::EndpointIdle]);
    near(part(&got.causes, Some(FindingCode::EndpointIdle)), 0.5 * 1.5f64.ln());
    near(got.new.theil.unwrap().within_node, 0.5 * 1.5f64.ln());
    assert!(
        got.findings[0].sentence.contains(
            "pod n1-3 on node n1 is ready and got 0 of 3,000 flows that opened there, where 1,000 would be even"
        ),
        "{:?}",
        got.findings[0]
    );
}

#[test]
fn a_pod_is_not_idle_while_it_was_not_ready_or_where_chance_leaves_it_so() {
    let mut input = new_flows(&[&[1500, 1500, 0], &[1000, 1000, 1000]]);
    input.endpoints[2].ready_since_ms = Some(100_000);
    assert_eq!(codes(&analysis(&input).findings), [FindingCode::WithinNodeSkew]);
    // 8 flows at a third each leave one of three without any in 1 of 25 cases.
    let got = analysis(&new_flows(&[&[4, 4, 0], &[400]]));
    assert!(
        !codes(&got.findings).contains(&FindingCode::EndpointIdle),
        "{:?}",
        got.findings
    );
}

#[test]
fn two_idle_pods_are_named_in_one_finding_however_many_pods_there_are() {
    let mut nodes: Vec<Vec<u64>> = vec![vec![100, 100]; 48];
    nodes.extend([vec![200, 0], vec![200, 0]]);
    let got = analysis(&new_flows(&nodes.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    assert_eq!(codes(&got.findings), [FindingCode::EndpointIdle]);
    assert!(
        got.findings[0].sentence.contains("pods n49-2 and n50-2 are ready"),
        "{:?}",
        got.findings[0]
    );
}

#[test]
fn broken_affinity_is_a_finding_of_its_own_and_names_the_list_limit() {
    let input = new_flows(&[&[1000, 1000], &[1000, 1000]]);
    let got = with(&input, broken(view(&input)));
    assert_eq!(codes(&got.findings), [FindingCode::AffinityBroken]);
    assert_eq!(got.findings[0].share_of_skew, None);
    assert_eq!(
        got.findings[0].sentence,
        "gateway/telemetry: session affinity is asked for and does not hold: in 290 of 600 cases a client that came back to a \
         node within the timeout landed on another pod though its own was ready (median gap 41 s), 290 of 300 when 100 or more \
         other clients came in between and 0 of 300 when fewer did: kube-proxy in iptables mode remembers 100 addresses a pod, \
         so raise ip_list_tot of the kernel module xt_recent or use its nftables mode."
    );
}

/// 5,000 of 6,000 established flows older than the last change, which brought the pods of node 2.
fn ages(before: f64) -> Persistence {
    Persistence {
        flows: 6000,
        before_change: Some(Estimate::exact(before)),
        endpoints: Vec::<EndpointAges>::new(),
        closes: 120,
        flow_hours: 600.0,
        hazard_per_hour: Some(Estimate::exact(0.2)),
        target_peak_ratio: 1.05,
        hours_to_even: Some(3.2),
        hours_to_even_low: None,
        hours_to_even_high: None,
        left_on_gone: 0,
        sentence: String::new(),
    }
}

#[test]
fn ages_tell_persistence_where_new_flows_are_too_few() {
    let mut input = service(&[&[(2, 1300), (1, 1300)], &[(1, 200), (2, 200)]]);
    input.endpoints_changed_ms = Some(0);
    for endpoint in &mut input.endpoints[2..] {
        endpoint.ready_since_ms = Some(0);
    }
    let concluded = |before| conclude(&input, &Split::of(&input, FlowKind::New), None, Some(ages(before)));
    let got = concluded(0.8);
    assert_eq!(codes(&got.findings), [FindingCode::Persistence]);
    let finding = &got.findings[0];
    assert_eq!(
        (finding.kind, finding.confidence),
        (FlowKind::Established, Confidence::Likely)
    );
    assert_eq!(
        finding.sentence,
        "gateway/telemetry: established flows keep an earlier split, for pods n2-1 and n2-2 came 5 min ago and hold 13.3 % where \
         50.0 % is ideal: their peak ratio is 1.73 (3,000 flows), that of new flows is 1.33 (6 new flows in 5 min); left alone \
         they fall below 1.05 in about 3.2 h: a maximum connection age or a staggered restart of all pods moves them, new flows \
         alone do not."
    );
    near(
        part(&got.established_causes, Some(FindingCode::Persistence)),
        got.established.theil.unwrap().total,
    );
    // Mostly younger ones: the skew is of now.
    assert_eq!(codes(&concluded(0.4).findings), [FindingCode::LbUneven]);
}

#[test]
fn what_is_left_of_an_earlier_split_is_what_new_flows_have() {
    // New flows: placement, T = 0.0589. Established: twice as uneven and more.
    let input = service(&[&[(2500, 500), (2500, 500)], &[(5000, 9000)]]);
    let got = analysis(&input);
    let (now, then) = (got.new.theil.unwrap().total, got.established.theil.unwrap().total);
    assert_eq!(
        codes(&got.findings),
        [FindingCode::PlacementSkew, FindingCode::Persistence]
    );
    near(
        part(&got.established_causes, Some(FindingCode::Persistence)),
        then - now,
    );
    near(part(&got.established_causes, Some(FindingCode::PlacementSkew)), now);
}

#[test]
fn a_balancer_of_zones_is_told_from_one_of_nodes() {
    let mut input = new_flows(&[&[250; 4], &[250; 4], &[500; 3], &[500; 3], &[500; 2], &[500; 2]]);
    let counts = [250.0, 250.0, 333.4, 333.3, 500.0, 500.0];
    assert_eq!(input.nodes.len(), counts.len());
    for (node, zone) in input.nodes.iter_mut().zip(["a", "a", "a", "b", "b", "c"]) {
        node.zone = zone.to_owned();
    }
    // Zones a, b, c of 3, 2 and 1 nodes get 3,000 each.
    for endpoint in &mut input.endpoints {
        let pods = [4, 4, 3, 3, 2, 2][endpoint.node];
        endpoint.new = [1000, 1000, 1000, 1500, 1500, 3000][endpoint.node] / pods;
    }
    let got = analysis(&input);
    assert_eq!(got.balancer.model, BalancerModel::ZoneEqual, "{:?}", got.balancer);
    near(got.node_expectations[0].zone_equal.unwrap(), 1.0 / 9.0);
    near(got.node_expectations[5].zone_equal.unwrap(), 1.0 / 3.0);
    near(got.expected_shares[0], 1.0 / 36.0);
    let uneven = got
        .findings
        .iter()
        .find(|finding| finding.code == FindingCode::LbUneven)
        .unwrap();
    assert!(
        uneven
            .sentence
            .contains("since it gives each zone the same however many nodes"),
        "{uneven:?}"
    );
    // Without a zone of one node nothing can be said of zones.
    input.nodes[3].zone.clear();
    let got = analysis(&input);
    assert_ne!(got.balancer.model, BalancerModel::ZoneEqual);
    assert_eq!(got.node_expectations[0].zone_equal, None);
}

#[test]
fn clients_that_keep_their_node_show_a_hash_also_where_placement_is_even() {
    let input = new_flows(&[&[500, 500], &[520, 480], &[490, 510]]);
    let mut clients = view(&input);
    clients.node_pairs = (1500, 1490);
    let got = with(&input, clients);
    assert_eq!(got.balancer.model, BalancerModel::SourceHash);
    assert!(got.balancer.log_bayes_factor.unwrap() > 1000.0);
    assert_eq!(got.balancer.candidates[1].model, BalancerModel::EqualPerNode);
    // As often as chance would have it: no hash, and no way to tell equal from weighted.
    let mut clients = view(&input);
    clients.node_pairs = (1500, 500);
    assert_eq!(with(&input, clients).balancer.model, BalancerModel::Undetermined);
    // Too often for chance, too seldom for a hash.
    let mut clients = view(&input);
    clients.node_pairs = (1500, 1380);
    let got = with(&input, clients).balancer;
    assert_eq!(got.model, BalancerModel::NoneFits);
    assert!(got.reason.contains("92.0 % of 1,500 cases"), "{}", got.reason);
}
