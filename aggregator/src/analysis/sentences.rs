//! Sentences about faults, for people on call: names, numbers, what they mean, and what to do where it is plain. Results of
//! the analysis enter; one English sentence each leaves. Decides nothing.

use super::causes::Part;
use super::idle::idle_endpoints;
use super::models::lb_reference;
use super::shares::Split;
use super::subject::Subject;
use super::theil::within_term;
use super::words::{count, list, percent, plural, portion, range, ratio, sample};
use super::{bound, words};
use crate::report::{BalancerModel, FindingCode, FlowKind};
use std::collections::BTreeMap;

/// A cause of the skew of `subject`.
pub(super) fn cause(subject: &Subject, new: &Subject, part: &Part) -> String {
    let (how, what_to_do) = match part.code {
        FindingCode::PlacementSkew => (
            placement(subject),
            "spread the pods one per node; more replicas or restarts of the hot pods do not help",
        ),
        FindingCode::LbSingleLeader => (
            single_leader(subject),
            "a balancer in layer 2 mode does this by design, one that routes to all nodes does not",
        ),
        FindingCode::LbUneven => (
            uneven(subject),
            "look at the balancer's health checks, weights and hashing",
        ),
        FindingCode::EndpointIdle => (
            idle(subject),
            "see whether it accepts connections, and whether the node's rules for the Service hold it",
        ),
        FindingCode::ClientConcentration => bound::concentration(subject),
        FindingCode::AffinityPinning => (bound::pinning(subject), bound::EVEN_OUT),
        _ => (
            within_node(subject),
            "see whether its pods are ready all the time and the node's rules hold them all",
        ),
    };
    let go_on = match subject.split.kind {
        FlowKind::New => String::new(),
        FlowKind::Established => format!(" (from {} it cannot be told whether this goes on)", sample(new)),
    };
    format!(
        "{}: {how}; this explains {} of the skew of {} flows, whose peak ratio is {}{go_on}: {what_to_do}.",
        subject.input.service,
        portion(part.share),
        subject.kind(),
        ratio(subject.skew.peak_ratio),
    )
}

/// Nodes whose agent does not report.
pub(super) fn silent(new: &Subject, silent: &[&str]) -> String {
    let endpoints = &new.input.endpoints;
    let hidden = endpoints.iter().filter(|e| !new.input.nodes[e.node].reporting).count();
    format!(
        "{}: no agent reports from {}: the flows of {hidden} of {} ready pods are unknown, so every share is suspect and no \
         cause of skew is named.",
        new.input.service,
        list("node", silent),
        endpoints.len(),
    )
}

/// A balancer that evens out an uneven placement.
pub(super) fn weighted(new: &Subject) -> String {
    let (low, high) = ends(&new.split.node_endpoints);
    format!(
        "{}: the load balancer weights nodes by their ready pods, so that nodes of {low} to {high} pods give each pod about the \
         same: the uneven placement does no harm as long as this holds.",
        new.input.service
    )
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
            (1, nodes) => format!("the {nodes} pods alone on their node get {each} each"),
            (on, 1) => format!("the {on} pods that share a node get {each} each"),
            (on, nodes) => format!(
                "the {} pods that share a node with {} get {each} each",
                on * nodes,
                others(on - 1)
            ),
        }
    };
    // With many sizes, the two ends tell the story.
    let pods: Vec<String> = match groups.len() {
        0..=3 => groups.iter().map(tell).collect(),
        _ => groups.iter().take(1).chain(groups.iter().last()).map(tell).collect(),
    };
    let (nodes, range) = (split.node_count(), range(&split.node_shares));
    let kind = subject.kind();
    let first_tier = match subject.balancer.model {
        BalancerModel::EqualPerNode => format!(
            "the load balancer picks a node first and gives each of {nodes} nodes 1/{nodes} = {} of {kind} flows however many \
             pods it has (measured: {range})",
            percent(1.0 / nodes as f64)
        ),
        _ => format!(
            "a node is picked first, and {nodes} nodes get {range} of {kind} flows, not in proportion to their pods"
        ),
    };
    let ideal = percent(1.0 / split.endpoint_count() as f64);
    format!(
        "pods are hot because of where they run: {first_tier}, so {} where {ideal} is ideal",
        pods.join(" and ")
    )
}

