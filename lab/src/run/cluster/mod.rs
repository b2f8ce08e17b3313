//! The cluster of a scenario: the network, the API server stand-in and the pods, kept in step. Moves and scalings enter;
//! pods that end and start, as in Kubernetes, leave.

mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use self::pods::Start;
use super::books::Sources;
use super::identity;
use super::observers::AgentPlace;
use super::services;
use crate::apiserver::ApiServer;
use crate::apiserver::objects::{self, PodView};
use crate::clients::{Clients, Counts};
use crate::net::{Door, Endpoint, Family, Listen, Network, NetworkPlan, Origin, PodPlan, ProxyMode, ServicePlan};
use crate::scenario::{PodSet, Scenario};

/// What runs in namespaces, and what the API tells of it.
#[derive(Debug)]
pub struct Cluster {
    network: Network,
    api: ApiServer,
    /// Those who open flows, by the Service or the process of a node that they dial.
    clients: BTreeMap<String, Clients>,
    pods: PodSet,
    host_network: BTreeMap<String, u16>,
    running: BTreeMap<String, Running>,
    ended: Vec<Running>,
    /// Nodes to which the balancer sends, with or without pods.
    kept: BTreeSet<String>,
    /// CPU time that each flow costs a pod.
    work: Duration,
    starts: u64,
}

/// A pod that runs, or ran.
#[derive(Debug, Clone)]
pub struct Running {
    /// The pod as the API tells it.
    pub view: PodView,
    /// The name with which its server answers: another one each time that a pod of this name starts, so that clients
    /// count them apart.
    pub instance: String,
}

impl Cluster {
    /// Builds network and API, and starts the first pods; they are endpoints when this returns.
    ///
    /// # Errors
    /// The machine is not fit for it, or something does not start.
    pub async fn create(scenario: &Scenario, family: Family, mode: ProxyMode, program: PathBuf) -> Result<Self> {
        let plan = NetworkPlan {
            program,
            family,
            mode,
            balancer: scenario.balancer,
            delivery: scenario.delivery,
            nodes: scenario.nodes.clone(),
            zones: scenario.zones.clone(),
            services: services::plans(scenario, family),
        };
        let api = ApiServer::start().await?;
        let network = Network::create(plan).await.context("cannot build the network")?;
        let mut cluster = Self {
            network,
            api,
            clients: BTreeMap::new(),
            pods: scenario.pods.clone(),
            host_network: scenario.host_network.clone(),
            running: BTreeMap::new(),
            ended: Vec::new(),
            kept: BTreeSet::new(),
            work: scenario.work,
            starts: 0,
        };
        cluster.publish_nodes_and_services()?;
        cluster.start_clients_and_processes(scenario).await?;
        let placed = cluster.pods.pods().iter();
        let first: Vec<Start> = placed
            .map(|placed| Start::anywhere(&placed.pod, &placed.node))
            .collect();
        cluster.start(first).await?;
        Ok(cluster)
    }

    fn publish_nodes_and_services(&self) -> Result<()> {
        let (store, plan) = (self.api.store(), self.network.plan());
        for node in &plan.nodes {
            // Before its agent starts, which knows pods by what is below.
            self.network.make_cgroup(&Path::new(node).join(identity::PODS))?;
            store.put(&objects::node(
                node,
                self.network.node_address(node)?,
                self.network.pod_cidr(node)?,
                plan.zones.get(node),
            ))?;
        }
        plan.services
            .iter()
            .try_for_each(|service| store.put(&objects::service(service, &self.main().name)))
    }

    async fn start_clients_and_processes(&mut self, scenario: &Scenario) -> Result<()> {
        let plan = self.network.plan().clone();
        for (index, service) in plan.services.iter().enumerate() {
            let clients = self
                .network
                .clients_through(index, &Origin::External, &Door::LoadBalancer);
            let clients = clients.await.context("cannot start the clients")?;
            self.clients.insert(service.name.clone(), clients);
        }
        for (name, process) in &scenario.processes {
            let protocol = self.main().protocol;
            let listen = vec![Listen {
                protocol,
                port: process.port,
            }];
            self.network
                .start(PodPlan {
                    host_network: true,
                    cgroup: Some(identity::process_cgroup(&process.node, name)),
                    ..PodPlan::new(name, &process.node, listen)
                })
                .await
                .with_context(|| format!("cannot start {name}"))?;
            let door = Door::Direct(Endpoint {
                pod: name.clone(),
                port: process.port,
            });
            let clients = self.network.clients_through(0, &Origin::External, &door).await?;
            self.clients.insert(name.clone(), clients);
        }
        Ok(())
    }

