//! Loads rules: in, the endpoints; out, the rules of kube-proxy on every node and of the load balancer in the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{
    balancer::{self, Target},
    kube_proxy::{self, NodeView},
    namespace::{all, run, run_command, within},
    plan::{NetworkPlan, TrafficPolicy},
    preflight::Tools,
    run::Run,
};

/// The nodes' kube-proxies and the load balancer.
#[derive(Clone, Debug)]
pub struct Proxies {
    router: String,
    nodes: Vec<Node>,
    namespaces: Vec<String>,
    tools: Tools,
    /// Indexes of the nodes the load balancer uses.
    healthy: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
struct Node {
    lock: PathBuf,
    /// Chains and sets of the last update.
    owned: BTreeSet<String>,
}

impl Proxies {
    /// Knows the namespaces of the nodes, in the order of the plan. Loads nothing yet.
    pub fn new(run: &Run, namespaces: Vec<String>, tools: Tools) -> Self {
        let node = |name: &String| Node {
            lock: run.xtables_lock(name),
            owned: BTreeSet::new(),
        };
        Self {
            router: run.namespace("router"),
            nodes: namespaces.iter().map(node).collect(),
            namespaces,
            tools,
            healthy: BTreeSet::new(),
        }
    }

    /// Namespaces of the nodes.
    pub fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// Loads what comes before any endpoint.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn setup(&self, plan: &NetworkPlan) -> Result<()> {
        let text = kube_proxy::setup(plan.mode, plan.family);
        let nodes: Vec<_> = (0..self.nodes.len()).collect();
        all(&nodes, |&node| self.load(node, &text))?;
        self.balance(plan, &BTreeMap::new())
    }

    /// Makes the rules follow the endpoints, given with the index of their node. No new flow is sent to a node that has
    /// lost its last endpoint, nor to one before its rules know its first.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn sync(&mut self, plan: &NetworkPlan, endpoints: &[(usize, SocketAddr)]) -> Result<()> {
        let targets = targets(plan, endpoints);
        let staying: BTreeMap<_, _> = targets
            .iter()
            .filter(|(node, _)| self.healthy.contains(node))
            .map(|(&n, &weight)| (n, weight))
            .collect();
        if !staying.is_empty() && staying.len() < self.healthy.len() {
            self.balance(plan, &staying)?;
        }

        let updates: Vec<_> = (0..self.nodes.len())
            .map(|node| {
                let view = NodeView {
                    family: plan.family,
                    service: &plan.service,
                    all: endpoints.iter().map(|&(_, endpoint)| endpoint).collect(),
                    local: endpoints
                        .iter()
                        .filter(|(at, _)| *at == node)
                        .map(|&(_, endpoint)| endpoint)
                        .collect(),
                };
                (node, kube_proxy::sync(plan.mode, &view, &self.nodes[node].owned))
            })
            .collect();
        all(&updates, |(node, rules)| self.load(*node, &rules.text))?;
        for (node, rules) in updates {
            self.nodes[node].owned = rules.owned;
        }
        self.balance(plan, &targets)?;
        self.healthy = targets.into_keys().collect();
        Ok(())
    }

    fn balance(&self, plan: &NetworkPlan, targets: &BTreeMap<usize, usize>) -> Result<()> {
        let targets: Vec<_> = targets
            .iter()
            .map(|(&node, &endpoints)| Target {
                address: plan.family.node_address(node),
                endpoints,
            })
            .collect();
        let rules = balancer::rules(plan.balancer, plan.family, &plan.service, &targets);
        within(&self.router, || run("nft", &["-f", "-"], &rules))
            .context("the load balancer")
            .map(drop)
    }

    fn load(&self, node: usize, rules: &str) -> Result<()> {
        within(&self.namespaces[node], || match self.tools.iptables_restore {
            None => run("nft", &["-f", "-"], rules),
            Some(restore) => run_command(
                Command::new(restore)
                    .arg("--noflush")
                    .env("XTABLES_LOCKFILE", &self.nodes[node].lock),
                rules,
            ),
        })
        .map(drop)
    }
}

/// Nodes that pass the health check, with their weight. Under policy Cluster every node can serve every flow.
fn targets(plan: &NetworkPlan, endpoints: &[(usize, SocketAddr)]) -> BTreeMap<usize, usize> {
    match plan.service.policy {
        TrafficPolicy::Cluster if endpoints.is_empty() => BTreeMap::new(),
        TrafficPolicy::Cluster => (0..plan.nodes.len()).map(|node| (node, 1)).collect(),
        TrafficPolicy::Local => endpoints.iter().fold(BTreeMap::new(), |mut weights, (node, _)| {
            *weights.entry(*node).or_default() += 1;
            weights
        }),
    }
}
