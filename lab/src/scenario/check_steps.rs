//! What each step of a scenario file must be to what exists when it is played. Part of `check`.

use std::time::Duration;

use serde_saphyr::{Location, Spanned};

use super::check::{Player, one_of};
use super::expect::{Check, START, Shares};
use super::expect_why::Saying;
use super::lists::Moves;
use super::losses::{LossBound, LossKind, LossRule};
use super::spec::{MAX_WAIT_SECONDS, Step};
use crate::net::StopPod;

impl Player {
    pub(super) fn step(&mut self, step: &Spanned<Step>) {
        let at = step.referenced;
        let word = step.value.word();
        self.pass_marks(&step.value);
        match &step.value {
            Step::Open(open) => self.open(at, open),
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
                if mark.value == START || !self.marks.insert(mark.value.clone()) {
                    self.problem(mark.referenced, format!("mark: '{}' is taken", mark.value));
                }
            }
            Step::Move(pods) => {
                let names = pods.pods.value.0.iter().map(|(pod, _)| pod);
                self.can_end(word, at, pods.how, names);
                self.moves(&pods.pods);
            }
            Step::Restart(restart) => {
                if restart.pods.is_empty() {
                    self.problem(at, "restart.pods: at least one pod is needed");
                }
                self.can_end(word, at, restart.how, restart.pods.iter().map(|pod| &pod.value));
                self.each_pod_once("restart.pods", &restart.pods);
            }
            Step::Replace(replace) => self.replace(&replace.pods),
            Step::KeepSending(nodes) => {
                for node in &nodes.value {
                    self.node(word, node.referenced, &node.value);
                }
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
            Step::Check(check) => self.check(at, check),
            Step::Show(show) => self.since("show.since", show.since.as_ref()),
            Step::Settle | Step::Say(_) => {}
        }
    }

    /// The link of a node is not cut.
    fn can_end<'a>(&mut self, word: &str, at: Location, how: StopPod, pods: impl Iterator<Item = &'a String>) {
        for pod in pods {
            if how == StopPod::Vanish && self.host_network.contains_key(pod) {
                self.problem(
                    at,
                    format!("{word}: '{pod}' has the network of its node and cannot vanish"),
                );
            }
        }
    }

    fn moves(&mut self, moves: &Spanned<Moves>) {
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
        self.host_ports_differ(moves.referenced);
    }

    fn replace(&mut self, pods: &Spanned<Moves>) {
        if pods.value.0.is_empty() {
            self.problem(pods.referenced, "replace.pods: at least one pod is needed");
        }
        for (old, new) in &pods.value.0 {
            let old = Spanned::new(old.clone(), new.referenced, new.defined);
            self.name("replace.pods", new.referenced, &new.value);
            if self.pods.node_of(&new.value).is_some() || self.processes.contains_key(&new.value) {
                self.problem(new.referenced, format!("replace.pods: '{}' is taken", new.value));
            } else if self.host_network.contains_key(&old.value) {
                let message = format!("replace.pods: '{}' has no address of its own to leave", old.value);
                self.problem(new.referenced, message);
            } else if self.pod("replace.pods", &old) {
                self.pods.rename(&old.value, &new.value);
            }
        }
    }

    fn check(&mut self, at: Location, check: &Check) {
        self.since("check.since", check.since.as_ref());
        if let Some(service) = &check.service
            && !self.services.contains(&service.value)
        {
            let services = one_of(self.services.iter());
            self.problem(
                service.referenced,
                format!("check.service: there is no Service '{}'; {services}", service.value),
            );
        }
        if let LossRule::These(losses) = &check.losses
            && losses.0.get(&LossKind::FlowsFull) == Some(&LossBound::Exact)
            && !self.bounded
        {
            self.problem(at, "check.losses: `flows_full: exact` needs `agents.max_flows`");
        }
        for shares in &check.shares {
            self.shares(shares);
        }
        if let Some(clients) = &check.clients {
            let since = check.since.as_ref().map_or(START, |mark| &mark.value);
            if clients.value.needs_truth() && self.passed.contains(since) {
                let message =
                    format!("check.clients: pods or agents have changed since '{since}', and single flows are");
                self.problem(
                    clients.referenced,
                    format!("{message} told from then on; set a mark after the change, and use it in `since`"),
                );
            }
            if clients.value.exact && clients.value.sampled == Some(true) {
                self.problem(
                    clients.referenced,
                    "check.clients: what is sampled is not `exact`; use `covered`",
                );
            }
        }
        for saying in &check.says {
            let Saying {
                code,
                confidence,
                words,
            } = &saying.value;
            if confidence.is_none() && words.is_empty() {
                let code = code.code();
                self.problem(
                    saying.referenced,
                    format!("check.says: at least one of `confidence`, `words` is needed for '{code}'"),
                );
            }
        }
    }

    /// After these steps the window of a report begins anew.
    fn pass_marks(&mut self, step: &Step) {
        let changes = match step {
            Step::Move(_) | Step::Restart(_) | Step::Replace(_) | Step::Scale(_) => true,
            Step::KillAgent(_) | Step::StartAgent(_) => true,
            Step::Open(open) => open.kill_agents.is_some(),
            Step::Close(_)
            | Step::Wait(_)
            | Step::Settle
            | Step::Mark(_)
            | Step::KeepSending(_)
            | Step::Check(_)
            | Step::Say(_)
            | Step::Show(_) => false,
        };
        if changes {
            self.passed.extend(self.marks.iter().cloned());
            self.passed.insert(START.to_owned());
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
        if mark.value != START && !self.marks.contains(&mark.value) {
            let known = one_of([START.to_owned()].iter().chain(&self.marks));
            self.problem(
                mark.referenced,
                format!("{key}: no mark '{}' before this step; {known}", mark.value),
            );
        }
    }
}
