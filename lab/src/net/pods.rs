//! Pods and other servers on nodes: in, what to run and where; out, a running process with an address, and its end.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::{Component, Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
    time::{sleep, timeout},
};

use super::{
    Network, blocking, cgroups,
    child::{self, Place},
    links::Link,
    namespace,
    service::{Protocol, check_name},
};

/// How a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopPod {
    /// SIGTERM: the pod takes the flows that already reached it, then closes all of them with FIN.
    Terminate,
    /// SIGKILL.
    Kill,
    /// Its link is cut, then SIGKILL: no FIN and no RST reaches its clients, whose flows hang.
    Vanish,
}

/// A port that a pod serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listen {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
}

/// A pod to start; or, with the node's network and a control group that is no pod's, a plain process of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlan {
    /// What its server answers; no other pod that runs has this name.
    pub name: String,
    /// Name of its node.
    pub node: String,
    /// It uses the node's network and address.
    pub host_network: bool,
    /// A pod address that nobody uses now, of this or another node; `None`: one that nobody has had.
    pub address: Option<IpAddr>,
    /// Path of its control group below the run's; `None`: `pod-NAME`.
    pub cgroup: Option<PathBuf>,
    /// What it serves. Without any it runs, and refuses flows.
    pub listen: Vec<Listen>,
    /// CPU time that it uses up for each TCP flow before it answers.
    pub work: Duration,
}

impl PodPlan {
    /// A pod with a network and an address of its own.
    #[must_use]
    pub fn new(name: &str, node: &str, listen: Vec<Listen>) -> Self {
        Self {
            name: name.to_owned(),
            node: node.to_owned(),
            host_network: false,
            address: None,
            cgroup: None,
            listen,
            work: Duration::ZERO,
        }
    }
}

/// A pod that runs.
#[derive(Debug)]
pub struct Pod {
    /// Index of its node.
    pub node: usize,
    /// Its address, or the node's.
    pub address: IpAddr,
    /// Namespace and control group.
    pub place: Place,
    /// `None` with the node's network.
    pub link: Option<Link>,
    listen: Vec<Listen>,
    process: Child,
}

impl Network {
    /// Starts a pod that serves every Service at its target port, and returns its address. It accepts flows, but is not an
    /// endpoint yet.
    ///
    /// # Errors
    /// Those of [`Network::start`].
    pub async fn start_pod(&mut self, name: &str, node: &str) -> Result<IpAddr> {
        let mut listen: Vec<Listen> = self
            .plan
            .services
            .iter()
            .map(|service| Listen {
                protocol: service.protocol,
                port: service.target_port,
            })
            .collect();
        listen.sort_unstable();
        listen.dedup();
        self.start(PodPlan::new(name, node, listen)).await
    }

    /// Starts a pod and returns its address. It accepts flows, but is not an endpoint yet.
    ///
    /// # Errors
    /// There is no such node, the pod runs already, its address is in use or is no pod's, the node has no address left, or
    /// the process does not start.
    pub async fn start(&mut self, pod: PodPlan) -> Result<IpAddr> {
        let name = &pod.name;
        check_name("pod", name)?;
        ensure!(!self.pods.contains_key(name), "pod {name} runs already");
        let node = self.node(&pod.node)?;
        let group = pod.cgroup.clone().unwrap_or_else(|| format!("pod-{name}").into());
        ensure!(
            group.components().all(|part| matches!(part, Component::Normal(_))),
            "the control group {} of pod {name} is not a path below the run's",
            group.display()
        );
        let (address, link) = if pod.host_network {
            ensure!(
                pod.address.is_none(),
                "pod {name} has the address of its node, and is given another"
            );
            (self.plan.family.node_address(node), None)
        } else {
            let (address, link) = self.connect_pod(&pod, node).await?;
            (address, Some(link))
        };
        let namespace = link.as_ref().map_or(self.on_node(node), |link| &link.namespace);
        let place = Place {
            netns: namespace::path(namespace),
            cgroup: self.run.cgroup(&group)?,
        };
        let mut arguments = vec!["--name".to_owned(), name.clone()];
        for Listen { protocol, port } in &pod.listen {
            arguments.extend([format!("--{protocol}"), SocketAddr::new(address, *port).to_string()]);
        }
        arguments.extend(["--work-us".to_owned(), pod.work.as_micros().to_string()]);
        let mut process = child::start(&self.plan.program, "pod", &arguments, &place)?;
        let stdout = process.stdout.take().context("the pod has no standard output")?;
        let mut line = String::new();
        let ready = timeout(Duration::from_secs(20), BufReader::new(stdout).read_line(&mut line)).await;
        ensure!(
            matches!(ready, Ok(Ok(_))) && line == crate::pod::READY,
            "pod {name} does not start; its message is above"
        );
        self.pods.insert(
            pod.name,
            Pod {
                node,
                address,
                place,
                link,
                listen: pod.listen,
                process,
            },
        );
        Ok(address)
    }

