//! Is session affinity as the Service says? Stickiness and breaks enter; the verdict leaves, with a sentence.

use super::super::input::AffinityInput;
use super::super::words::{about, count, percent, plural, span};
use super::breaks::LIST;
use crate::report::{Affinity, AffinityBreaks, AffinityCode, NodeStickiness, Stickiness};

/// Affinity is broken from so many breaks on, if they are also more than [`BROKEN_SHARE`] of the pairs.
const BROKEN: u64 = 3;
const BROKEN_SHARE: f64 = 0.01;

/// From fewer pairs affinity cannot be told to hold.
const ENOUGH_PAIRS: u64 = 10;

/// Clients keep their place when kappa is surely above this.
const STICKY: f64 = 0.5;

/// True when clients that come back keep their place.
pub(super) fn is_sticky(tier: Option<Stickiness>) -> bool {
    tier.and_then(|tier| tier.kappa).is_some_and(|kappa| kappa.low > STICKY)
}

/// What the verdict rests on.
pub(super) struct Case {
    pub asked: AffinityInput,
    pub pods: Option<Stickiness>,
    /// `None` with one node.
    pub nodes: Option<Stickiness>,
    pub by_node: Vec<NodeStickiness>,
    pub breaks: Option<AffinityBreaks>,
    /// Nodes with a ready endpoint.
    pub node_count: usize,
    /// No node has two ready pods.
    pub lone_pods: bool,
    /// Clients of a pod, on average.
    pub clients_per_pod: f64,
}

impl Case {
    /// The verdict.
    pub fn judge(self) -> Affinity {
        let (code, sentence) = match (self.asked, &self.breaks) {
            (AffinityInput::ClientIp(timeout), Some(breaks)) => self.asked_for(timeout, breaks),
            _ => self.not_asked_for(),
        };
        Affinity {
            code,
            sentence,
            pod_tier: self.pods,
            node_tier: self.nodes,
            nodes: self.by_node,
            breaks: self.breaks,
        }
    }

    fn asked_for(&self, timeout: u32, breaks: &AffinityBreaks) -> (AffinityCode, String) {
        if self.lone_pods && breaks.broken == 0 {
            let text = format!(
                "No node has more than one ready pod, so a client finds the same pod on a node anyway.{}",
                self.per_node()
            );
            return (AffinityCode::AsConfigured, text);
        }
        let judged = breaks.within_list.pairs + breaks.beyond_list.pairs;
        let within = span(u64::from(timeout));
        if breaks.broken >= BROKEN && breaks.broken as f64 > BROKEN_SHARE * judged as f64 {
            return (AffinityCode::Broken, self.broken(breaks, judged, &within));
        }
        let gone = match breaks.gone {
            0 => String::new(),
            gone => format!("; {} more landed on another pod since theirs was gone", count(gone)),
        };
        if judged < ENOUGH_PAIRS {
            let text = format!(
                "Too few clients have come back to tell: {} to a node with several pods, within the timeout of {within}, and {ENOUGH_PAIRS} \
                 are needed{gone}.",
                plural(judged, "return"),
            );
            return (AffinityCode::Undetermined, text);
        }
        let kept = judged - breaks.broken;
        let text = format!(
            "Of {} to a node within the timeout of {within}, {} ({}) landed on the same pod{gone}.{}",
            plural(judged, "return"),
            count(kept),
            percent(kept as f64 / judged as f64),
            self.per_node(),
        );
        (AffinityCode::AsConfigured, text)
    }

    fn broken(&self, breaks: &AffinityBreaks, judged: u64, within: &str) -> String {
        let gap = breaks
            .median_gap_seconds
            .map_or_else(String::new, |gap| format!(" (half of them within {})", about(gap)));
        let why = if breaks.list_limit {
            let list = LIST as u64;
            format!(
                "Of returns after {list} or more other clients had come to the pod, {} of {} landed elsewhere; after fewer, {} of {}. \
                 About {} clients came to each pod, and kube-proxy in iptables mode keeps {list} addresses a pod (xt_recent, \
                 ip_list_tot): use its nftables mode, raise ip_list_tot, or do without affinity.",
                count(breaks.beyond_list.broken),
                count(breaks.beyond_list.pairs),
                count(breaks.within_list.broken),
                count(breaks.within_list.pairs),
                count(self.clients_per_pod.round() as u64),
            )
        } else {
            "The number of clients a pod does not explain it: look for rules that were written anew, for an address that changes on \
             the way, and at what else forwards to the pods."
                .to_owned()
        };
        format!(
            "Of {} to a node within the timeout of {within}, {} ({}) landed on another pod though the first was ready{gap}. {why}{}",
            plural(judged, "return"),
            count(breaks.broken),
            percent(breaks.broken as f64 / judged as f64),
            self.per_node(),
        )
    }

    fn not_asked_for(&self) -> (AffinityCode, String) {
        if self.lone_pods {
            let text = "None is asked for, and no node has more than one ready pod to choose from.";
            return (AffinityCode::AsConfigured, text.to_owned());
        }
        let Some((tier, kappa)) = self.pods.and_then(|tier| Some((tier, tier.kappa?))) else {
            let text = match self.pods {
                Some(tier) if tier.observed >= 1.0 => format!(
                    "Each client found the same pod in {}, but so did all others: nobody can tell whether it could have been another one.",
                    plural(tier.pairs, "return")
                ),
                _ => "No client has come back to a node with several pods, so nobody can tell whether it would find the same one."
                    .to_owned(),
            };
            return (AffinityCode::Undetermined, text);
        };
        let seen = format!(
            "of {} to a node with several pods, {} landed on the same pod, where independent picks would give {}",
            plural(tier.pairs, "return"),
            percent(tier.observed),
            percent(tier.chance),
        );
        if kappa.low > STICKY {
            let text = format!(
                "None is asked for, and clients keep their pod: {seen}. Something binds them: another Service port's affinity, IPVS with \
                 source hashing, or a proxy on the way.{}",
                self.per_node()
            );
            (AffinityCode::StickyUnasked, text)
        } else if kappa.high < STICKY {
            (
                AffinityCode::AsConfigured,
                format!("None is asked for, and clients are spread: {seen}."),
            )
        } else {
            (
                AffinityCode::Undetermined,
                format!("None is asked for, and too few clients have come back to tell: {seen}."),
            )
        }
    }

    /// Affinity is of each node and Service port.
    fn per_node(&self) -> String {
        let Some(tier) = self.nodes.filter(|_| self.node_count > 1) else {
            return String::new();
        };
        let nodes = plural(self.node_count as u64, "node");
        let text = if is_sticky(self.nodes) || (tier.kappa.is_none() && tier.observed >= 1.0) {
            "Each node and Service port binds clients by itself; here clients keep their node as well.".to_owned()
        } else {
            format!(
                "Each node and Service port binds clients by itself: behind a balancer that spreads over {nodes}, as here, a client is \
                 bound to another pod on each."
            )
        };
        format!(" {text}")
    }
}
