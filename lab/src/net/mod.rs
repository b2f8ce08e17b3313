//! A Kubernetes-shaped network on one kernel: in, a plan; out, namespaces for clients, load balancer, nodes and pods,
//! joined as in a cluster, with the rules of a load balancer and of kube-proxy.
//!
//! A flow goes clients, router (where the external load balancer picks a node), node (where the rules of kube-proxy
//! pick a pod), pod. All of it is the kernel's own code.

mod addresses;
mod balancer;
pub(crate) mod child;
mod kube_proxy;
mod namespace;
mod plan;
mod preflight;
mod proxy;
mod run;
mod topology;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use ipnet::IpNet;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
    task::spawn_blocking,
    time::{sleep, timeout},
};

pub use self::{
    addresses::{Family, MAX_NODES, MAX_PODS_PER_NODE, MAX_SOURCES},
    plan::{Balancer, NetworkPlan, ProxyMode, ServicePlan, TrafficPolicy},
    run::{CleanReport, clean_stale},
};
use self::{child::Place, proxy::Proxies, run::Run};
use crate::clients::Clients;

/// How a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopPod {
    /// SIGTERM: the pod takes the flows that already reached it, then closes all of them with FIN.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// A running network. It is removed by [`Network::destroy`], or when it is dropped.
#[derive(Debug)]
pub struct Network {
    plan: NetworkPlan,
    run: Run,
    proxies: Proxies,
    /// Pods started so far on each node: the next one's index there.
    started: Vec<usize>,
    pods: BTreeMap<String, Pod>,
    destroyed: bool,
}

#[derive(Debug)]
struct Pod {
    node: usize,
    index: usize,
    address: IpAddr,
    process: Child,
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
            let run = Run::register()?;
            let namespaces = plan
                .nodes
                .iter()
                .map(|node| run.namespace(&format!("node-{node}")))
                .collect();
            let network = Self {
                proxies: Proxies::new(&run, namespaces, tools),
                started: vec![0; plan.nodes.len()],
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
            prepare(name, &topology::FORWARDING, &topology::node(family, &router, *index))
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

    /// Starts a pod and returns its address. It accepts flows, but is not an endpoint yet.
    ///
    /// # Errors
    /// There is no such node, the pod runs already, the node has had too many pods, or the process does not start.
    pub async fn start_pod(&mut self, name: &str, node: &str) -> Result<IpAddr> {
        plan::check_name("pod", name)?;
        ensure!(!self.pods.contains_key(name), "pod {name} runs already");
        let node = self.node(node)?;
        let index = self.started[node];
        ensure!(
            index < MAX_PODS_PER_NODE,
            "node {} has started {MAX_PODS_PER_NODE} pods and has no address left",
            self.plan.nodes[node]
        );
        self.started[node] += 1;

        let family = self.plan.family;
        let address = family.pod_address(node, index);
        let (on_node, in_pod) = (self.proxies.namespaces()[node].clone(), self.pod_namespace(name));
        let place = Place {
            netns: namespace::path(&in_pod),
            cgroup: self.run.cgroup(&format!("pod-{name}"))?,
        };
        blocking(move || {
            namespace::ip(family, &format!("netns add {in_pod}\n"))?;
            namespace::within(&in_pod, || {
                topology::POD
                    .iter()
                    .try_for_each(|settings| namespace::set_kernel(settings))?;
                namespace::ip(family, &topology::pod(family, &on_node, index, address))
            })?;
            namespace::within(&on_node, || {
                namespace::ip(family, &topology::pod_on_node(index, address))
            })
        })
        .await?;

        let listen = SocketAddr::new(address, self.plan.service.target_port);
        let arguments = ["--name".into(), name.to_owned(), "--listen".into(), listen.to_string()];
        let mut process = child::start(&self.plan.program, "pod", &arguments, &place)?;
        let stdout = process.stdout.take().context("the pod has no standard output")?;
        let mut line = String::new();
        let ready = timeout(Duration::from_secs(20), BufReader::new(stdout).read_line(&mut line)).await;
        ensure!(
            matches!(ready, Ok(Ok(_))) && line == crate::pod::READY,
            "pod {name} does not start; its message is above"
        );
        self.pods.insert(
            name.to_owned(),
            Pod {
                node,
                index,
                address,
                process,
            },
        );
        Ok(address)
    }

    /// Ends a pod, and removes its address when its flows are closed on both sides, or after half a second.
    ///
    /// Take it out of the endpoints first, as Kubernetes does: flows that find it gone fail.
    ///
    /// # Errors
    /// There is no such pod.
    pub async fn stop_pod(&mut self, name: &str, how: StopPod) -> Result<()> {
        let mut pod = self
            .pods
            .remove(name)
            .with_context(|| format!("there is no pod {name}"))?;
        let signal = match how {
            StopPod::Terminate => Signal::TERM,
            StopPod::Kill => Signal::KILL,
        };
        if let Some(pid) = pod.process.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            kill_process(pid, signal).with_context(|| format!("cannot stop pod {name}"))?;
        }
        if timeout(Duration::from_secs(10), pod.process.wait()).await.is_err() {
            pod.process
                .kill()
                .await
                .with_context(|| format!("cannot kill pod {name}"))?;
        }
        let in_pod = self.pod_namespace(name);
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline && sockets(in_pod.clone(), "connected exclude time-wait".into()).await? > 0 {
            sleep(Duration::from_millis(10)).await;
        }
        let on_node = self.proxies.namespaces()[pod.node].clone();
        let (family, device) = (self.plan.family, topology::pod_device(pod.index));
        blocking(move || {
            namespace::within(&on_node, || namespace::ip(family, &format!("link delete {device}\n")))?;
            namespace::ip(family, &format!("netns delete {in_pod}\n"))
        })
        .await
    }

