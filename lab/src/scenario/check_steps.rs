//! What each step of a scenario file must be to what exists when it is played. Part of `check`.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_saphyr::Spanned;

use super::check::{Player, one_of};
use super::expect::{Check, START, Shares};
use super::lists::Moves;
use super::spec::{MAX_FLOWS_IN_ALL, MAX_FLOWS_PER_CLIENT, MAX_WAIT_SECONDS, Step};

impl Player {
    pub(super) fn step(&mut self, step: &Spanned<Step>) {
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
                if mark.value == START || !self.marks.insert(mark.value.clone()) {
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
        if mark.value != START && !self.marks.contains(&mark.value) {
            let known = one_of([START.to_owned()].iter().chain(&self.marks));
            self.problem(
                mark.referenced,
                format!("{key}: no mark '{}' before this step; {known}", mark.value),
            );
        }
    }
}
