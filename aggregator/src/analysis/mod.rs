//! The analysis of one Service port over one window. Flow counts per endpoint enter; shares, skew and its significance,
//! the load-balancer verdict, ranked findings and a headline leave.
//!
//! Pure: no I/O, no clock, no wire or cluster types. The same input gives the same output on any machine.
//!
//! - shares: counts to shares, peak ratio, max/min, coefficient of variation, Gini, Jain
//! - theil: the Theil index and the three parts that add up to it
//! - clients: who opens the flows, and does everyone keep its pod and node; design: what that does to the tests
//! - significance, floor: is it more than chance?
//! - windows: the same over other windows
//! - models, balancer: which load-balancer model do the nodes' flows fit?
//! - causes, idle: what is the skew made of?
//! - persistence: how old are established flows, and how long does their skew last? earlier: is it of the past?
//! - findings: what is wrong, in order
//! - sentences, bound, quiet, evidence, words: the same for people

mod balancer;
mod bound;
mod causes;
mod clients;
mod design;
mod earlier;
mod evidence;
mod findings;
mod floor;
mod idle;
mod input;
mod models;
mod persistence;
mod quiet;
mod sentences;
mod shares;
mod significance;
mod subject;
mod theil;
mod windows;
mod words;

#[cfg(test)]
mod tests;

pub use input::{
    AffinityInput, AgesInput, ClientEvent, ClientEventKind, ClientsInput, EndpointInput, FormerEndpoint, HeavyInput,
    LoadInput, NodeInput, ServiceInput, WindowInput,
};

use crate::report::{
    Affinity, BalancerVerdict, Cause, Clients, Estimate, Finding, FlowKind, NodeExpectation, Persistence, Skew,
    WindowSkew,
};
use design::ClientView;
use shares::Split;
use subject::Subject;

/// Skew is worth a finding from this peak ratio on.
const MATERIAL_PEAK_RATIO: f64 = 1.05;

/// So much evidence of the first finding is in the headline.
const HEADLINE_EVIDENCE: usize = 2;

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
    /// What is wrong, largest first; or one that says that nothing is, or that too little is known. Never empty.
    pub findings: Vec<Finding>,
    /// For a person: the sentence of the first finding; when that is a fault, what it rests on most.
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
    /// A window does not have a count for each endpoint.
    #[error(
        "the window of {seconds} s has counts of {counts} endpoints, but {endpoints} are given: pass one count an endpoint"
    )]
    WindowLength {
        /// Length of the window in seconds.
        seconds: u64,
        /// Its counts.
        counts: usize,
        /// Length of the endpoint list.
        endpoints: usize,
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
/// A Service without endpoints or without flows is legal: values that cannot be known are `None`, and the finding says
/// why. When a node's agent does not report, figures cover what was counted, but nothing is tested and no cause is
/// named: an unknown count read as a zero would look like skew.
///
/// # Errors
/// When an endpoint's node is not in the list, a node has no endpoint, or a window has not one count an endpoint.
pub fn analyse(input: &ServiceInput) -> Result<Analysis, AnalysisError> {
    validate(input)?;
    let new = Split::of(input, FlowKind::New);
    let view = clients::view(input, &new);
    let persistence = persistence::persistence(input, &new, persistence::EVEN_PEAK_RATIO);
    Ok(conclude(input, &new, view, persistence))
}

/// What follows from the counts, from what is known of clients, and from the ages of flows.
fn conclude(input: &ServiceInput, new: &Split, view: Option<ClientView>, persistence: Option<Persistence>) -> Analysis {
    let silent: Vec<&str> = input
        .nodes
        .iter()
        .filter(|n| !n.reporting)
        .map(|n| n.name.as_str())
        .collect();
    let testable = silent.is_empty();
    let established = Split::of(input, FlowKind::Established);
    let design = view.as_ref().map(|view| view.design).unwrap_or_default();
    let then = design.scaled(new.flows, established.flows);
    let new_skew = significance::skew(new, design.whole, testable);
    let established_skew = significance::skew(&established, then.whole, testable);
    let verdict = |split, design, view| {
        balancer::verdict(&balancer::Evidence {
            split,
            design,
            view,
            silent: &silent,
        })
    };
    let balancer = verdict(new, design, view.as_ref());
    // Whose the established flows are is not known, nor the order in which they opened.
    let balancer_then = verdict(&established, then, None);
    let subject = |split, skew, balancer, design| Subject {
        input,
        split,
        skew,
        balancer,
        design,
        view: view.as_ref(),
        testable,
    };
    let mut found = findings::findings(
        &subject(new, &new_skew, &balancer, design),
        &subject(&established, &established_skew, &balancer_then, then),
        persistence.as_ref(),
        &silent,
    );
    let headline = match found.findings.first_mut() {
        Some(first) => {
            let split = if first.kind == FlowKind::New { new } else { &established };
            headline(first, split, testable)
        }
        None => String::new(),
    };
    Analysis {
        expected_shares: models::expected_shares(balancer.model, new),
        node_expectations: models::node_expectations(new),
        windows: windows::windows(input, &design, new.flows, testable),
        new: new_skew,
        established: established_skew,
        balancer,
        findings: found.findings,
        headline,
        causes: found.causes,
        established_causes: found.established_causes,
        endpoint_clients: view.as_ref().map_or_else(
            || vec![None; input.endpoints.len()],
            |view| view.endpoint_clients.clone(),
        ),
        affinity: view.as_ref().map(|view| view.affinity.clone()),
        clients: view.map(|view| view.clients),
        persistence,
    }
}

/// The first finding in a few sentences. Adds to its evidence that the pod with most flows is the busiest, when it is.
fn headline(first: &mut Finding, split: &Split, testable: bool) -> String {
    if !first.code.is_fault() {
        return first.sentence.clone();
    }
    let mut text = vec![first.sentence.clone()];
    text.extend(first.evidence.iter().take(HEADLINE_EVIDENCE).cloned());
    if let Some(hot) = evidence::hot_pod(split).filter(|_| testable) {
        text.push(hot.clone());
        first.evidence.push(hot);
    }
    text.join(" ")
}

fn validate(input: &ServiceInput) -> Result<(), AnalysisError> {
    if let Some(window) = input
        .windows
        .iter()
        .find(|window| window.new.len() != input.endpoints.len())
    {
        return Err(AnalysisError::WindowLength {
            seconds: window.seconds,
            counts: window.new.len(),
            endpoints: input.endpoints.len(),
        });
    }
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
