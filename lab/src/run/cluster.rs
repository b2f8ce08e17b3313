//! The cluster of a scenario: the network, the API server stand-in and the pods, kept in step. Moves and scalings enter;
//! pods that end and start, as in Kubernetes, leave.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;

use crate::apiserver::ApiServer;
use crate::apiserver::objects::{self, PodView};
use crate::clients::Clients;
use crate::net::{Family, Network, NetworkPlan, ProxyMode, ServicePlan, StopPod, TrafficPolicy};
use crate::scenario::{PodSet, Scenario};

/// Port of the nodes for external flows: any of the range that Kubernetes uses.
const NODE_PORT: u16 = 31_883;

/// What runs in namespaces, and what the API tells of it.
#[derive(Debug)]
pub struct Cluster {
    network: Network,
    api: ApiServer,
    clients: Clients,
    pods: PodSet,
    running: BTreeMap<String, Running>,
    starts: u64,
}

/// A pod that runs.
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
            nodes: scenario.nodes.clone(),
            service: service_plan(scenario, family),
        };
        let api = ApiServer::start().await?;
        let network = Network::create(plan).await.context("cannot build the network")?;
        let clients = network.clients().await.context("cannot start the clients")?;
        for node in &scenario.nodes {
            api.store().put(&objects::node(
                node,
                network.node_address(node)?,
                network.pod_cidr(node)?,
            ))?;
        }
        api.store().put(&objects::service(&network.plan().service))?;
        let pods = scenario.pods.clone();
        let mut cluster = Self {
            network,
            api,
            clients,
            pods,
            running: BTreeMap::new(),
            starts: 0,
        };
        let first: Vec<(String, String)> = cluster
            .pods
            .pods()
            .iter()
            .map(|placed| (placed.pod.clone(), placed.node.clone()))
            .collect();
        cluster.start(&first).await?;
        Ok(cluster)
    }

    /// Where the API is.
    pub fn api_url(&self) -> String {
        self.api.url()
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Those who open flows.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The pods that run, in the order in which they came.
    pub fn running(&self) -> impl Iterator<Item = &Running> {
        self.pods
            .pods()
            .iter()
            .filter_map(|placed| self.running.get(&placed.pod))
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

    /// Ends these pods together, and starts each again on the node named with it.
    ///
    /// # Errors
    /// A pod does not end or start.
    pub async fn replace(&mut self, pods: &[(String, String)], how: StopPod) -> Result<()> {
        let names: Vec<String> = pods.iter().map(|(pod, _)| pod.clone()).collect();
        self.stop(&names, how).await?;
        for (pod, node) in pods {
            self.pods.relocate(pod, node);
        }
        self.start(pods).await
    }

    /// Gives a node so many pods.
    ///
    /// # Errors
    /// A pod does not end or start.
    pub async fn scale(&mut self, node: &str, pods: usize) -> Result<()> {
        let scaling = self.pods.scale(node, pods);
        self.stop(&scaling.removed, StopPod::Terminate).await?;
        let added: Vec<_> = scaling.added.into_iter().map(|pod| (pod, node.to_owned())).collect();
        self.start(&added).await
    }

    /// Removes everything.
    ///
    /// # Errors
    /// Something could not be removed.
    pub async fn destroy(mut self) -> Result<()> {
        self.network.destroy().await
    }

    async fn start(&mut self, pods: &[(String, String)]) -> Result<()> {
        for (pod, node) in pods {
            self.starts += 1;
            let instance = format!("{pod}.{}", self.starts);
            let ip = self
                .network
                .start_pod(&instance, node)
                .await
                .with_context(|| format!("cannot start {pod}"))?;
            let view = PodView {
                name: pod.clone(),
                uid: format!("{pod}-{}", self.starts),
                node: node.clone(),
                host_ip: self.network.node_address(node)?,
                ip,
                ready: true,
            };
            self.api
                .store()
                .put(&objects::pod(&self.network.plan().service, &view))?;
            self.running.insert(pod.clone(), Running { view, instance });
        }
        self.publish().await
    }

    async fn stop(&mut self, pods: &[String], how: StopPod) -> Result<()> {
        if pods.is_empty() {
            return Ok(());
        }
        let mut ending = Vec::new();
        for pod in pods {
            let running = self
                .running
                .get_mut(pod)
                .with_context(|| format!("there is no pod {pod}"))?;
            running.view.ready = false;
            ending.push(running.clone());
            self.api
                .store()
                .put(&objects::pod(&self.network.plan().service, &running.view))?;
        }
        self.publish().await?;
        for Running { view, instance } in ending {
            self.network
                .stop_pod(&instance, how)
                .await
                .with_context(|| format!("cannot stop {}", view.name))?;
            self.running.remove(&view.name);
            self.api
                .store()
                .delete::<Pod>(&self.network.plan().service.namespace, &view.name)?;
        }
        self.publish().await
    }

    /// Tells API and nodes which pods are endpoints now.
    async fn publish(&mut self) -> Result<()> {
        let views: Vec<PodView> = self.running.values().map(|running| running.view.clone()).collect();
        self.api
            .store()
            .put(&objects::endpoint_slice(&self.network.plan().service, &views))?;
        let ready = self.running.values().filter(|running| running.view.ready);
        let ready: Vec<String> = ready.map(|running| running.instance.clone()).collect();
        self.network
            .set_endpoints(&ready)
            .await
            .context("cannot set the rules of the nodes")
    }
}

fn service_plan(scenario: &Scenario, family: Family) -> ServicePlan {
    // The scenario's own bound: 1 to 65535.
    let port = u16::try_from(scenario.service.port.get()).unwrap_or(u16::MAX);
    ServicePlan {
        namespace: scenario.service.namespace.value.clone(),
        name: scenario.service.name.value.clone(),
        port_name: String::new(),
        port,
        target_port: port,
        node_port: NODE_PORT,
        cluster_ip: family.cluster_ip(),
        load_balancer_ip: family.load_balancer_ip(),
        policy: TrafficPolicy::Local,
        affinity_timeout_seconds: scenario.service.affinity_timeout(),
    }
}
