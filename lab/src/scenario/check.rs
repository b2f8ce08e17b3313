//! What the values of a scenario file must be to each other. A [`Spec`] enters, is played through without a network, and
//! a [`Scenario`] leaves, or all problems with their places.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_saphyr::{Location, Spanned};

use super::lists::Nodes;
use super::spec::{MAX_NODES, MAX_PODS, MAX_STEPS, Spec, Step};
use super::{PodSet, Process, Scenario};
use crate::net::Protocol;

type Problem = (Location, String);

/// Checks `spec` as a whole.
pub(super) fn scenario(spec: Spec) -> Result<Scenario, Vec<Problem>> {
    let mut player = Player::default();
    player.names(&spec);
    player.nodes = player.resolve_nodes(&spec);
    player.pods = player.resolve_pods(&spec);
    player.zones(&spec);
    player.services(&spec);
    player.work(&spec);
    player.host_network(&spec);
    player.processes(&spec);
    player.host_ports_differ(spec.placement.referenced);
    player.bounded = spec.agents.max_flows.is_some();
    player.agents = player.nodes.iter().cloned().collect();
    if spec.steps.value.len() > MAX_STEPS {
        player.problem(spec.steps.referenced, format!("steps: at most {MAX_STEPS}"));
    }
    let pods = player.pods.clone();
    for step in &spec.steps.value {
        player.step(step);
    }
    if !player.problems.is_empty() {
        return Err(player.problems);
    }
    let mut steps: Vec<Step> = spec.steps.value.into_iter().map(|step| step.value).collect();
    // A check that some runs leave out is not the last word.
    if !matches!(steps.last(), Some(Step::Check(check)) if check.when.is_none()) {
        steps.push(Step::Check(Box::default()));
    }
    Ok(Scenario {
        name: spec.name.value,
        description: spec.description,
        family: spec.family,
        nodes: player.nodes,
        zones: player.zones,
        pods,
        service: spec.service,
        other_services: spec.other_services,
        host_network: player.host_network,
        processes: player.processes,
        work: spec.work.map_or(Duration::ZERO, |work| work.value.per_flow.get()),
        agents: spec.agents,
        balancer: spec.balancer.value,
        delivery: spec.delivery,
        steps,
    })
}

/// Plays the timeline to know what exists at each step.
#[derive(Default)]
pub(super) struct Player {
    pub(super) nodes: Vec<String>,
    pub(super) zones: BTreeMap<String, String>,
    pub(super) pods: PodSet,
    /// Names of all Services.
    pub(super) services: BTreeSet<String>,
    pub(super) protocol: Protocol,
    /// The ports of pods in the network of their node.
    pub(super) host_network: BTreeMap<String, u16>,
    pub(super) processes: BTreeMap<String, Process>,
    /// The agents' number of flows is given.
    pub(super) bounded: bool,
    /// Nodes whose agent runs.
    pub(super) agents: BTreeSet<String>,
    pub(super) marks: BTreeSet<String>,
    /// Marks since which pods or agents have changed; `start` among them.
    pub(super) passed: BTreeSet<String>,
    pub(super) groups: BTreeSet<String>,
    pub(super) flows: u64,
    problems: Vec<Problem>,
}

impl Player {
    pub(super) fn problem(&mut self, at: Location, message: impl Into<String>) {
        self.problems.push((at, message.into()));
    }

    fn names(&mut self, spec: &Spec) {
        for (key, name) in [
            ("name", &spec.name),
            ("service.namespace", &spec.service.namespace),
            ("service.name", &spec.service.name),
        ] {
            self.name(key, name.referenced, &name.value);
        }
    }

