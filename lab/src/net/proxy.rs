//! Loads rules: in, the endpoints of each Service; out, the rules of kube-proxy on every node and of the load balancer in
//! the kernel, and UDP flows to endpoints that are gone forgotten.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{
    balancer::{self, Pool, Target, mark},
    conntrack::{Answers, forget_udp},
    kube_proxy::{self, NodeView, ServiceView},
    namespace::{all, run, run_command, set_kernel, within},
    plan::{Delivery, NetworkPlan},
    preflight::Tools,
    run::Run,
    service::{Protocol, ServicePlan, TrafficPolicy},
    topology,
};

/// Ready endpoints of one Service, with the index of their node.
pub type Endpoints = Vec<(usize, SocketAddr)>;

/// Indexes of the nodes that the load balancer uses for one Service, with their weight.
type Healthy = BTreeMap<usize, usize>;

/// The nodes' kube-proxies and the load balancer.
#[derive(Clone, Debug)]
pub struct Proxies {
    router: String,
    nodes: Vec<Node>,
    namespaces: Vec<String>,
    tools: Tools,
    /// By Service, as in the plan.
    endpoints: Vec<Endpoints>,
    healthy: Vec<Healthy>,
    /// Nodes that the load balancer uses although they have no endpoint.
    kept: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
struct Node {
    lock: PathBuf,
    /// Chains and sets of the last update.
    owned: BTreeSet<String>,
}

impl Proxies {
    /// Knows the namespaces of the nodes, in the order of the plan. Loads nothing yet.
    pub fn new(run: &Run, namespaces: Vec<String>, services: usize, tools: Tools) -> Self {
        let node = |name: &String| Node {
            lock: run.xtables_lock(name),
            owned: BTreeSet::new(),
        };
        Self {
            router: run.namespace("router"),
            nodes: namespaces.iter().map(node).collect(),
            namespaces,
            tools,
            endpoints: vec![vec![]; services],
            healthy: vec![Healthy::new(); services],
            kept: BTreeSet::new(),
        }
    }

    /// Namespaces of the nodes.
    pub fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// Namespace of the router.
    pub fn router(&self) -> &str {
        &self.router
    }

    /// Loads what comes before any endpoint.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn setup(&self, plan: &NetworkPlan) -> Result<()> {
        let text = kube_proxy::setup(plan.mode, plan.family);
        let nodes: Vec<_> = (0..self.nodes.len()).collect();
        all(&nodes, |&node| self.load(node, &text))?;
        self.balance(plan, &self.healthy)?;
        // Connection tracking has its settings once there are rules that need it.
        let namespaces: Vec<_> = self.namespaces.iter().chain([&self.router]).collect();
        all(&namespaces, |namespace| {
            within(namespace, || set_kernel(topology::TRACKING))
        })
    }

    /// Makes the rules follow the endpoints of each Service. No new flow is sent to a node that has lost its last endpoint,
    /// nor to one before its rules know its first; but to those that are kept.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn sync(&mut self, plan: &NetworkPlan, endpoints: Vec<Endpoints>) -> Result<()> {
        let healthy = self.targets(plan, &endpoints);
        let narrowed: Vec<Healthy> = self
            .healthy
            .iter()
            .zip(&healthy)
            .map(|(before, after)| {
                let staying = after.iter().filter(|(node, _)| before.contains_key(node));
                let staying: Healthy = staying.map(|(&node, &weight)| (node, weight)).collect();
                if staying.is_empty() { before.clone() } else { staying }
            })
            .collect();
        if narrowed != self.healthy {
            self.balance(plan, &narrowed)?;
        }

