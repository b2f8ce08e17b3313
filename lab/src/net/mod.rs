//! A Kubernetes-shaped network on one kernel: in, a plan; out, namespaces for clients, load balancer, nodes and pods,
//! joined as in a cluster, with the rules of a load balancer and of kube-proxy.
//!
//! A flow goes clients, router (where the external load balancer picks a node), node (where the rules of kube-proxy
//! pick a pod), pod. All of it is the kernel's own code.

mod access;
mod addresses;
mod balancer;
mod cgroups;
pub(crate) mod child;
mod conntrack;
mod endpoints;
mod kube_proxy;
mod links;
mod namespace;
mod plan;
mod pods;
mod preflight;
mod proxy;
mod run;
mod service;
mod topology;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use ipnet::IpNet;
use tokio::task::spawn_blocking;

pub use self::{
    access::{Door, Origin},
    addresses::{Family, MAX_NODES, MAX_PODS_PER_NODE, MAX_SERVICES, MAX_SOURCES},
    endpoints::Endpoint,
    plan::{Balancer, Delivery, NetworkPlan, ProxyMode},
    pods::{Listen, PodPlan, StopPod},
    run::{CleanReport, clean_stale},
    service::{Protocol, ServicePlan, TrafficPolicy},
};
use self::{pods::Pod, proxy::Proxies, run::Run};

/// A running network. It is removed by [`Network::destroy`], or when it is dropped.
#[derive(Debug)]
pub struct Network {
    plan: NetworkPlan,
    run: Run,
    proxies: Proxies,
    /// Of each node: pods started so far, which number the next one's device.
    started: Vec<usize>,
    /// Of each node: pod addresses given so far.
    addresses: Vec<usize>,
    pods: BTreeMap<String, Pod>,
    destroyed: bool,
}

impl Network {
    /// Checks privileges, programs and kernel features for this mode and family.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    pub fn preflight(mode: ProxyMode, family: Family) -> Result<()> {
        preflight::preflight(mode, family).map(drop)
    }

    /// Builds the network, without pods.
    ///
    /// # Errors
    /// The plan or the machine is not fit for it; then nothing is left behind.
    pub async fn create(plan: NetworkPlan) -> Result<Self> {
        plan.check()?;
        blocking(move || {
            let tools = preflight::preflight(plan.mode, plan.family)?;
            if plan.services.iter().any(|service| service.protocol == Protocol::Udp) {
                preflight::preflight_udp()?;
            }
            let run = Run::register()?;
            let namespaces = plan
                .nodes
                .iter()
                .map(|node| run.namespace(&format!("node-{node}")))
                .collect();
            let network = Self {
                proxies: Proxies::new(&run, namespaces, plan.services.len(), tools),
                started: vec![0; plan.nodes.len()],
                addresses: vec![0; plan.nodes.len()],
                pods: BTreeMap::new(),
                destroyed: false,
                run,
                plan,
            };
            // From here on the network removes itself when something fails.
            network.connect()?;
            network.proxies.setup(&network.plan)?;
            Ok(network)
        })
        .await
    }

    /// Makes the namespaces of clients, router and nodes, and the links between them.
    fn connect(&self) -> Result<()> {
        let family = self.plan.family;
        let (router, clients) = (self.run.namespace("router"), self.run.namespace("clients"));
        let nodes = self.proxies.namespaces();
        let script: String = [&router, &clients]
            .into_iter()
            .chain(nodes)
            .map(|name| format!("netns add {name}\n"))
            .collect();
        namespace::ip(family, &script)?;
        let prepare = |name: &str, settings: &[topology::Settings], script: &str| {
            namespace::within(name, || {
                settings
                    .iter()
                    .try_for_each(|settings| namespace::set_kernel(settings))?;
                namespace::ip(family, script)
            })
        };
        prepare(&router, &topology::FORWARDING, "")?;
        prepare(&clients, &topology::CLIENTS, &topology::clients(family, &router))?;
        let indexed: Vec<_> = nodes.iter().enumerate().collect();
        namespace::all(&indexed, |(index, name)| {
            prepare(name, &topology::NODE, &topology::node(family, &router, *index))
        })?;
        prepare(&router, &[], &topology::router(family, nodes.len()))
    }

    /// The id of the run, part of the name of everything it makes.
    #[must_use]
    pub fn id(&self) -> &str {
        self.run.id()
    }

    /// The plan the network was built from.
    #[must_use]
    pub fn plan(&self) -> &NetworkPlan {
        &self.plan
    }

    /// Address of a node.
    ///
    /// # Errors
    /// There is no such node.
    pub fn node_address(&self, node: &str) -> Result<IpAddr> {
        Ok(self.plan.family.node_address(self.node(node)?))
    }

    /// Range of the addresses of a node's pods.
    ///
    /// # Errors
    /// There is no such node.
    pub fn pod_cidr(&self, node: &str) -> Result<IpNet> {
        Ok(self.plan.family.pod_cidr(self.node(node)?))
    }

    /// File of the network namespace of a node.
    ///
    /// # Errors
    /// There is no such node.
    pub fn node_netns(&self, node: &str) -> Result<PathBuf> {
        Ok(namespace::path(self.on_node(self.node(node)?)))
    }

    /// The control group of the run: those of pods and clients are below it.
    #[must_use]
    pub fn cgroup(&self) -> &Path {
        self.run.cgroup_path()
    }

    /// Makes a control group with this path below the run's, if there is none, and returns its full path.
    ///
    /// # Errors
    /// The cgroup v2 file system is read-only or full.
    pub fn make_cgroup(&self, path: &Path) -> Result<PathBuf> {
        self.run.cgroup(path)
    }

    /// A folder for whatever belongs to the run; it goes with it.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.run.folder()
    }

    /// Ends every process of the network and removes everything it made. Does nothing the second time.
    ///
    /// # Errors
    /// Something could not be removed; the rest is removed all the same.
    pub async fn destroy(&mut self) -> Result<()> {
        if self.destroyed {
            return Ok(());
        }
        self.destroyed = true;
        let id = self.id().to_owned();
        let result = blocking(move || run::teardown(&id)).await;
        for (_, pod) in std::mem::take(&mut self.pods) {
            pod.ended().await?;
        }
        result
    }

    fn node(&self, name: &str) -> Result<usize> {
        match self.plan.nodes.iter().position(|node| node == name) {
            Some(index) => Ok(index),
            None => bail!("there is no node {name}: the nodes are {}", self.plan.nodes.join(", ")),
        }
    }

    /// Namespace of a node.
    fn on_node(&self, index: usize) -> &str {
        &self.proxies.namespaces()[index]
    }

    fn pod(&self, name: &str) -> Result<&Pod> {
        self.pods.get(name).with_context(|| format!("there is no pod {name}"))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if !self.destroyed
            && let Err(error) = run::teardown(self.id())
        {
            tracing::warn!("{error:#}; flowskew-lab clean tries again");
        }
    }
}

/// Runs something that waits for other programs away from the runtime's own threads.
async fn blocking<T: Send + 'static>(task: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(task).await.context("a task of the network panicked")?
}
