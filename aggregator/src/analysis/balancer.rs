//! How does the load balancer split new flows over nodes? Node sums and the returns of clients enter; a verdict leaves:
//! the model that explains them, with its Bayes factor, or why none can be named.

use super::design::{ClientView, Design};
use super::models;
use super::shares::Split;
use super::significance::{MIN_FLOWS, REJECT, g_test};
use super::words::{count, list, odds, percent, plural, range};
use crate::report::{BalancerCandidate, BalancerModel, BalancerVerdict};
use statrs::distribution::{Binomial, DiscreteCDF};

/// A model is named when it is this many times likelier than the next one ("decisive" on the scale of H. Jeffreys, Theory
/// of Probability, 1961, appendix B).
const BAYES_FACTOR: f64 = 100.0;

/// Under single-leader the other nodes share this much: flows that were on their way when the leader changed, or that
/// reach a node by its own address.
const LEAK: f64 = 0.01;

/// Under source-hash a client changes its node this often: the balancer has been configured anew, or has lost a node.
const STRAY: f64 = 0.01;

/// A model fits when at most this part of the flows would have to go to another node (total variation distance),
/// however many flows there are. With a million flows the G-test rejects any real balancer for a hash that is a
/// fraction of a percent off, and "none fits" would be true and useless.
const FITS_WITHIN: f64 = 0.05;

struct Candidate {
    model: BalancerModel,
    node_shares: Vec<f64>,
    /// Logarithm of the likelihood over that of the node shares as they are, less ln(number of parameters' values tried).
    score: f64,
    /// Of the G-test of the node sums.
    g_per_degree: f64,
    p_value: f64,
}

/// What a verdict is made from.
pub(super) struct Evidence<'a> {
    pub split: &'a Split<'a>,
    pub design: Design,
    /// `None` when clients are not known, or not those of these flows.
    pub view: Option<&'a ClientView>,
    /// Nodes whose agent does not report.
    pub silent: &'a [&'a str],
}

/// Names the model that new flows follow.
///
/// Multinomial log-likelihoods of the node sums are compared, at their effective size. Single-leader could have any of N
/// nodes as its leader and is tried with the best, so each is 1/N as likely beforehand. Source-hash and equal-per-node give
/// nodes the same; between them the returns of clients decide: from one open of a client to its next it keeps its node with
/// probability 1 - [`STRAY`] under source-hash (a Markov chain), and 1/N when flows are independent.
///
/// Real flows come in clusters that nobody knows of, which makes a plain Bayes factor too sure of itself; so where the G-test
/// rejects even the best model, the logarithm is divided by the variance inflation G / degrees (quasi-likelihood:
/// P. McCullagh and J. A. Nelder, Generalized Linear Models, 1989, chapter 9).
pub(super) fn verdict(evidence: &Evidence) -> BalancerVerdict {
    let verdict = |model, log_bayes_factor, reason, candidates| BalancerVerdict {
        model,
        log_bayes_factor,
        flows: evidence.split.flows,
        reason,
        candidates,
    };
    let (leader, candidates) = match candidates(evidence) {
        Ok(found) => found,
        Err(reason) => return verdict(BalancerModel::Undetermined, None, reason, Vec::new()),
    };
    let best = &candidates[0];
    // Rejected but near: the flows vary more than independent ones would, so the evidence counts for less.
    let inflation = if best.p_value < REJECT { best.g_per_degree } else { 1.0 };
    let (model, log_bayes_factor, reason) = judge(evidence, leader, &candidates, inflation);
    let told = candidates.iter().map(|candidate| BalancerCandidate {
        model: candidate.model,
        log_bayes_factor: (candidate.score - best.score) / inflation,
        p_value: candidate.p_value,
    });
    verdict(model, log_bayes_factor, reason, told.collect())
}

