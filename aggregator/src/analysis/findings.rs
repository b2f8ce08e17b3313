//! What is wrong, or why nothing is? Both kinds of flows enter, with their skew and verdict; findings leave, ranked and never
//! empty, and the causes of both kinds.

use super::causes::{Part, causes, named};
use super::earlier::{self, Earlier};
use super::quiet::quiet;
use super::significance::REJECT;
use super::subject::Subject;
use super::{MATERIAL_PEAK_RATIO, bound, evidence, sentences};
use crate::report::{AffinityCode, BalancerModel, Cause, Confidence, Finding, FindingCode, Persistence, Skew};

/// What was found.
pub(super) struct Found {
    /// Largest first; at least one.
    pub findings: Vec<Finding>,
    pub causes: Vec<Cause>,
    pub established_causes: Vec<Cause>,
}

/// All findings: new flows first, because what splits them now goes on; largest share first within a kind.
///
/// With silent nodes the only finding is that they are silent. Established flows get a finding of their own only when
/// those of the new flows do not explain them: persistence, or else the causes in their own parts, when new flows show none.
/// Nothing wrong: one finding that says so, or that too little is known.
pub(super) fn findings(new: &Subject, established: &Subject, ages: Option<&Persistence>, silent: &[&str]) -> Found {
    let (new_parts, established_parts) = (named(new), named(established));
    let past = earlier::earlier(new, established, ages).filter(|_| established.skew.significant);
    let mut found = Found {
        findings: Vec::new(),
        causes: all_causes(new.skew, &new_parts),
        established_causes: all_causes(
            established.skew,
            &with_past(new, established, &new_parts, established_parts.clone(), past),
        ),
    };
    if !silent.is_empty() {
        let sentence = sentences::silent(new, silent);
        found.findings.push(Finding {
            confidence: Confidence::Certain,
            ..finding(new, FindingCode::NodeSilent, sentence)
        });
        return found;
    }
    let of = |subject, parts: &[Part]| -> Vec<Finding> {
        let material = parts.iter().filter(|part| is_fault(subject, part));
        material.map(|part| fault(subject, new, part)).collect()
    };
    found.findings = of(new, &new_parts);
    let new_explains = !found.findings.is_empty();
    found.findings.extend(broken(new));
    if let Some(past) = past.filter(|_| is_material(established)) {
        let mut evidence = vec![format!(
            "Chance does not set the established flows apart: {}.",
            super::words::chance(past.p_value)
        )];
        evidence.extend(earlier::evidence(ages));
        found.findings.push(Finding {
            share_of_skew: Some(past.share),
            confidence: past.confidence,
            evidence,
            ..finding(
                established,
                FindingCode::Persistence,
                earlier::sentence(new, established, ages),
            )
        });
    } else if !new_explains {
        found.findings.extend(of(established, &established_parts));
    }
    if found.findings.is_empty() {
        let quiet = quiet(new, established);
        found.findings.push(Finding {
            confidence: quiet.confidence,
            ..finding(quiet.subject, quiet.code, quiet.sentence)
        });
        if quiet.code == FindingCode::Even {
            found.findings.extend(weighted(new));
        }
    }
    found
}

fn all_causes(skew: &Skew, parts: &[Part]) -> Vec<Cause> {
    skew.theil.map_or_else(Vec::new, |theil| causes(theil.total, parts))
}

/// The parts of established flows: of the past, and for the rest those of new flows, in their proportions.
fn with_past(
    new: &Subject,
    established: &Subject,
    new_parts: &[Part],
    own: Vec<Part>,
    past: Option<Earlier>,
) -> Vec<Part> {
    let (Some(past), Some(then)) = (past, established.skew.theil) else {
        return own;
    };
    let rest = then.total * (1.0 - past.share);
    let now = new.skew.theil.map_or(0.0, |theil| theil.total);
    let mut parts = vec![Part {
        code: FindingCode::Persistence,
        nats: then.total * past.share,
        share: past.share,
        p_value: past.p_value,
    }];
    if now > 0.0 && new.skew.test.is_some() {
        parts.extend(new_parts.iter().map(|part| Part {
            nats: part.nats / now * rest,
            share: part.nats / now * (1.0 - past.share),
            ..*part
        }));
    }
    parts
}

/// True when the peak is worth a word: with millions of flows a difference of one percent is more than chance, and nothing that
/// anybody should act on.
fn is_material(subject: &Subject) -> bool {
    subject.skew.peak_ratio.is_some_and(|peak| peak >= MATERIAL_PEAK_RATIO)
}

/// A pod without flows is wrong however little it raises the peak of the others.
fn is_fault(subject: &Subject, part: &Part) -> bool {
    part.code.is_fault() && (part.code == FindingCode::EndpointIdle || is_material(subject))
}

fn fault(subject: &Subject, new: &Subject, part: &Part) -> Finding {
    let exact = |view: &super::design::ClientView| view.clients.sampling_shift == 0 && view.clients.missing == 0;
    let confidence = match part.code {
        FindingCode::ClientConcentration if subject.view.is_some_and(exact) => Confidence::Certain,
        _ if part.p_value < REJECT => Confidence::High,
        _ => Confidence::Likely,
    };
    Finding {
        share_of_skew: Some(part.share),
        confidence,
        evidence: evidence::of(subject, part),
        ..finding(subject, part.code, sentences::cause(subject, new, part))
    }
}

/// Session affinity is asked for and does not hold. It needs no skew.
fn broken(new: &Subject) -> Option<Finding> {
    let affinity = &new.view?.affinity;
    let breaks = affinity.breaks.filter(|_| affinity.code == AffinityCode::Broken)?;
    Some(Finding {
        confidence: Confidence::High,
        ..finding(new, FindingCode::AffinityBroken, bound::broken(new, &breaks))
    })
}

/// Good to know: the balancer evens out an uneven placement.
fn weighted(new: &Subject) -> Option<Finding> {
    (new.balancer.model == BalancerModel::Weighted).then(|| Finding {
        confidence: Confidence::High,
        evidence: vec![new.balancer.reason.clone()],
        ..finding(new, FindingCode::LbWeighted, sentences::weighted(new))
    })
}

fn finding(subject: &Subject, code: FindingCode, sentence: String) -> Finding {
    Finding {
        code,
        sentence,
        share_of_skew: None,
        kind: subject.split.kind,
        flows: subject.split.flows,
        confidence: Confidence::Likely,
        evidence: Vec::new(),
    }
}