    /// Names become Kubernetes objects and arguments of processes.
    pub(super) fn name(&mut self, key: &str, at: Location, name: &str) {
        const LONGEST: usize = 40;
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let right = (1..=LONGEST).contains(&name.len())
            && name.chars().all(|c| letters(c) || c == '-')
            && name.starts_with(letters)
            && name.ends_with(letters);
        if !right {
            let rule = "lower-case letters, digits and '-', with a letter or digit at both ends";
            self.problem(at, format!("{key}: '{name}' is not a name: 1 to {LONGEST} of {rule}"));
        }
    }

    fn resolve_nodes(&mut self, spec: &Spec) -> Vec<String> {
        let (at, names) = match &spec.nodes {
            None => (
                spec.placement.referenced,
                spec.placement
                    .value
                    .0
                    .iter()
                    .map(|(node, _)| node.clone())
                    .collect::<Vec<_>>(),
            ),
            Some(nodes) => {
                let names = match &nodes.value {
                    // One too many is enough to be told so below.
                    Nodes::Count(count) => (1..=(*count).min(MAX_NODES + 1)).map(|k| format!("node-{k}")).collect(),
                    Nodes::Named(names) => names.clone(),
                };
                (nodes.referenced, names)
            }
        };
        if names.is_empty() || names.len() as u64 > MAX_NODES {
            self.problem(at, format!("nodes: from 1 to {MAX_NODES} are allowed"));
        }
        let mut seen = BTreeSet::new();
        for name in &names {
            self.name("nodes", at, name);
            if !seen.insert(name) {
                self.problem(at, format!("nodes: '{name}' is there twice"));
            }
        }
        names
    }

    fn resolve_pods(&mut self, spec: &Spec) -> PodSet {
        let mut pods = PodSet::new(&spec.service.name.value);
        let placement = &spec.placement.value.0;
        for (node, named) in placement {
            let at = if named.referenced == Location::UNKNOWN {
                spec.placement.referenced
            } else {
                named.referenced
            };
            self.node("placement", at, node);
            if let Nodes::Named(names) = &named.value {
                for pod in names {
                    self.name("placement", at, pod);
                    if pods.node_of(pod).is_some() {
                        self.problem(at, format!("placement: the pod '{pod}' is there twice"));
                    }
                    pods.add_named(pod, node);
                }
            }
        }
        for (node, counted) in placement {
            if let Nodes::Count(count) = counted.value {
                for _ in 0..count.min(MAX_PODS + 1) {
                    pods.add(node);
                }
            }
        }
        if pods.pods().is_empty() {
            self.problem(spec.placement.referenced, "placement: at least one pod is needed");
        }
        self.pod_limit(spec.placement.referenced, &pods);
        pods
    }

    pub(super) fn pod_limit(&mut self, at: Location, pods: &PodSet) {
        if pods.pods().len() as u64 > MAX_PODS {
            self.problem(at, format!("at most {MAX_PODS} pods at one time"));
        }
    }

    pub(super) fn each_pod_once(&mut self, key: &str, pods: &[Spanned<String>]) {
        let mut seen = BTreeSet::new();
        for pod in pods {
            if self.pod(key, pod) && !seen.insert(&pod.value) {
                self.problem(pod.referenced, format!("{key}: '{}' is there twice", pod.value));
            }
        }
    }

    pub(super) fn pod(&mut self, key: &str, pod: &Spanned<String>) -> bool {
        let known = self.pods.node_of(&pod.value).is_some();
        if !known {
            let pods = one_of(self.pods.pods().iter().map(|placed| &placed.pod));
            self.problem(
                pod.referenced,
                format!("{key}: there is no pod '{}' at this step; {pods}", pod.value),
            );
        }
        known
    }

    pub(super) fn node(&mut self, key: &str, at: Location, node: &str) -> bool {
        let known = self.nodes.iter().any(|known| known == node);
        if !known {
            let nodes = one_of(self.nodes.iter());
            self.problem(at, format!("{key}: there is no node '{node}'; {nodes}"));
        }
        known
    }
}

pub(super) fn one_of<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("use one of {}", names.join(", "))
    }
}
