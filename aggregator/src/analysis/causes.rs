//! What is the skew made of? One kind of flows enters; the parts of its Theil index leave, each with its cause, and they add
//! up to it.

use super::design::ClientView;
use super::idle::idle_endpoints;
use super::models::lb_reference;
use super::shares::Split;
use super::significance::{REJECT, g_test, within_node_p_value};
use super::subject::Subject;
use super::theil::theil_without;
use crate::report::{BalancerModel, Cause, FindingCode, FlowKind, Theil};
use statrs::distribution::{ContinuousCDF, Normal};

/// A part of the Theil index is named as a cause when it is at least this much of the total.
const MATERIAL_SHARE: f64 = 0.05;

/// Parts below this many nats are rounding.
const ROUNDING: f64 = 1e-12;

/// A part of the Theil index that has a cause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Part {
    pub code: FindingCode,
    /// The part, in nats, not negative.
    pub nats: f64,
    /// The part over the index, 0 to 1.
    pub share: f64,
    /// Probability that chance gives as much.
    pub p_value: f64,
}

/// The parts that are named, largest first, of a kind of flows with a Theil index.
///
/// The tiers give them. Under single-leader the balancer causes the placement part too: where other endpoints are makes no
/// difference. A negative placement part means that the balancer leans toward nodes with more endpoints and so corrects the
/// placement: it is taken off the balancer's part, which is then what the balancer leaves uncorrected. Of the balancer's and
/// the within-node part, heavy clients cause what goes away without their flows, where clients keep their place.
///
/// Named is what is more than chance and at least [`MATERIAL_SHARE`] of the whole, and an idle endpoint in any case. Heavy and
/// bound clients are held against chance as counted, all else at the effective size. When the whole is more than chance but no
/// part is on its own, the largest is the best answer.
pub(super) fn named(subject: &Subject) -> Vec<Part> {
    let Some(theil) = subject.skew.theil.filter(|_| subject.testable) else {
        return Vec::new();
    };
    let mut parts = all(subject, &theil);
    parts.retain(|part| part.nats > ROUNDING || part.code == FindingCode::LbWeighted);
    parts.sort_by(|a, b| b.nats.total_cmp(&a.nats).then(a.code.cmp(&b.code)));
    let as_counted = subject.uneven_as_counted();
    let holds = |part: &Part| match part.code {
        FindingCode::LbWeighted => true,
        FindingCode::EndpointIdle => part.p_value < REJECT,
        FindingCode::ClientConcentration | FindingCode::AffinityPinning => {
            as_counted && part.p_value < REJECT && part.share >= MATERIAL_SHARE
        }
        _ => subject.skew.significant && part.p_value < REJECT && part.share >= MATERIAL_SHARE,
    };
    let faulty = |part: &Part| part.code.is_fault() && holds(part);
    if subject.skew.significant && !parts.iter().any(faulty) {
        // The largest of the whole that is not explained away.
        let first = parts.iter().position(|part| part.code.is_fault());
        let first = first.map(|at| parts[at].code);
        parts.retain(|part| holds(part) || Some(part.code) == first);
    } else {
        parts.retain(holds);
    }
    parts
}

/// All causes of `total` nats, largest first, of which `parts` are named. What is left has no code: chance, or nothing that
/// is known.
pub(super) fn causes(total: f64, parts: &[Part]) -> Vec<Cause> {
    let share = |nats: f64| (total > 0.0).then(|| nats / total);
    let mut causes: Vec<Cause> = parts
        .iter()
        .map(|part| Cause {
            code: Some(part.code),
            nats: part.nats,
            share: share(part.nats),
        })
        .collect();
    let rest = total - parts.iter().map(|part| part.nats).sum::<f64>();
    if rest.abs() > ROUNDING || causes.is_empty() {
        causes.push(Cause {
            code: None,
            nats: rest,
            share: share(rest),
        });
    }
    causes.sort_by(|a, b| b.nats.total_cmp(&a.nats).then(a.code.cmp(&b.code)));
    causes
}

/// The Theil index by who can cause it: where pods are, the balancer, and what happens within nodes.
#[derive(Debug, Clone, Copy)]
struct Tiers {
    placement: f64,
    balancer: f64,
    within: f64,
}

fn tiers(theil: &Theil, single_leader: bool) -> Tiers {
    let placement = if single_leader { 0.0 } else { theil.placement.max(0.0) };
    Tiers {
        placement,
        // Not negative but for rounding: load_balancer + placement is the divergence of the node sums from n_v / P.
        balancer: (theil.load_balancer + theil.placement - placement).max(0.0),
        within: theil.within_node,
    }
}

