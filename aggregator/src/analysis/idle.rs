//! Which ready endpoints get next to nothing? New flows enter; those endpoints leave, with the part of the skew that they are.

use super::significance::REJECT;
use super::subject::Subject;
use statrs::distribution::{Binomial, DiscreteCDF};

/// An endpoint is idle when it gets less than this part of the even share of its node.
const IDLE: f64 = 0.1;

/// Endpoints that are idle.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// Their indices, in the order of the input.
    pub endpoints: Vec<usize>,
    /// The part of the within-node index that they are, were each of them without any flow: sum S_v ln(n_v / (n_v - i_v)), i_v
    /// the idle endpoints of node v.
    pub nats: f64,
    /// Probability that chance leaves any endpoint with so little; 1 without idle endpoints.
    pub p_value: f64,
}

/// The endpoints that were ready for the whole window and got so little of what their node got that chance would hardly give
/// it.
///
/// An endpoint's count is Binomial(X_v, 1/n_v) at the effective size, and as any endpoint may be idle by chance, the
/// probability is taken P times (C. E. Bonferroni, 1936).
pub(super) fn idle_endpoints(subject: &Subject) -> Idle {
    let (split, deff) = (subject.split, subject.design.within);
    let begin = subject.input.window.from_ms;
    let mut found = Idle {
        p_value: 1.0,
        ..Idle::default()
    };
    let mut by_node = vec![0_u32; 0];
    for (e, endpoint) in split.endpoints.iter().enumerate() {
        let (node, count) = (endpoint.node, split.counts[e] as f64);
        let (on, flows) = (f64::from(split.node_endpoints[node]), split.node_counts[node] as f64);
        let ready = endpoint.ready_since_ms.is_none_or(|since| since <= begin);
        if on < 2.0 || !ready || count >= IDLE * flows / on {
            continue;
        }
        let chance = Binomial::new(1.0 / on, (flows / deff) as u64).map(|b| b.cdf((count / deff) as u64));
        let p_value = chance.map_or(1.0, |p| (p * split.endpoint_count() as f64).min(1.0));
        if p_value < REJECT {
            by_node.resize(split.node_count(), 0);
            by_node[node] += 1;
            found.endpoints.push(e);
            // The surest of them says how sure it is that any is idle.
            found.p_value = found.p_value.min(p_value);
        }
    }
    let part = |(node, idle): (usize, &u32)| {
        let on = f64::from(split.node_endpoints[node]);
        // Never all of a node: at least one has its even share or more.
        split.node_shares[node] * (on / (on - f64::from(*idle))).ln()
    };
    found.nats = by_node.iter().enumerate().map(part).sum();
    found
}
