//! The analysis of one Service port over one window. Flow counts per endpoint enter; shares, skew and its significance,
//! the load-balancer verdict, ranked findings and a headline leave.
//!
//! Pure: no I/O, no clock, no wire or cluster types. The same input gives the same output on any machine.
//!
//! - shares: counts to shares, peak ratio, max/min, Jain
//! - theil: the Theil index and the three parts that add up to it
//! - significance: is it more than chance?
//! - balancer: which load-balancer model do the nodes' flows fit?
//! - findings: what causes the skew, in order
//! - evidence: is the pod with most flows also the busiest?
//! - sentences, words: the same for people

mod balancer;
mod evidence;
mod findings;
mod input;
mod sentences;
mod shares;
mod significance;
mod theil;
mod words;

#[cfg(test)]
mod tests;

pub use input::{
    AffinityInput, AgesInput, ClientEvent, ClientEventKind, ClientsInput, EndpointInput, FormerEndpoint, HeavyInput,
    LoadInput, NodeInput, ServiceInput, WindowInput,
};

use crate::report::{
    Affinity, BalancerModel, BalancerVerdict, Cause, Clients, Estimate, Finding, FlowKind, NodeExpectation,
    Persistence, Skew, WindowSkew,
};
use shares::Split;

/// What the analysis found.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    /// Skew of new flows.
    pub new: Skew,
    /// Skew of established flows.
    pub established: Skew,
    /// Skew of new flows over the other windows, in the order of the input.
    pub windows: Vec<WindowSkew>,
    /// How the load balancer splits new flows over nodes.
    pub balancer: BalancerVerdict,
    /// Expected share of each endpoint, in the order of the input: under the verdict's model, or under equal-per-node
    /// when the verdict names none. Adds up to 1.
    pub expected_shares: Vec<f64>,
    /// What each model gives each node, in the order of the input.
    pub node_expectations: Vec<NodeExpectation>,
    /// What is wrong, largest first. Empty when nothing is.
    pub findings: Vec<Finding>,
    /// One sentence or two for a person: the first finding, or why there is none.
    pub headline: String,
    /// The causes whose parts add up to the Theil index of new flows, largest first.
    pub causes: Vec<Cause>,
    /// The same of established flows.
    pub established_causes: Vec<Cause>,
    /// Who the clients are; `None` when nobody tells.
    pub clients: Option<Clients>,
    /// Distinct clients of each endpoint, in the order of the input.
    pub endpoint_clients: Vec<Option<Estimate>>,
    /// Do clients keep their pod and node? `None` when nobody tells.
    pub affinity: Option<Affinity>,
    /// How old the established flows are; `None` when nobody looked.
    pub persistence: Option<Persistence>,
}

/// An input that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnalysisError {
    /// An endpoint names a node that is not in the list.
    #[error(
        "endpoint {pod} is on node number {node}, but only {nodes} nodes are given: pass every node of the endpoints"
    )]
    NodeOutOfRange {
        /// The endpoint.
        pod: String,
        /// Its index.
        node: usize,
        /// Length of the node list.
        nodes: usize,
    },
    /// A node has no endpoint.
    #[error("node {node} has no ready endpoint: pass only nodes that have one")]
    NodeWithoutEndpoint {
        /// The node.
        node: String,
    },
}

/// Analyses one Service port.
///
/// A Service without endpoints or without flows is legal: values that cannot be known are `None`, and the headline says
/// why. When a node's agent does not report, figures cover what was counted, but nothing is tested and no cause is
/// named: an unknown count read as a zero would look like skew.
///
/// # Errors
/// When an endpoint's node is not in the list, or a node has no endpoint.
pub fn analyse(input: &ServiceInput) -> Result<Analysis, AnalysisError> {
    validate(input)?;
    let silent: Vec<&str> = input
        .nodes
        .iter()
        .filter(|n| !n.reporting)
        .map(|n| n.name.as_str())
        .collect();
    let testable = silent.is_empty();
    let new = Split::of(input, FlowKind::New);
    let established = Split::of(input, FlowKind::Established);
    let new_skew = significance::skew(&new, testable);
    let established_skew = significance::skew(&established, testable);
    let balancer = balancer::verdict(&new, &silent);
    let subjects = (
        Subject {
            input,
            split: &new,
            skew: &new_skew,
            model: balancer.model,
        },
        Subject {
            input,
            split: &established,
            skew: &established_skew,
            model: balancer::verdict(&established, &silent).model,
        },
    );
    let mut findings = findings::findings(&subjects.0, &subjects.1, &silent);
    if let Some(first) = findings.first_mut() {
        let split = if first.kind == FlowKind::New {
            &new
        } else {
            &established
        };
        if let Some(evidence) = evidence::hot_pod(split).filter(|_| testable) {
            first.sentence.push(' ');
            first.sentence.push_str(&evidence);
        }
    }
    let headline = match findings.first() {
        Some(finding) => finding.sentence.clone(),
        None => sentences::quiet(&subjects.0, &subjects.1),
    };
    Ok(Analysis {
        expected_shares: balancer::expected_shares(balancer.model, &new),
        node_expectations: balancer::node_expectations(&new),
        new: new_skew,
        established: established_skew,
        balancer,
        findings,
        headline,
        windows: Vec::new(),
        causes: Vec::new(),
        established_causes: Vec::new(),
        clients: None,
        endpoint_clients: vec![None; input.endpoints.len()],
        affinity: None,
        persistence: None,
    })
}

/// One kind of flows with all that is known of it before causes are sought.
struct Subject<'a> {
    input: &'a ServiceInput,
    split: &'a Split<'a>,
    skew: &'a Skew,
    /// The model that these flows follow. For established flows: that they followed when they opened.
    model: BalancerModel,
}

fn validate(input: &ServiceInput) -> Result<(), AnalysisError> {
    let mut used = vec![false; input.nodes.len()];
    for endpoint in &input.endpoints {
        *used
            .get_mut(endpoint.node)
            .ok_or_else(|| AnalysisError::NodeOutOfRange {
                pod: endpoint.pod.clone(),
                node: endpoint.node,
                nodes: input.nodes.len(),
            })? = true;
    }
    match input.nodes.iter().zip(used).find(|(_, used)| !used) {
        Some((node, _)) => Err(AnalysisError::NodeWithoutEndpoint {
            node: node.name.clone(),
        }),
        None => Ok(()),
    }
}
