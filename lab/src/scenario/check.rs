//! What the values of a scenario file must be to each other. A [`Spec`] enters, is played through without a network, and
//! a [`Scenario`] leaves, or all problems with their places.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_saphyr::{Location, Spanned};

use super::expect::{Check, Shares};
use super::spec::{
    Affinity, MAX_FLOWS_IN_ALL, MAX_FLOWS_PER_CLIENT, MAX_NODES, MAX_PODS, MAX_STEPS, MAX_WAIT_SECONDS, Nodes, Spec,
    Step,
};
use super::{PodSet, Scenario};

type Problem = (Location, String);

/// Checks `spec` as a whole.
pub(super) fn scenario(spec: Spec) -> Result<Scenario, Vec<Problem>> {
    let mut player = Player {
        problems: Vec::new(),
        ..Player::default()
    };
    player.names(&spec);
    player.nodes = player.resolve_nodes(&spec);
    player.pods = player.resolve_pods(&spec);
    player.service(&spec);
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
    if !matches!(steps.last(), Some(Step::Check(_))) {
        steps.push(Step::Check(Box::default()));
    }
    Ok(Scenario {
        name: spec.name.value,
        description: spec.description,
        family: spec.family,
        nodes: player.nodes,
        pods,
        service: spec.service,
        balancer: spec.balancer,
        steps,
    })
}

/// Plays the timeline to know what exists at each step.
struct Player {
    nodes: Vec<String>,
    pods: PodSet,
    /// Nodes whose agent runs.
    agents: BTreeSet<String>,
    marks: BTreeSet<String>,
    groups: BTreeSet<String>,
    flows: u64,
    problems: Vec<Problem>,
}

impl Default for Player {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            pods: PodSet::new(""),
            agents: BTreeSet::new(),
            marks: BTreeSet::new(),
            groups: BTreeSet::new(),
            flows: 0,
            problems: Vec::new(),
        }
    }
}

