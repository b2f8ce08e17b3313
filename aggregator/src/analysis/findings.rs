//! What causes the skew? Both kinds of flows enter, with their skew and verdict; findings leave, ranked.

use super::balancer::lb_reference;
use super::significance::{REJECT, g_test, same_split, within_node_p_value};
use super::{Subject, sentences};
use crate::report::{BalancerModel, Confidence, Finding, FindingCode, Theil};

/// Skew is worth a finding from this peak ratio on. With millions of flows a difference of one percent is more than
/// chance, and nothing that anybody should act on.
pub(super) const MATERIAL_PEAK_RATIO: f64 = 1.05;

/// A part of the Theil index is named as a cause when it is at least this much of the total.
const MATERIAL_SHARE: f64 = 0.05;

/// A part that is a mean is more than 0 when it is this many standard errors above it: one-sided p = [`REJECT`].
const STANDARD_ERRORS: f64 = 3.09;

/// A cause and the part of the skew that it explains.
struct Cause {
    code: FindingCode,
    share: f64,
    /// The data show that this part is not chance.
    sure: bool,
}

/// All findings: new flows first, because what splits them now goes on; largest share first within a kind.
///
/// With silent nodes the only finding is that they are silent. Established flows get a finding of their own only when
/// those of the new flows do not explain them: persistence, when new flows are seen to split otherwise and less
/// unevenly; else the causes in their own parts, when new flows are too few to show a skew.
pub(super) fn findings(new: &Subject, established: &Subject, silent: &[&str]) -> Vec<Finding> {
    if !silent.is_empty() {
        return vec![finding(
            new,
            FindingCode::NodeSilent,
            None,
            sentences::silent(new, silent),
        )];
    }
    let mut found = if is_material(new) {
        attribute(new, new)
    } else {
        Vec::new()
    };
    if is_material(established) {
        if let Some(share) = persistence(new, established) {
            let sentence = sentences::persistence(new, established);
            found.push(finding(established, FindingCode::Persistence, Some(share), sentence));
        } else if !new.skew.significant {
            found.extend(attribute(established, new));
        }
    }
    found
}

fn is_material(subject: &Subject) -> bool {
    subject.skew.significant && subject.skew.peak_ratio.is_some_and(|peak| peak >= MATERIAL_PEAK_RATIO)
}

fn attribute(subject: &Subject, new: &Subject) -> Vec<Finding> {
    let causes = subject
        .skew
        .theil
        .map(|theil| causes(subject, &theil))
        .unwrap_or_default();
    let tell = |c: Cause| {
        finding(
            subject,
            c.code,
            Some(c.share),
            sentences::cause(subject, new, c.code, c.share),
        )
    };
    causes.into_iter().map(tell).collect()
}

fn finding(subject: &Subject, code: FindingCode, share_of_skew: Option<f64>, sentence: String) -> Finding {
    Finding {
        code,
        sentence,
        share_of_skew,
        kind: subject.split.kind,
        flows: subject.split.flows,
        confidence: Confidence::High,
        evidence: Vec::new(),
    }
}

/// The causes of a significant skew, at least one, largest first.
///
/// Shares are parts of the Theil index over the total, each 0 to 1, and together at most 1 before small ones are left
/// out. A negative placement part means that the balancer leans toward nodes with more endpoints and so corrects the
/// placement: it is taken off the balancer's part, which is then what the balancer leaves uncorrected. Under a single
/// leader the balancer causes the placement part too: where other endpoints are makes no difference.
fn causes(subject: &Subject, theil: &Theil) -> Vec<Cause> {
    let split = subject.split;
    let of = |code, nats: f64, sure| Cause {
        code,
        share: (nats / theil.total).clamp(0.0, 1.0),
        sure,
    };
    let mut causes = if subject.model == BalancerModel::SingleLeader {
        vec![of(
            FindingCode::LbSingleLeader,
            theil.load_balancer + theil.placement,
            true,
        )]
    } else {
        let uneven = g_test_of_nodes(subject, theil) < REJECT;
        vec![
            of(
                FindingCode::PlacementSkew,
                theil.placement,
                placement_is_sure(subject, theil),
            ),
            of(
                FindingCode::LbUneven,
                theil.load_balancer + theil.placement.min(0.0),
                uneven,
            ),
        ]
    };
    causes.push(of(
        FindingCode::WithinNodeSkew,
        theil.within_node,
        within_node_p_value(split) < REJECT,
    ));
    causes.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.code.cmp(&b.code)));
    // When the whole is more than chance but no part is on its own, the largest is the best answer.
    let named = |c: &Cause| c.sure && c.share >= MATERIAL_SHARE;
    if causes.iter().any(named) {
        causes.retain(named);
    } else {
        causes.truncate(1);
    }
    causes
}

/// p-value of the nodes' sums against the split that the balancer's part is measured from.
fn g_test_of_nodes(subject: &Subject, theil: &Theil) -> f64 {
    if subject.split.node_count() < 2 {
        return 1.0;
    }
    g_test(&subject.split.node_counts, &lb_reference(subject.split, theil)).p_value
}

/// The placement part is a mean, of ln(P / (N n_v)) over flows, so its standard error follows from its spread.
fn placement_is_sure(subject: &Subject, theil: &Theil) -> bool {
    let split = subject.split;
    let even = split.endpoint_count() as f64 / split.node_count() as f64;
    let terms = split.node_shares.iter().zip(&split.node_endpoints);
    let square: f64 = terms
        .map(|(share, on)| share * (even / f64::from(*on)).ln().powi(2))
        .sum();
    let variance = (square - theil.placement.powi(2)).max(0.0) / split.flows as f64;
    theil.placement > STANDARD_ERRORS * variance.sqrt()
}

/// The part of the established skew that new flows no longer have; None unless new flows are enough to be tested, are
/// even or at most half as uneven, and are seen not to follow the established split.
fn persistence(new: &Subject, established: &Subject) -> Option<f64> {
    new.skew.test?;
    let (now, then) = (new.skew.theil?.total, established.skew.theil?.total);
    let clearly_less = now < then && (!new.skew.significant || now <= then / 2.0);
    let differs = same_split(&new.split.counts, &established.split.counts) < REJECT;
    (clearly_less && differs).then(|| (1.0 - now / then).clamp(0.0, 1.0))
}