    /// Where the API is.
    pub fn api_url(&self) -> String {
        self.api.url()
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The Services; the first is the main one.
    pub fn services(&self) -> &[ServicePlan] {
        &self.network.plan().services
    }

    /// The main Service.
    pub fn main(&self) -> &ServicePlan {
        // A plan without a Service is refused when the network is built.
        &self.network.plan().services[0]
    }

    /// Where the agent of each node runs. With a folder for pins, each has one of its own there.
    ///
    /// # Errors
    /// The network has lost a node.
    pub fn agent_places(&self, pins: Option<&Path>) -> Result<Vec<AgentPlace>> {
        let places = self.network.plan().nodes.iter().map(|node| {
            Ok(AgentPlace {
                node: node.clone(),
                netns: self.network.node_netns(node)?,
                cgroup: self.network.cgroup().join(node),
                pins: pins.map(|pins| pins.join(node)),
            })
        });
        places.collect()
    }

    /// Those who open flows to a Service or a process of a node; to the main Service by default.
    ///
    /// # Errors
    /// There is no such Service and no such process.
    pub fn clients(&self, to: Option<&str>) -> Result<&Clients> {
        let to = to.unwrap_or(&self.main().name);
        self.clients.get(to).with_context(|| format!("nobody dials {to}"))
    }

    /// All who open flows, the main Service's first.
    pub fn all_clients(&self) -> impl Iterator<Item = &Clients> {
        let main = &self.main().name;
        let others = self.clients.iter().filter(move |(to, _)| *to != main);
        self.clients
            .get(main)
            .into_iter()
            .chain(others.map(|(_, clients)| clients))
    }

    /// What clients count now, by what they dial.
    ///
    /// # Errors
    /// Clients have ended.
    pub async fn books(&self) -> Result<BTreeMap<String, Counts>> {
        let counts = self
            .clients
            .iter()
            .map(|(to, clients)| async move { Ok::<_, anyhow::Error>((to.clone(), clients.counts().await?)) });
        Ok(futures::future::try_join_all(counts).await?.into_iter().collect())
    }

    /// Flows that each client address has opened, by what it dials.
    ///
    /// # Errors
    /// Clients have ended.
    pub async fn sources(&self) -> Result<Sources> {
        let mut all = Sources::new();
        for (to, clients) in &self.clients {
            let by_source = clients.by_source().await?.into_iter();
            let flows = by_source.map(|(source, pods)| (source, pods.values().sum()));
            all.insert(to.clone(), flows.collect());
        }
        Ok(all)
    }

    /// The pods that run, in the order in which they came.
    pub fn running(&self) -> impl Iterator<Item = &Running> {
        self.pods
            .pods()
            .iter()
            .filter_map(|placed| self.running.get(&placed.pod))
    }

    /// The pods that have ended.
    pub fn ended(&self) -> &[Running] {
        &self.ended
    }

    /// Nodes without a ready pod to which the balancer sends all the same.
    pub fn kept_without_pods(&self) -> BTreeSet<String> {
        let with_pods: BTreeSet<&String> = self.running.values().map(|running| &running.view.node).collect();
        self.kept
            .iter()
            .filter(|node| !with_pods.contains(node))
            .cloned()
            .collect()
    }

    /// A pod that runs.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn pod(&self, name: &str) -> Result<&Running> {
        self.running
            .get(name)
            .with_context(|| format!("there is no pod {name}"))
    }

    /// Removes everything.
    ///
    /// # Errors
    /// Something could not be removed.
    pub async fn destroy(mut self) -> Result<()> {
        self.network.destroy().await
    }
}