impl Player {
    fn problem(&mut self, at: Location, message: impl Into<String>) {
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
    fn name(&mut self, key: &str, at: Location, name: &str) {
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

    fn pod_limit(&mut self, at: Location, pods: &PodSet) {
        if pods.pods().len() as u64 > MAX_PODS {
            self.problem(at, format!("at most {MAX_PODS} pods at one time"));
        }
    }

    fn service(&mut self, spec: &Spec) {
        if let Some(timeout) = &spec.service.affinity_timeout_seconds
            && spec.service.affinity == Affinity::None
        {
            self.problem(
                timeout.referenced,
                "service.affinity_timeout_seconds: needs `affinity: ClientIP`",
            );
        }
    }

    fn step(&mut self, step: &Spanned<Step>) {
        let at = step.referenced;
        let word = step.value.word();
        match &step.value {
            Step::Open(open) => {
                self.groups.insert(open.group.clone());
                self.flows += open.flows.get();
                if self.flows > MAX_FLOWS_IN_ALL {
                    self.problem(at, format!("open.flows: all together are more than {MAX_FLOWS_IN_ALL}"));
                }
                let busiest = open.flows.get().div_ceil(open.clients.get());
                let shared = open.nat.map_or(0, |nat| {
                    (open.flows.get() * nat.percent.get() / 100).div_ceil(nat.addresses.get())
                });
                if busiest.max(shared) > MAX_FLOWS_PER_CLIENT {
                    let message =
                        format!("open: one address can hold {MAX_FLOWS_PER_CLIENT} flows; use more addresses");
                    self.problem(at, message);
                }
                if let Some(reconnect) = &open.reconnect
                    && reconnect.value.min > reconnect.value.max
                {
                    self.problem(reconnect.referenced, "open.reconnect: min must not be longer than max");
                }
            }
            Step::Close(close) => {
                if let Some(pod) = &close.pod {
                    self.pod("close.pod", pod);
                }
                if let Some(group) = &close.group
                    && !self.groups.contains(&group.value)
                {
                    let message = format!("close.group: '{}' was not opened before", group.value);
                    self.problem(group.referenced, format!("{message}; {}", one_of(self.groups.iter())));
                }
            }
            Step::Wait(time) => {
                if time.value.get() > Duration::from_secs(MAX_WAIT_SECONDS) {
                    self.problem(time.referenced, format!("wait: at most {MAX_WAIT_SECONDS}s"));
                }
            }
            Step::Mark(mark) => {
                self.name(word, mark.referenced, &mark.value);
                if mark.value == super::expect::START || !self.marks.insert(mark.value.clone()) {
                    self.problem(mark.referenced, format!("mark: '{}' is taken", mark.value));
                }
            }
            Step::Move(pods) => self.moves(&pods.pods),
            Step::Restart(restart) => {
                if restart.pods.is_empty() {
                    self.problem(at, "restart.pods: at least one pod is needed");
                }
                self.each_pod_once("restart.pods", &restart.pods);
            }
            Step::Scale(scale) => {
                if self.node("scale.node", scale.node.referenced, &scale.node.value) {
                    self.pods.scale(
                        &scale.node.value,
                        usize::try_from(scale.pods.get()).unwrap_or(usize::MAX),
                    );
                    self.pod_limit(at, &self.pods.clone());
                    if self.pods.pods().is_empty() {
                        self.problem(at, "scale.pods: the last pod cannot go");
                    }
                }
            }
            Step::KillAgent(node) => {
                if self.node(word, node.referenced, &node.value) && !self.agents.remove(&node.value) {
                    self.problem(
                        node.referenced,
                        format!("kill_agent: the agent of '{}' does not run", node.value),
                    );
                }
            }
            Step::StartAgent(node) => {
                if self.node(word, node.referenced, &node.value) && !self.agents.insert(node.value.clone()) {
                    self.problem(
                        node.referenced,
                        format!("start_agent: the agent of '{}' runs", node.value),
                    );
                }
            }
            Step::Check(check) => self.check(check),
            Step::Show(show) => self.since("show.since", show.since.as_ref()),
            Step::Settle | Step::Say(_) => {}
        }
    }

    fn moves(&mut self, moves: &Spanned<super::spec::Moves>) {
        if moves.value.0.is_empty() {
            self.problem(moves.referenced, "move.pods: at least one pod is needed");
        }
        for (pod, node) in &moves.value.0 {
            let pod = Spanned::new(pod.clone(), node.referenced, node.defined);
            if self.pod("move.pods", &pod) && self.node("move.pods", node.referenced, &node.value) {
                if self.pods.node_of(&pod.value) == Some(&node.value) {
                    self.problem(node.referenced, format!("move.pods: '{}' is already there", pod.value));
                }
                self.pods.relocate(&pod.value, &node.value);
            }
        }
    }

    fn check(&mut self, check: &Check) {
        self.since("check.since", check.since.as_ref());
        for shares in &check.shares {
            self.shares(shares);
        }
        if let Some(codes) = &check.findings {
            let different: BTreeSet<_> = codes.value.iter().collect();
            if different.len() < codes.value.len() {
                self.problem(codes.referenced, "check.findings: each code once");
            }
        }
    }

    fn shares(&mut self, shares: &Spanned<Shares>) {
        let at = shares.referenced;
        let Shares {
            pods,
            nodes,
            new,
            established,
            expected,
            within: _,
        } = &shares.value;
        if pods.is_empty() == nodes.is_empty() {
            self.problem(
                at,
                "check.shares: either `pods` or `nodes` is needed, with at least one name",
            );
        }
        if new.is_none() && established.is_none() && expected.is_none() {
            self.problem(
                at,
                "check.shares: at least one of `new`, `established`, `expected` is needed",
            );
        }
        self.each_pod_once("check.shares.pods", pods);
        for node in nodes {
            if self.node("check.shares.nodes", node.referenced, &node.value)
                && self.pods.on(&node.value).next().is_none()
            {
                self.problem(
                    node.referenced,
                    format!("check.shares.nodes: '{}' has no pod here", node.value),
                );
            }
        }
    }

    fn since(&mut self, key: &str, since: Option<&Spanned<String>>) {
        let Some(mark) = since else { return };
        if mark.value != super::expect::START && !self.marks.contains(&mark.value) {
            let known = one_of([super::expect::START.to_owned()].iter().chain(&self.marks));
            self.problem(
                mark.referenced,
                format!("{key}: no mark '{}' before this step; {known}", mark.value),
            );
        }
    }

    fn each_pod_once(&mut self, key: &str, pods: &[Spanned<String>]) {
        let mut seen = BTreeSet::new();
        for pod in pods {
            if self.pod(key, pod) && !seen.insert(&pod.value) {
                self.problem(pod.referenced, format!("{key}: '{}' is there twice", pod.value));
            }
        }
    }

    fn pod(&mut self, key: &str, pod: &Spanned<String>) -> bool {
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

    fn node(&mut self, key: &str, at: Location, node: &str) -> bool {
        let known = self.nodes.iter().any(|known| known == node);
        if !known {
            let nodes = one_of(self.nodes.iter());
            self.problem(at, format!("{key}: there is no node '{node}'; {nodes}"));
        }
        known
    }
}

fn one_of<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("use one of {}", names.join(", "))
    }
}
