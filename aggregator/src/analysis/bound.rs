//! Sentences about clients that are bound to pods or nodes. What is known of clients enters; parts of sentences leave.

use super::sentences::{most_above_its_node, of_its_node};
use super::subject::Subject;
use super::words::{about, count, percent, plural};
use crate::report::{AffinityBreaks, Stickiness};

/// What to do about bound clients.
pub(super) const EVEN_OUT: &str = "more clients even it out, or a Service without session affinity";

const SPLIT_THEM: &str = "affinity cannot spread what is behind one address, so let heavy clients come from more addresses or \
                          take affinity off";
const SPLIT_ON_NODES: &str = "a hash of the source address cannot spread what is behind one address, so let heavy clients come \
                              from more addresses or hash the ports too";

/// Heavy clients, each bound to a place; and what to do.
pub(super) fn concentration(subject: &Subject) -> (String, &'static str) {
    let Some(view) = subject.view else {
        return (String::new(), EVEN_OUT);
    };
    let new: u64 = subject
        .split
        .endpoints
        .iter()
        .map(|e| e.new)
        .fold(0, u64::saturating_add);
    let heavy = view.heavy.iter().sum::<f64>() / (new.max(1)) as f64;
    let first = view.clients.heaviest.first().map_or_else(String::new, |client| {
        let shared = if client.looks_shared {
            ", which looks like an address that many share,"
        } else {
            ""
        };
        format!(", {}{shared} alone {}", client.client, percent(client.share.value))
    });
    let (place, remedy) = match (view.nodes_kept(), view.pods_kept()) {
        (true, true) => ("one pod of one node", SPLIT_THEM),
        (true, false) => ("one node", SPLIT_ON_NODES),
        _ => ("one pod of each node", SPLIT_THEM),
    };
    let how = format!(
        "heavy clients open {} of new flows{first}, and each is bound to {place}",
        percent(heavy)
    );
    (how, remedy)
}

/// Many clients, each bound to a pod.
pub(super) fn pinning(subject: &Subject) -> String {
    let worst = most_above_its_node(subject.split).map_or_else(String::new, |pod| of_its_node(subject, pod));
    let flows = subject.split.flows as f64;
    let weight = if subject.skew.effective_flows < flows {
        format!(
            ", and the {} count for no more than {} independent ones",
            plural(subject.split.flows, "flow"),
            count(subject.skew.effective_flows as u64)
        )
    } else {
        String::new()
    };
    format!("clients are bound to pods and too few to even out: {worst}{weight}")
}

/// How often clients keep their place.
pub(super) fn kept(what: &str, tier: &Stickiness) -> String {
    format!(
        "A client that comes back finds the same {what} in {} of {}, where independent picks would give {}.",
        percent(tier.observed),
        plural(tier.pairs, "case"),
        percent(tier.chance),
    )
}

/// Session affinity is asked for and does not hold.
pub(super) fn broken(new: &Subject, breaks: &AffinityBreaks) -> String {
    let gap = breaks
        .median_gap_seconds
        .map_or_else(String::new, |gap| format!(" (median gap {})", about(gap)));
    let why = if breaks.list_limit {
        format!(
            ", {} of {} when 100 or more other clients came in between and {} of {} when fewer did: kube-proxy in iptables mode \
             remembers 100 addresses a pod, so raise ip_list_tot of the kernel module xt_recent or use its nftables mode",
            count(breaks.beyond_list.broken),
            count(breaks.beyond_list.pairs),
            count(breaks.within_list.broken),
            count(breaks.within_list.pairs),
        )
    } else {
        ": look for rules that were written anew, or for something before kube-proxy that changes the source address"
            .to_owned()
    };
    format!(
        "{}: session affinity is asked for and does not hold: in {} of {} a client that came back to a node within the timeout \
         landed on another pod though its own was ready{gap}{why}.",
        new.input.service,
        count(breaks.broken),
        plural(breaks.pairs, "case"),
    )
}
