//! Sentences for people. Results of the analysis enter; English with names and numbers leaves. Decides nothing.

use super::Subject;
use super::balancer::lb_reference;
use super::findings::MATERIAL_PEAK_RATIO;
use super::shares::Split;
use super::significance::{REJECT, flows_needed};
use super::theil::within_term;
use super::words::{capitalise, count, list, percent, plural, portion, range, ratio, span};
use crate::report::{BalancerModel, FindingCode, FlowKind, Skew};
use std::collections::BTreeMap;

/// A noise floor above this means that chance alone could hide a skew that people would call one.
const COARSE_FLOOR: f64 = 1.25;

/// The sentence of a cause found in the Theil parts of `subject`, which explains `share` of its skew.
pub(super) fn cause(subject: &Subject, new: &Subject, code: FindingCode, share: f64) -> String {
    let service = &subject.input.service;
    let (who, how) = match code {
        FindingCode::PlacementSkew => ("placement causes", placement(subject)),
        FindingCode::LbSingleLeader => ("the load balancer causes", single_leader(subject.split)),
        FindingCode::LbUneven => ("the load balancer causes", uneven(subject)),
        _ => ("unequal pods on one node cause", within_node(subject.split)),
    };
    let kind = kind(subject.split.kind);
    let (peak, flows) = (ratio(subject.skew.peak_ratio), count(subject.split.flows));
    let mut sentence = format!(
        "{service}: {who} {} of the skew of {kind} flows. {how} (peak ratio {peak}, {flows} flows).",
        portion(share)
    );
    if subject.split.kind == FlowKind::Established {
        let few = format!(
            " From {} in {} it cannot be told whether this goes on.",
            new_flows(new),
            window(subject)
        );
        sentence.push_str(&few);
    }
    sentence
}

/// Established flows keep a split that new ones no longer have.
pub(super) fn persistence(new: &Subject, established: &Subject) -> String {
    format!(
        "{}: established flows keep an earlier split: their peak ratio is {} ({} flows), that of new flows is {} ({} \
         in {}). New flows do not even this out at once: established ones stay on their pods until they close.",
        new.input.service,
        ratio(established.skew.peak_ratio),
        count(established.split.flows),
        ratio(new.skew.peak_ratio),
        count(new.split.flows),
        window(new),
    )
}

/// Nodes whose agent does not report.
pub(super) fn silent(new: &Subject, silent: &[&str]) -> String {
    let hidden = new
        .input
        .endpoints
        .iter()
        .filter(|e| !new.input.nodes[e.node].reporting)
        .count();
    format!(
        "{}: no agent reports from {}: the flows of {} of {} ready pods are unknown, so every share is suspect and no \
         cause of skew is named.",
        new.input.service,
        list("node", silent),
        hidden,
        new.input.endpoints.len(),
    )
}

/// Why there is no finding.
pub(super) fn quiet(new: &Subject, established: &Subject) -> String {
    let service = &new.input.service;
    if new.input.endpoints.is_empty() {
        return format!("{service}: no endpoint is ready.");
    }
    let (now, then) = (new.split.flows, established.split.flows);
    match (now, then) {
        (0, 0) => format!(
            "{service}: no external flow opened in {}, and none is established.",
            window(new)
        ),
        (0, _) => format!(
            "{service}: no external flow opened in {}; {}.",
            window(new),
            state(established)
        ),
        _ if new.skew.test.is_none() && established.skew.test.is_some() => {
            format!("{service}: {}; {}.", state(new), state(established))
        }
        _ => format!("{service}: {}.", state(new)),
    }
}

/// What is known of flows that give no finding; at least one flow and one endpoint.
fn state(subject: &Subject) -> String {
    let Skew {
        flows,
        peak_ratio,
        noise_floor,
        significant,
        test,
        ..
    } = subject.skew;
    let pods = subject.split.endpoint_count();
    let what = match subject.split.kind {
        FlowKind::New => format!("{} in {}", new_flows(subject), window(subject)),
        FlowKind::Established => plural(*flows, "established flow"),
    };
    let (peak, floor) = (ratio(*peak_ratio), ratio(*noise_floor));
    let Some(test) = test else {
        if pods == 1 {
            return format!("its only ready pod has all of {what}; there is nothing to compare it with");
        }
        let needed = count(flows_needed(pods));
        return format!(
            "{what} over {pods} pods are too few to tell skew from chance ({needed} are needed): nothing is concluded"
        );
    };
    let weighted = match subject.model {
        BalancerModel::Weighted => "; the load balancer weights nodes by their pods",
        _ => "",
    };
    if *significant {
        let limit = percent(MATERIAL_PEAK_RATIO - 1.0);
        format!("{what} over {pods} pods are even to within {limit}: peak ratio {peak}{weighted}")
    } else if test.p_value < REJECT {
        let (pod, share) = least(subject.split);
        let ideal = percent(1.0 / pods as f64);
        format!(
            "{what} over {pods} pods are not quite even, but no pod gets more than chance may give (peak ratio {peak}, \
             noise floor {floor}); {pod} gets the least, {share}, where {ideal} is ideal"
        )
    } else if noise_floor.is_some_and(|floor| floor > COARSE_FLOOR) {
        format!(
            "{what} over {pods} pods show no more skew than chance (peak ratio {peak}, noise floor {floor}), but are \
             too few to conclude that shares are even{weighted}"
        )
    } else {
        format!("{what} over {pods} pods are even: peak ratio {peak} is within chance (noise floor {floor}){weighted}")
    }
}