    /// Ends a pod, and removes its address when its flows are closed on both sides, or after half a second; at once when it
    /// vanishes.
    ///
    /// Take it out of the endpoints first, as Kubernetes does: flows that find it gone fail.
    ///
    /// # Errors
    /// There is no such pod, or it is to vanish and has the node's network.
    pub async fn stop_pod(&mut self, name: &str, how: StopPod) -> Result<()> {
        ensure!(
            how != StopPod::Vanish || self.pod(name)?.link.is_some(),
            "pod {name} has the node's network, whose link cannot be cut"
        );
        let mut pod = self
            .pods
            .remove(name)
            .with_context(|| format!("there is no pod {name}"))?;
        if how == StopPod::Vanish {
            self.disconnect(&pod).await?;
        }
        let signal = match how {
            StopPod::Terminate => Signal::TERM,
            StopPod::Kill | StopPod::Vanish => Signal::KILL,
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
        if how != StopPod::Vanish {
            let deadline = Instant::now() + Duration::from_millis(500);
            while Instant::now() < deadline && self.sockets(&pod, "connected exclude time-wait").await? > 0 {
                sleep(Duration::from_millis(10)).await;
            }
            self.disconnect(&pod).await?;
        }
        let (family, group) = (self.plan.family, pod.place.cgroup);
        blocking(move || {
            if let Some(Link { namespace, .. }) = pod.link {
                namespace::ip(family, &format!("netns delete {namespace}\n"))?;
            }
            cgroups::remove_tree(&group)?;
            remove_pod_group(&group);
            Ok(())
        })
        .await
    }

    /// Established TCP sockets on the ports that the pod serves, as `ss` counts them.
    ///
    /// # Errors
    /// There is no such pod, or `ss` fails.
    pub async fn established(&self, pod: &str) -> Result<u64> {
        self.sockets(self.pod(pod)?, "established").await
    }

    /// The pod's TCP sockets in a state that `ss` knows.
    async fn sockets(&self, pod: &Pod, state: &str) -> Result<u64> {
        let tcp = pod.listen.iter().filter(|listen| listen.protocol == Protocol::Tcp);
        let ports: Vec<_> = tcp.map(|listen| format!("sport = :{}", listen.port)).collect();
        if ports.is_empty() {
            return Ok(0);
        }
        let namespace = pod
            .link
            .as_ref()
            .map_or(self.on_node(pod.node), |link| &link.namespace)
            .to_owned();
        let filter = format!("{state} ( {} )", ports.join(" or "));
        blocking(move || {
            let filter: Vec<_> = ["-N", &namespace, "-Htn", "state"]
                .into_iter()
                .chain(filter.split(' '))
                .collect();
            Ok(namespace::run("ss", &filter, "")?.lines().count() as u64)
        })
        .await
    }

    /// File of the network namespace of a pod; its node's with the node's network.
    ///
    /// # Errors
    /// There is no such pod.
    pub fn pod_netns(&self, pod: &str) -> Result<&Path> {
        Ok(&self.pod(pod)?.place.netns)
    }

    /// Full path of the control group of a pod.
    ///
    /// # Errors
    /// There is no such pod.
    pub fn pod_cgroup(&self, pod: &str) -> Result<&Path> {
        Ok(&self.pod(pod)?.place.cgroup)
    }
}

impl Pod {
    /// Waits until its process has ended.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub async fn ended(mut self) -> Result<()> {
        self.process.wait().await.context("cannot wait for a pod").map(drop)
    }
}

/// Removes the group of the pod around that of its container, unless another container is in it.
fn remove_pod_group(container: &Path) {
    let pod = container.parent().filter(|parent| {
        let name = parent.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| name.starts_with("pod"))
    });
    // Not empty is not an error.
    let _ = pod.map(fs::remove_dir);
}
