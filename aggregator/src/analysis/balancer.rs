//! How does the load balancer split new flows over nodes? Node sums enter; a verdict leaves: the model that explains
//! them, with its Bayes factor, or why none can be named. Also what each model gives each node and endpoint.

use super::shares::Split;
use super::significance::{MIN_FLOWS, REJECT, g_test};
use super::words::{count, list, odds, percent, range};
use crate::report::{BalancerModel, BalancerVerdict, NodeExpectation, Theil};

/// A model is named when it is this many times likelier than the next one ("decisive" on Jeffreys' scale).
const BAYES_FACTOR: f64 = 100.0;

/// Under single-leader the other nodes share this much: flows that were on their way when the leader changed, or that
/// reach a node by its own address.
const LEAK: f64 = 0.01;

/// A model fits when at most this part of the flows would have to go to another node (total variation distance),
/// however many flows there are. With a million flows the G-test rejects any real balancer for a hash that is a
/// fraction of a percent off, and "none fits" would be true and useless.
const FITS_WITHIN: f64 = 0.05;

struct Candidate {
    model: BalancerModel,
    node_shares: Vec<f64>,
    /// Log-likelihood of the node sums, less ln(number of parameters' values tried).
    score: f64,
}

/// Names the model that new flows follow. `silent` are the nodes whose agent does not report.
///
/// Multinomial log-likelihoods of the node sums are compared. Single-leader could have any of N nodes as its leader and
/// is tried with the best, so each is 1/N as likely beforehand. Real flows come in clusters (one client, several
/// flows), which makes a plain Bayes factor too sure of itself; so where the G-test rejects even the best model, the
/// logarithm is divided by the variance inflation G / degrees (quasi-likelihood: McCullagh and Nelder, Generalized
/// Linear Models, chapter 9).
pub(super) fn verdict(split: &Split, silent: &[&str]) -> BalancerVerdict {
    let say = |model, log_bayes_factor, reason| BalancerVerdict {
        model,
        log_bayes_factor,
        flows: split.flows,
        reason,
        candidates: Vec::new(),
    };
    let undetermined = |reason| say(BalancerModel::Undetermined, None, reason);
    let Some(leader) = split.leader() else {
        return undetermined("there are no new flows".to_owned());
    };
    if !silent.is_empty() {
        return undetermined(format!(
            "the flows of {} are unknown: no agent reports there",
            list("node", silent)
        ));
    }
    if split.node_count() == 1 {
        return undetermined(format!("all endpoints are on one node, {}", split.nodes[leader].name));
    }
    if split.flows < MIN_FLOWS {
        return undetermined(format!(
            "{} new flows are too few: {MIN_FLOWS} are needed",
            count(split.flows)
        ));
    }

    let mut candidates = vec![
        candidate(split, BalancerModel::EqualPerNode, split.equal_shares()),
        candidate(split, BalancerModel::SingleLeader, leader_shares(split, leader, LEAK)),
    ];
    if !split.placement_is_even() {
        candidates.push(candidate(split, BalancerModel::Weighted, split.weighted_shares()));
    }
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    let (best, second) = (&candidates[0], &candidates[1]);

    let got = format!(
        "nodes get {} of {} new flows",
        range(&split.node_shares),
        count(split.flows)
    );
    let fit = g_test(&split.node_counts, &best.node_shares);
    let distance = total_variation(&split.node_shares, &best.node_shares);
    if fit.p_value < REJECT && distance > FITS_WITHIN {
        let off = percent(distance);
        let reason = format!(
            "{got}; the nearest model, {}, is off by {off} of the flows",
            best.model.code()
        );
        return say(BalancerModel::NoneFits, None, reason);
    }
    if best.model == BalancerModel::EqualPerNode && split.placement_is_even() {
        return undetermined(format!(
            "placement is even: {got}, as both equal-per-node and weighted would give"
        ));
    }
    // Rejected but near: the flows vary more than independent ones would, so the evidence counts for less.
    let inflation = if fit.p_value < REJECT {
        fit.g / f64::from(fit.degrees)
    } else {
        1.0
    };
    let log_bayes_factor = (best.score - second.score) / inflation;
    let than = format!("{} likelier than {}", odds(log_bayes_factor), second.model.code());
    if log_bayes_factor < BAYES_FACTOR.ln() {
        let reason = format!(
            "{got}; {} is only {than}, {BAYES_FACTOR} times are needed",
            best.model.code()
        );
        return say(BalancerModel::Undetermined, Some(log_bayes_factor), reason);
    }
    let reason = match best.model {
        BalancerModel::SingleLeader => {
            let share = percent(split.node_shares[leader]);
            format!(
                "node {} gets {share} of {} new flows",
                split.nodes[leader].name,
                count(split.flows)
            )
        }
        model => format!("{got}; {} gives {}", model.code(), range(&best.node_shares)),
    };
    say(best.model, Some(log_bayes_factor), format!("{reason}, and is {than}"))
}

/// Share of each endpoint under `model`, equal-per-node when it names no split. Adds up to 1.
pub(super) fn expected_shares(model: BalancerModel, split: &Split) -> Vec<f64> {
    let node_shares = match (model, split.leader()) {
        (BalancerModel::Weighted, _) => split.weighted_shares(),
        (BalancerModel::SingleLeader, Some(leader)) => leader_shares(split, leader, 0.0),
        _ => split.equal_shares(),
    };
    split
        .endpoints
        .iter()
        .map(|e| node_shares[e.node] / f64::from(split.node_endpoints[e.node]))
        .collect()
}

/// What each model gives each node. Without flows nobody leads.
pub(super) fn node_expectations(split: &Split) -> Vec<NodeExpectation> {
    let (equal, weighted, leader) = (split.equal_shares(), split.weighted_shares(), split.leader());
    let of = |node: usize| NodeExpectation {
        equal_per_node: equal[node],
        weighted: weighted[node],
        single_leader: if leader == Some(node) { 1.0 } else { 0.0 },
        zone_equal: None,
    };
    (0..split.node_count()).map(of).collect()
}

/// The node shares from which the balancer's part of the skew is measured: equal, or weighted when the placement part
/// is negative, which shows that the balancer leans toward nodes with more endpoints.
pub(super) fn lb_reference(split: &Split, theil: &Theil) -> Vec<f64> {
    if theil.placement < 0.0 {
        split.weighted_shares()
    } else {
        split.equal_shares()
    }
}

fn candidate(split: &Split, model: BalancerModel, node_shares: Vec<f64>) -> Candidate {
    let terms = split
        .node_counts
        .iter()
        .zip(&node_shares)
        .map(|(x, share)| *x as f64 * share.ln());
    let choices = if model == BalancerModel::SingleLeader {
        split.node_count() as f64
    } else {
        1.0
    };
    Candidate {
        model,
        score: terms.sum::<f64>() - choices.ln(),
        node_shares,
    }
}

/// The leader gets all but `leak`, which the others share. At least 2 nodes, or no leak.
fn leader_shares(split: &Split, leader: usize, leak: f64) -> Vec<f64> {
    let other = if leak > 0.0 {
        leak / (split.node_count() - 1) as f64
    } else {
        0.0
    };
    (0..split.node_count())
        .map(|node| if node == leader { 1.0 - leak } else { other })
        .collect()
}

/// Part of the flows that would have to move to turn one split into the other: half the sum of absolute differences.
fn total_variation(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0
}