/// Pods by how many share their node: each group's mean share, next to the ideal.
fn placement(subject: &Subject) -> String {
    let split = subject.split;
    // By endpoints on the node: number of nodes, sum of their shares.
    let mut groups: BTreeMap<u32, (u32, f64)> = BTreeMap::new();
    for (on, share) in split.node_endpoints.iter().zip(&split.node_shares) {
        let group = groups.entry(*on).or_default();
        *group = (group.0 + 1, group.1 + share);
    }
    let tell = |(on, (nodes, share)): (&u32, &(u32, f64))| {
        let each = percent(share / f64::from(*nodes) / f64::from(*on));
        match (*on, *nodes) {
            (1, 1) => format!("the pod alone on its node gets {each}"),
            (1, _) => format!("pods alone on their node get {each}"),
            (on, 1) => format!("pods on the node of {on} get {each}"),
            (on, _) => format!("pods on nodes of {on} get {each}"),
        }
    };
    // With many sizes, the two ends tell the story.
    let pods: Vec<String> = match groups.len() {
        0..=3 => groups.iter().map(tell).collect(),
        _ => groups.iter().take(1).chain(groups.iter().last()).map(tell).collect(),
    };
    let nodes = split.node_count();
    let tier1 = match subject.model {
        BalancerModel::EqualPerNode => {
            let (equal, range) = (percent(1.0 / nodes as f64), range(&split.node_shares));
            format!("the load balancer gives each of {nodes} nodes 1/{nodes} = {equal} (measured: {range}); ")
        }
        _ => String::new(),
    };
    let ideal = percent(1.0 / split.endpoint_count() as f64);
    capitalise(&format!("{tier1}{}; ideal is {ideal}", pods.join(", ")))
}

fn single_leader(split: &Split) -> String {
    let Some(leader) = split.leader() else {
        return String::new();
    };
    let on_leader = split.node_endpoints[leader] as usize;
    format!(
        "It sends {} to one node, {}, with {}; {} with {} are left idle",
        percent(split.node_shares[leader]),
        split.nodes[leader].name,
        plural(on_leader as u64, "ready pod"),
        plural(split.node_count() as u64 - 1, "other node"),
        plural((split.endpoint_count() - on_leader) as u64, "ready pod"),
    )
}

/// The nodes farthest above and below what the balancer should give them.
fn uneven(subject: &Subject) -> String {
    let split = subject.split;
    let Some(theil) = subject.skew.theil else {
        return String::new();
    };
    let due = lb_reference(split, &theil);
    // Ties go to the first by name.
    let over = |node: usize| split.node_shares[node] / due[node];
    let first = |a: usize, b: usize| split.nodes[a].name.cmp(&split.nodes[b].name);
    let most = (0..due.len()).max_by(|a, b| over(*a).total_cmp(&over(*b)).then_with(|| first(*b, *a)));
    let least = (0..due.len()).min_by(|a, b| over(*a).total_cmp(&over(*b)).then_with(|| first(*a, *b)));
    let (Some(most), Some(least)) = (most, least) else {
        return String::new();
    };
    let got = |node: usize| percent(split.node_shares[node]);
    let (most_name, least_name) = (&split.nodes[most].name, &split.nodes[least].name);
    let fits = if subject.model == BalancerModel::NoneFits {
        "; no known balancer model fits"
    } else {
        ""
    };
    if theil.placement < 0.0 {
        let (most_due, least_due) = (percent(due[most]), percent(due[least]));
        return format!(
            "By their pods, node {most_name} is due {most_due} and gets {}, node {least_name} is due {least_due} and \
             gets {}{fits}",
            got(most),
            got(least),
        );
    }
    let equal = percent(due[most]);
    format!(
        "Node {most_name} gets {}, node {least_name} {}, where equal is {equal}{fits}",
        got(most),
        got(least)
    )
}

/// The pod that gets the most beyond its part of its node.
fn within_node(split: &Split) -> String {
    let by_term = |a: &usize, b: &usize| {
        let order = within_term(split, *a).total_cmp(&within_term(split, *b));
        order.then_with(|| split.endpoints[*b].pod.cmp(&split.endpoints[*a].pod))
    };
    let Some(top) = (0..split.endpoint_count()).max_by(by_term) else {
        return String::new();
    };
    let (pod, node) = (&split.endpoints[top].pod, split.endpoints[top].node);
    let on_node = split.node_endpoints[node];
    format!(
        "On node {} pod {pod} gets {} of the node's flows where 1/{on_node} = {} is even: session affinity or heavy \
         clients do this",
        split.nodes[node].name,
        percent(split.shares[top] / split.node_shares[node]),
        percent(1.0 / f64::from(on_node)),
    )
}

/// The pod with the smallest share.
fn least<'a>(split: &Split<'a>) -> (&'a str, String) {
    let pods = split.endpoints.iter().zip(&split.shares);
    let least = pods.min_by(|(a, s), (b, t)| s.total_cmp(t).then_with(|| a.pod.cmp(&b.pod)));
    least.map_or(("", percent(0.0)), |(endpoint, share)| {
        (endpoint.pod.as_str(), percent(*share))
    })
}

fn kind(kind: FlowKind) -> &'static str {
    match kind {
        FlowKind::New => "new",
        FlowKind::Established => "established",
    }
}

fn new_flows(subject: &Subject) -> String {
    plural(subject.split.flows, "new flow")
}

fn window(subject: &Subject) -> String {
    span(subject.input.window.to_ms.saturating_sub(subject.input.window.from_ms) / 1000)
}