    /// Makes these pods the ready endpoints of the Service: on every node and at the load balancer. Flows that are open
    /// stay where they are.
    ///
    /// # Errors
    /// A pod does not run, or the kernel refuses the rules.
    pub async fn set_endpoints(&mut self, ready: &[String]) -> Result<()> {
        let mut endpoints = vec![];
        for name in ready {
            let pod = self.pods.get(name).with_context(|| format!("there is no pod {name}"))?;
            let endpoint = (pod.node, SocketAddr::new(pod.address, self.plan.service.target_port));
            ensure!(!endpoints.contains(&endpoint), "pod {name} is listed twice");
            endpoints.push(endpoint);
        }
        let (plan, mut proxies) = (self.plan.clone(), self.proxies.clone());
        self.proxies = blocking(move || proxies.sync(&plan, &endpoints).map(|()| proxies)).await?;
        Ok(())
    }

    /// Established sockets on the pod's port, as `ss` counts them in the pod's namespace.
    ///
    /// # Errors
    /// There is no such pod, or `ss` fails.
    pub async fn established(&self, pod: &str) -> Result<u64> {
        ensure!(self.pods.contains_key(pod), "there is no pod {pod}");
        let filter = format!("established sport = :{}", self.plan.service.target_port);
        sockets(self.pod_namespace(pod), filter).await
    }

    /// Starts processes that open flows to the Service, in the clients' namespace.
    ///
    /// # Errors
    /// A process does not start.
    pub async fn clients(&self) -> Result<Clients> {
        let service = &self.plan.service;
        let place = Place {
            netns: namespace::path(&self.run.namespace("clients")),
            cgroup: self.run.cgroup(run::CLIENTS)?,
        };
        Clients::start(
            &self.plan.program,
            SocketAddr::new(service.load_balancer_ip, service.port),
            &place,
        )
        .await
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
        for (_, mut pod) in std::mem::take(&mut self.pods) {
            pod.process.wait().await.context("cannot wait for a pod")?;
        }
        result
    }

    fn node(&self, name: &str) -> Result<usize> {
        match self.plan.nodes.iter().position(|node| node == name) {
            Some(index) => Ok(index),
            None => bail!("there is no node {name}: the nodes are {}", self.plan.nodes.join(", ")),
        }
    }

    fn pod_namespace(&self, pod: &str) -> String {
        self.run.namespace(&format!("pod-{pod}"))
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

/// Counts the TCP sockets of a namespace in a state that `ss` knows.
async fn sockets(namespace: String, filter: String) -> Result<u64> {
    blocking(move || {
        let filter: Vec<_> = ["-N", &namespace, "-Htn", "state"]
            .into_iter()
            .chain(filter.split(' '))
            .collect();
        Ok(namespace::run("ss", &filter, "")?.lines().count() as u64)
    })
    .await
}

/// Runs something that waits for other programs away from the runtime's own threads.
async fn blocking<T: Send + 'static>(task: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(task).await.context("a task of the network panicked")?
}
