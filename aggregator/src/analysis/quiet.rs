//! Nothing is wrong: is it even, or is too little known? Both kinds of flows enter; the code and the sentence leave.

use super::MATERIAL_PEAK_RATIO;
use super::shares::Split;
use super::significance::{REJECT, flows_needed};
use super::subject::Subject;
use super::words::{chance, count, percent, plural, ratio, sample, window};
use crate::report::{BalancerModel, Confidence, FindingCode};

/// A noise floor above this means that chance alone could hide a skew that people would call one.
const COARSE_FLOOR: f64 = 1.25;

/// What to say when nothing is wrong.
pub(super) struct Quiet<'a> {
    pub code: FindingCode,
    pub sentence: String,
    pub confidence: Confidence,
    /// The flows that it rests on.
    pub subject: &'a Subject<'a>,
}

/// Even, or insufficient data; of new flows, or of established ones where only these tell.
pub(super) fn quiet<'a>(new: &'a Subject<'a>, established: &'a Subject<'a>) -> Quiet<'a> {
    let service = &new.input.service;
    if new.input.endpoints.is_empty() {
        return Quiet {
            code: FindingCode::InsufficientData,
            sentence: format!("{service}: no endpoint is ready."),
            confidence: Confidence::Certain,
            subject: new,
        };
    }
    let none = format!("no external flow opened in {}", window(new));
    let told = |subject| {
        let (code, confidence, state) = state(subject);
        (code, confidence, state, subject)
    };
    let (now, then) = (new.split.flows, established.split.flows);
    let (code, confidence, text, subject) = match (now, then) {
        (0, 0) => (
            FindingCode::InsufficientData,
            Confidence::Certain,
            format!("{none}, and none is established"),
            new,
        ),
        (0, _) => {
            let (code, confidence, state, subject) = told(established);
            (code, confidence, format!("{none}; {state}"), subject)
        }
        _ if new.skew.test.is_none() && established.skew.test.is_some() => {
            let (code, confidence, then, subject) = told(established);
            (code, confidence, format!("{}; {then}", state(new).2), subject)
        }
        _ => told(new),
    };
    Quiet {
        code,
        sentence: format!("{service}: {text}."),
        confidence,
        subject,
    }
}

/// What is known of flows that give no finding; at least one flow and one endpoint.
fn state(subject: &Subject) -> (FindingCode, Confidence, String) {
    let skew = subject.skew;
    let (pods, what) = (subject.split.endpoint_count(), sample(subject));
    let (peak, floor) = (ratio(skew.peak_ratio), ratio(skew.noise_floor));
    if pods == 1 {
        let text = format!("its only ready pod has all of {what}: there is nothing to compare it with");
        return (FindingCode::Even, Confidence::Certain, text);
    }
    let independent = if skew.effective_flows < subject.split.flows as f64 {
        let flows = plural(skew.effective_flows as u64, "independent flow");
        format!(", which say as much as {flows} since clients stay where they are,")
    } else {
        String::new()
    };
    let Some(test) = skew.test else {
        let needed = count(flows_needed(pods));
        let text = format!(
            "{what} over {pods} pods{independent} are too few to tell skew from chance ({needed} are needed): nothing is \
             concluded"
        );
        return (FindingCode::InsufficientData, Confidence::Certain, text);
    };
    let weighted = match subject.balancer.model {
        BalancerModel::Weighted => "; the load balancer weights nodes by their pods",
        _ => "",
    };
    let limit = percent(MATERIAL_PEAK_RATIO - 1.0);
    if skew.significant {
        let text = format!("{what} over {pods} pods are even to within {limit}: peak ratio {peak}{weighted}");
        (FindingCode::Even, Confidence::High, text)
    } else if test.p_value < REJECT {
        let (pod, share) = least(subject.split);
        let ideal = percent(1.0 / pods as f64);
        let text = format!(
            "{what} over {pods} pods{independent} are not quite even, but no pod gets more than chance may give (peak ratio \
             {peak}, noise floor {floor}); {pod} gets the least, {share}, where {ideal} is ideal"
        );
        (FindingCode::Even, Confidence::Likely, text)
    } else if skew.noise_floor.is_some_and(|floor| floor > COARSE_FLOOR) {
        let text = format!(
            "{what} over {pods} pods{independent} show no more skew than chance (peak ratio {peak}, noise floor {floor}), but \
             are too few to conclude that shares are even{weighted}: a longer window has more"
        );
        (FindingCode::InsufficientData, Confidence::Certain, text)
    } else {
        let text = format!(
            "{what} over {pods} pods{independent} are even: peak ratio {peak} is within chance (noise floor {floor}, {}){weighted}",
            chance(test.p_value)
        );
        (FindingCode::Even, Confidence::Likely, text)
    }
}

/// The pod with the smallest share.
fn least<'a>(split: &Split<'a>) -> (&'a str, String) {
    let pods = split.endpoints.iter().zip(&split.shares);
    let least = pods.min_by(|(a, s), (b, t)| s.total_cmp(t).then_with(|| a.pod.cmp(&b.pod)));
    least.map_or(("", percent(0.0)), |(endpoint, share)| {
        (endpoint.pod.as_str(), percent(*share))
    })
}