/// The verdict over at least two candidates, likeliest first: model, logarithm of the Bayes factor, reason.
fn judge(
    evidence: &Evidence,
    leader: usize,
    candidates: &[Candidate],
    inflation: f64,
) -> (BalancerModel, Option<f64>, String) {
    let split = evidence.split;
    let (best, second) = (&candidates[0], &candidates[1]);
    let flows = count(split.flows);
    let got = format!("nodes get {} of {flows} new flows", range(&split.node_shares));
    let led = || {
        let (name, share) = (&split.nodes[leader].name, percent(split.node_shares[leader]));
        format!("node {name} gets {share} of {flows} new flows")
    };
    if let Some(clients) = too_few_clients(evidence, leader) {
        let reason = format!(
            "{}, but they come from about {}: too few to tell single-leader from source-hash",
            led(),
            plural(clients.round() as u64, "client")
        );
        return (BalancerModel::Undetermined, None, reason);
    }
    let distance = total_variation(&split.node_shares, &best.node_shares);
    if best.p_value < REJECT && distance > FITS_WITHIN {
        let (nearest, off) = (best.model.code(), percent(distance));
        let reason = format!("{got}; the nearest model, {nearest}, is off by {off} of the flows");
        return (BalancerModel::NoneFits, None, reason);
    }
    if best.model == BalancerModel::EqualPerNode && split.placement_is_even() {
        let reason = format!("placement is even: {got}, as both equal-per-node and weighted would give");
        return (BalancerModel::Undetermined, None, reason);
    }
    let log_bayes_factor = (best.score - second.score) / inflation;
    let than = format!("{} likelier than {}", odds(log_bayes_factor), second.model.code());
    if log_bayes_factor < BAYES_FACTOR.ln() {
        let name = best.model.code();
        let reason = format!("{got}; {name} is only {than}, {BAYES_FACTOR} times are needed");
        return (BalancerModel::Undetermined, Some(log_bayes_factor), reason);
    }
    let reason = match (best.model, evidence.view) {
        (BalancerModel::SingleLeader, _) => led(),
        (BalancerModel::SourceHash, Some(view)) => {
            let (pairs, same) = view.node_pairs;
            let kept = format!(
                "{got}; a client that comes back finds the same node in {} of {}",
                percent(same as f64 / pairs as f64),
                plural(pairs, "case")
            );
            if !hash_fits(pairs, same) {
                let reason = format!("{kept}: too often for flows that are independent, too seldom for source-hash");
                return (BalancerModel::NoneFits, None, reason);
            }
            kept
        }
        (model, _) => format!("{got}; {} gives {}", model.code(), range(&best.node_shares)),
    };
    (best.model, Some(log_bayes_factor), format!("{reason}, and is {than}"))
}

/// The models that can be told apart, likeliest first and at least two, and the node with most flows; or why there is
/// nothing to compare.
fn candidates(evidence: &Evidence) -> Result<(usize, Vec<Candidate>), String> {
    let Evidence {
        split,
        design,
        view,
        silent,
    } = evidence;
    let leader = split.leader().ok_or("there are no new flows")?;
    if !silent.is_empty() {
        let nodes = list("node", silent);
        return Err(format!("the flows of {nodes} are unknown: no agent reports there"));
    }
    if split.node_count() == 1 {
        return Err(format!("all endpoints are on one node, {}", split.nodes[leader].name));
    }
    if split.flows < MIN_FLOWS {
        let flows = count(split.flows);
        return Err(format!("{flows} new flows are too few: {MIN_FLOWS} are needed"));
    }
    let candidate = |model, node_shares: Vec<f64>, bonus: f64| {
        let test = g_test(&split.node_counts, &node_shares, design.nodes);
        Candidate {
            model,
            // G is twice the logarithm of that ratio.
            score: bonus - test.g / 2.0,
            node_shares,
            g_per_degree: test.g / f64::from(test.degrees),
            p_value: test.p_value,
        }
    };
    let nodes = split.node_count() as f64;
    let equal = models::equal(split);
    let mut all = vec![candidate(
        BalancerModel::SingleLeader,
        models::leader(split, leader, LEAK),
        -nodes.ln(),
    )];
    if !split.placement_is_even() {
        all.push(candidate(BalancerModel::Weighted, models::weighted(split), 0.0));
    }
    if let Some(shares) = models::zone_equal(split).filter(|shares| !models::same(shares, &equal)) {
        all.push(candidate(BalancerModel::ZoneEqual, shares, 0.0));
    }
    if let Some((pairs, same)) = view.map(|view| view.node_pairs).filter(|(pairs, _)| *pairs > 0) {
        let stayed = same as f64 * ((1.0 - STRAY) * nodes).ln();
        let left = pairs.saturating_sub(same) as f64 * (STRAY / (1.0 - 1.0 / nodes)).ln();
        all.push(candidate(BalancerModel::SourceHash, equal.clone(), stayed + left));
    }
    all.push(candidate(BalancerModel::EqualPerNode, equal, 0.0));
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok((leader, all))
}

/// The effective number of clients, when one node has all flows and so few clients could all have been hashed to it: C of them
/// by chance with 1/N^(C - 1), which is then not below one in [`BAYES_FACTOR`].
fn too_few_clients(evidence: &Evidence, leader: usize) -> Option<f64> {
    let clients = evidence.view?.clients.effective?.value;
    let against = (clients - 1.0) * (evidence.split.node_count() as f64).ln();
    let led = evidence.split.node_shares[leader] >= 1.0 - LEAK - FITS_WITHIN;
    (led && against < BAYES_FACTOR.ln()).then_some(clients)
}

/// Do clients keep their node as often as under source-hash: nearly, or as far as so few returns tell?
fn hash_fits(pairs: u64, same: u64) -> bool {
    let near = same as f64 >= (1.0 - STRAY - FITS_WITHIN) * pairs as f64;
    near || Binomial::new(1.0 - STRAY, pairs).is_ok_and(|kept| kept.cdf(same) >= REJECT)
}

/// Part of the flows that would have to move to turn one split into the other: half the sum of absolute differences.
fn total_variation(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0
}