        let updates: Vec<_> = (0..self.nodes.len())
            .map(|node| {
                let view = view(plan, &endpoints, node);
                (node, kube_proxy::sync(plan.mode, &view, &self.nodes[node].owned))
            })
            .collect();
        all(&updates, |(node, rules)| self.load(*node, &rules.text))?;
        for (node, rules) in updates {
            self.nodes[node].owned = rules.owned;
        }
        self.balance(plan, &healthy)?;
        self.forget(plan, &endpoints, &healthy)?;
        (self.endpoints, self.healthy) = (endpoints, healthy);
        Ok(())
    }

    /// The load balancer goes on using these nodes for every Service, and no others that have no endpoint.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn keep(&mut self, plan: &NetworkPlan, nodes: BTreeSet<usize>) -> Result<()> {
        self.kept = nodes;
        self.sync(plan, self.endpoints.clone())
    }

    /// UDP flows to endpoints, and to nodes, that were used and are not any more.
    fn forget(&self, plan: &NetworkPlan, endpoints: &[Endpoints], healthy: &[Healthy]) -> Result<()> {
        for (index, service) in plan.services.iter().enumerate() {
            if service.protocol != Protocol::Udp {
                continue;
            }
            let gone: Vec<SocketAddr> = self.endpoints[index]
                .iter()
                .filter(|endpoint| !endpoints[index].contains(endpoint))
                .map(|&(_, endpoint)| endpoint)
                .collect();
            let nodes: Vec<_> = self.namespaces.iter().enumerate().collect();
            all(&nodes, |&(node, namespace)| {
                let node_port = SocketAddr::new(plan.family.node_address(node), service.node_port);
                let doors = [service.load_balancer_target(), service.cluster_target(), node_port];
                within(namespace, || {
                    doors.iter().try_for_each(|&door| {
                        gone.iter()
                            .try_for_each(|&endpoint| forget_udp(door, Answers::Endpoint(endpoint)))
                    })
                })
            })?;
            let left = self.healthy[index]
                .keys()
                .filter(|node| !healthy[index].contains_key(node));
            let answers: Vec<Answers> = left
                .map(|&node| match plan.delivery {
                    Delivery::NodePort => {
                        Answers::Endpoint(SocketAddr::new(plan.family.node_address(node), service.node_port))
                    }
                    Delivery::Address => Answers::Marked(mark(node)),
                })
                .collect();
            within(&self.router, || {
                answers
                    .iter()
                    .try_for_each(|&answers| forget_udp(service.load_balancer_target(), answers))
            })?;
        }
        Ok(())
    }

    fn balance(&self, plan: &NetworkPlan, healthy: &[Healthy]) -> Result<()> {
        let pools: Vec<_> = plan
            .services
            .iter()
            .zip(healthy)
            .map(|(service, healthy)| Pool {
                service,
                targets: healthy
                    .iter()
                    .map(|(&node, &endpoints)| Target {
                        node,
                        address: plan.family.node_address(node),
                        endpoints,
                        zone: plan.zones.get(&plan.nodes[node]).cloned().unwrap_or_default(),
                    })
                    .collect(),
            })
            .collect();
        let rules = balancer::rules(plan.balancer, plan.delivery, plan.family, &pools);
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

    fn targets(&self, plan: &NetworkPlan, endpoints: &[Endpoints]) -> Vec<Healthy> {
        let targets = |(service, endpoints): (&ServicePlan, &Endpoints)| {
            let mut targets = targets(service, plan.nodes.len(), endpoints);
            for &node in &self.kept {
                targets.entry(node).or_insert(1);
            }
            targets
        };
        plan.services.iter().zip(endpoints).map(targets).collect()
    }
}

/// What kube-proxy on a node knows.
fn view<'a>(plan: &'a NetworkPlan, endpoints: &[Endpoints], node: usize) -> NodeView<'a> {
    let service = |(service, endpoints): (&'a ServicePlan, &Endpoints)| ServiceView {
        service,
        all: endpoints.iter().map(|&(_, endpoint)| endpoint).collect(),
        local: endpoints
            .iter()
            .filter(|(at, _)| *at == node)
            .map(|&(_, endpoint)| endpoint)
            .collect(),
    };
    NodeView {
        family: plan.family,
        services: plan.services.iter().zip(endpoints).map(service).collect(),
    }
}

/// Nodes that pass the health check, with their weight. Under policy Cluster every node can serve every flow.
fn targets(service: &ServicePlan, nodes: usize, endpoints: &Endpoints) -> Healthy {
    match service.policy {
        TrafficPolicy::Cluster if endpoints.is_empty() => Healthy::new(),
        TrafficPolicy::Cluster => (0..nodes).map(|node| (node, 1)).collect(),
        TrafficPolicy::Local => endpoints.iter().fold(Healthy::new(), |mut weights, (node, _)| {
            *weights.entry(*node).or_default() += 1;
            weights
        }),
    }
}