fn all(subject: &Subject, theil: &Theil) -> Vec<Part> {
    let (split, design) = (subject.split, &subject.design);
    let of = |code, nats: f64, p_value| Part {
        code,
        nats,
        share: if theil.total > 0.0 {
            (nats / theil.total).clamp(0.0, 1.0)
        } else {
            0.0
        },
        p_value,
    };
    let model = subject.balancer.model;
    let single_leader = model == BalancerModel::SingleLeader;
    let mut left = tiers(theil, single_leader);
    let mut parts = Vec::new();

    if let Some((balancer, within)) = subject
        .view
        .and_then(|view| concentrated(split, view, &left, single_leader))
    {
        left.balancer -= balancer;
        left.within -= within;
        let p_value = if balancer > within {
            nodes_p_value(split, theil, 1.0)
        } else {
            within_node_p_value(split, 1.0)
        };
        parts.push(of(FindingCode::ClientConcentration, balancer + within, p_value));
    }
    if split.kind == FlowKind::New {
        let idle = idle_endpoints(subject);
        let nats = idle.nats.min(left.within);
        left.within -= nats;
        parts.push(of(FindingCode::EndpointIdle, nats, idle.p_value));
    }
    parts.push(if subject.view.is_some_and(ClientView::pods_kept) {
        of(
            FindingCode::AffinityPinning,
            left.within,
            within_node_p_value(split, 1.0),
        )
    } else {
        of(
            FindingCode::WithinNodeSkew,
            left.within,
            within_node_p_value(split, design.within),
        )
    });
    parts.push(of(
        FindingCode::PlacementSkew,
        left.placement,
        placement_p_value(split, theil, design.nodes),
    ));
    let uneven = nodes_p_value(split, theil, design.nodes);
    parts.push(if single_leader {
        // The verdict is the test.
        of(FindingCode::LbSingleLeader, left.balancer, 0.0)
    } else if model == BalancerModel::Weighted && uneven >= REJECT {
        of(FindingCode::LbWeighted, left.balancer, uneven)
    } else {
        of(FindingCode::LbUneven, left.balancer, uneven)
    });
    parts
}

/// What goes of the balancer's and of the within-node part without the flows of heavy clients, where clients keep their place.
/// None without heavy clients.
fn concentrated(split: &Split, view: &ClientView, tier: &Tiers, single_leader: bool) -> Option<(f64, f64)> {
    let new = |e: usize| split.endpoints[e].new as f64;
    // Of established flows nobody knows whose they are: their clients are taken for those of the new ones.
    let part = |e: usize| match split.kind {
        FlowKind::New => view.heavy[e],
        FlowKind::Established if new(e) > 0.0 => split.counts[e] as f64 * (view.heavy[e] / new(e)).min(1.0),
        FlowKind::Established => 0.0,
    };
    let heavy: Vec<f64> = (0..view.heavy.len().min(split.endpoint_count())).map(part).collect();
    if heavy.len() != split.endpoint_count() || heavy.iter().all(|flows| *flows <= 0.0) {
        return None;
    }
    let without = theil_without(split, &heavy).map(|theil| tiers(&theil, single_leader));
    let gone = |with: f64, without: Option<f64>| (with - without.unwrap_or(0.0)).clamp(0.0, with);
    let balancer = if view.nodes_kept() && !single_leader {
        gone(tier.balancer, without.map(|tiers| tiers.balancer))
    } else {
        0.0
    };
    let within = if view.pods_kept() {
        gone(tier.within, without.map(|tiers| tiers.within))
    } else {
        0.0
    };
    Some((balancer, within))
}

/// p-value of the nodes' sums against the split that the balancer's part is measured from.
fn nodes_p_value(split: &Split, theil: &Theil, deff: f64) -> f64 {
    if split.node_count() < 2 {
        return 1.0;
    }
    g_test(&split.node_counts, &lb_reference(split, theil), deff).p_value
}

/// p-value of a placement part that is 0 or less.
///
/// The part is the mean of ln(P / (N n_v)) over flows, so its standard error is that of a mean, at the effective size, and the
/// test is one-sided.
fn placement_p_value(split: &Split, theil: &Theil, deff: f64) -> f64 {
    let even = split.endpoint_count() as f64 / split.node_count() as f64;
    let terms = split.node_shares.iter().zip(&split.node_endpoints);
    let square: f64 = terms
        .map(|(share, on)| share * (even / f64::from(*on)).ln().powi(2))
        .sum();
    let variance = (square - theil.placement.powi(2)).max(0.0) * deff / split.flows as f64;
    if theil.placement <= 0.0 {
        return 1.0;
    }
    if variance <= 0.0 {
        return 0.0;
    }
    Normal::standard().sf(theil.placement / variance.sqrt())
}