fn others(n: u32) -> String {
    match n {
        1 => "another".to_owned(),
        n => format!("{n} others"),
    }
}

fn single_leader(subject: &Subject) -> String {
    let split = subject.split;
    let Some(leader) = split.leader() else {
        return String::new();
    };
    let on_leader = split.node_endpoints[leader] as usize;
    format!(
        "the load balancer sends {} of {} flows to one node, {}, with {}, and leaves {} with {} idle",
        percent(split.node_shares[leader]),
        subject.kind(),
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
    let how = match subject.balancer.model {
        BalancerModel::ZoneEqual => ", since it gives each zone the same however many nodes it has",
        BalancerModel::NoneFits => ", in a way that no known model explains",
        _ => "",
    };
    let most_got = format!(
        "the load balancer gives node {most_name} {} of {} flows",
        got(most),
        subject.kind()
    );
    let (most_due, least_due) = (percent(due[most]), percent(due[least]));
    if theil.placement < 0.0 {
        let least_got = got(least);
        format!(
            "{most_got} where its pods are due {most_due}, and node {least_name} {least_got} where {least_due} is due{how}"
        )
    } else {
        format!(
            "{most_got} and node {least_name} {} where {most_due} is even{how}",
            got(least)
        )
    }
}

/// The pod that gets the most beyond its part of its node.
fn within_node(subject: &Subject) -> String {
    let split = subject.split;
    let Some(top) = most_above_its_node(split) else {
        return String::new();
    };
    let clients = if subject.view.is_some() {
        "its clients do not explain it"
    } else {
        "session affinity or heavy clients may do this, but clients are not known"
    };
    format!("{}; {clients}", of_its_node(subject, top))
}

/// "on node n1 pod p gets 80.0 % of the node's new flows where 1/3 = 33.3 % is even".
pub(super) fn of_its_node(subject: &Subject, endpoint: usize) -> String {
    let split = subject.split;
    let (pod, node) = (&split.endpoints[endpoint].pod, split.endpoints[endpoint].node);
    let on_node = split.node_endpoints[node];
    format!(
        "on node {} pod {pod} gets {} of the node's {} flows where 1/{on_node} = {} is even",
        split.nodes[node].name,
        percent(split.shares[endpoint] / split.node_shares[node]),
        subject.kind(),
        percent(1.0 / f64::from(on_node)),
    )
}

/// The endpoint that gets the most beyond its part of its node; on a tie the first by name.
pub(super) fn most_above_its_node(split: &Split) -> Option<usize> {
    let by_term = |a: &usize, b: &usize| {
        let order = within_term(split, *a).total_cmp(&within_term(split, *b));
        order.then_with(|| split.endpoints[*b].pod.cmp(&split.endpoints[*a].pod))
    };
    (0..split.endpoint_count()).max_by(by_term)
}

/// Pods that get next to nothing; with one, how much.
fn idle(subject: &Subject) -> String {
    let split = subject.split;
    let mut idle = idle_endpoints(subject).endpoints;
    idle.sort_by(|a, b| split.endpoints[*a].pod.cmp(&split.endpoints[*b].pod));
    if let [one] = idle[..] {
        let node = split.endpoints[one].node;
        let even = split.node_counts[node] / u64::from(split.node_endpoints[node]).max(1);
        return format!(
            "pod {} on node {} is ready and got {} of {} that opened there, where {} would be even",
            split.endpoints[one].pod,
            split.nodes[node].name,
            count(split.counts[one]),
            plural(split.node_counts[node], "flow"),
            count(even),
        );
    }
    let names: Vec<&str> = idle.iter().map(|e| split.endpoints[*e].pod.as_str()).collect();
    format!(
        "{} are ready and got next to none of the flows that opened on their nodes",
        words::list("pod", &names)
    )
}

/// Smallest and largest.
fn ends(counts: &[u32]) -> (u32, u32) {
    let (low, high) = (counts.iter().min(), counts.iter().max());
    (low.copied().unwrap_or_default(), high.copied().unwrap_or_default())
}
