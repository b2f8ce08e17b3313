//! How busy pods are: in, the pods of interest; out, CPU time and what their listeners dropped.

use std::{
    collections::{BTreeSet, HashMap},
    io, mem,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{
    Cgroups, Pod,
    cpu::{Cpu, Throttled},
    is_gone, load_degraded,
    network::{Listeners, NodeNetwork, first_process},
    walk::walk,
};
use crate::degradation::Degradation;

/// Pods that are read at once, at most.
const MAX_PODS: usize = 512;
/// Cgroups of a pod that are looked at, at most.
const MAX_CGROUPS: usize = 256;

/// How busy a pod is. Cumulative since the pod's cgroup or network namespace began; `None`: not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodLoad {
    /// As in [`Pod`].
    pub uid: String,
    /// CPU time used, in microseconds.
    pub cpu_usage_us: Option<u64>,
    /// Time in which the limit of the pod or of one of its containers kept it from the CPU, in microseconds. Of containers that
    /// have ended, as much as this process has seen.
    pub cpu_throttled_us: Option<u64>,
    /// Connections that found an accept queue full, in the pod's network namespace.
    pub listen_overflows: Option<u64>,
    /// Connections dropped at a listener for any reason, in the pod's network namespace.
    pub listen_drops: Option<u64>,
    /// SYN cookies sent, in the pod's network namespace.
    pub syn_cookies_sent: Option<u64>,
    /// The pod's network namespace is the node's: the three before are of the whole node.
    pub shares_network: bool,
}

/// What was read at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loads {
    /// One for each pod that is still there.
    pub pods: Vec<PodLoad>,
    /// What could not be read, of some pod or of all.
    pub degradations: Vec<Degradation>,
}

/// Reads the load of pods.
#[derive(Debug)]
pub struct PodLoads {
    cgroups: Cgroups,
    node_netns: PathBuf,
    throttled: HashMap<PathBuf, Throttled>,
}

/// What is in the way, without a pod's name: it is said once, not for each pod.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
enum Trouble {
    #[error("more than {MAX_PODS} pods of this node are of interest, of which {MAX_PODS} are read")]
    TooMany,
    #[error("a pod has more than {MAX_CGROUPS} cgroups: how long its limits kept it waiting is not known")]
    TooManyCgroups,
    #[error("files of pods' cgroups cannot be read ({0}); run the agent as root")]
    Cgroup(io::ErrorKind),
    #[error("the agent does not see the processes of pods; set hostPID: true in its pod")]
    HiddenProcesses,
    #[error("/proc/<pid>/net/netstat of pods cannot be read ({0}); set hostPID: true in the agent's pod")]
    Netstat(io::ErrorKind),
    #[error(
        "the network namespaces of pods cannot be compared with the node's ({0}); give the agent CAP_SYS_PTRACE, or name the \
         node's as /proc/1/ns/net with --node-netns"
    )]
    Namespace(io::ErrorKind),
    #[error("the node's network namespace cannot be found ({0}); name it with --node-netns")]
    NodeNamespace(io::ErrorKind),
}

impl PodLoads {
    /// `node_netns`: a file that names the node's network namespace.
    pub fn new(cgroups: Cgroups, node_netns: &Path) -> Self {
        Self {
            cgroups,
            node_netns: node_netns.to_owned(),
            throttled: HashMap::new(),
        }
    }

    /// Reads the load of these pods, of each once. Takes some hundred microseconds a pod.
    pub fn read<'a>(&mut self, pods: impl IntoIterator<Item = &'a Pod>) -> Loads {
        let mut troubles = BTreeSet::new();
        let node = NodeNetwork::at(&self.node_netns)
            .map_err(|error| troubles.insert(Trouble::NodeNamespace(error.kind())))
            .ok();
        let mut before = mem::take(&mut self.throttled);
        let mut loads = Vec::new();
        for pod in pods.into_iter().collect::<BTreeSet<_>>() {
            if !pod.cgroup.exists() {
                continue;
            }
            if loads.len() == MAX_PODS {
                troubles.insert(Trouble::TooMany);
                break;
            }
            self.throttled.extend(before.remove_entry(&pod.cgroup));
            loads.extend(self.read_pod(pod, node, &mut troubles));
        }
        Loads {
            pods: loads,
            degradations: troubles.into_iter().map(load_degraded).collect(),
        }
    }

    fn read_pod(&mut self, pod: &Pod, node: Option<NodeNetwork>, troubles: &mut BTreeSet<Trouble>) -> Option<PodLoad> {
        let mut cgroups = Vec::new();
        let whole = match walk(&pod.cgroup, MAX_CGROUPS, &(), |(), path, id| {
            cgroups.push((id, path.to_owned()));
        }) {
            Ok(whole) => whole,
            Err(error) => {
                if !is_gone(&error) {
                    troubles.insert(Trouble::Cgroup(error.kind()));
                }
                return None;
            }
        };
        if !whole {
            troubles.insert(Trouble::TooManyCgroups);
        }
        let (cpu_usage_us, cpu_throttled_us) = self
            .cpu(pod, &cgroups, whole)
            .map_err(|error| troubles.insert(Trouble::Cgroup(error.kind())))
            .unwrap_or_default();
        let (listeners, shares_network) = node
            .and_then(|node| {
                listeners(node, &cgroups)
                    .map_err(|trouble| troubles.insert(trouble))
                    .ok()
            })
            .unwrap_or_default();
        Some(PodLoad {
            uid: pod.uid.clone(),
            cpu_usage_us,
            cpu_throttled_us,
            listen_overflows: listeners.overflows,
            listen_drops: listeners.drops,
            syn_cookies_sent: listeners.cookies,
            shares_network,
        })
    }

    /// Usage and throttled time of a pod, whose own cgroup is the first. The latter only if these are all of its cgroups.
    fn cpu(&mut self, pod: &Pod, cgroups: &[(u64, PathBuf)], whole: bool) -> io::Result<(Option<u64>, Option<u64>)> {
        let mut usage_us = None;
        let mut throttled = HashMap::new();
        for (index, (id, path)) in cgroups.iter().enumerate() {
            let cpu = Cpu::read(&self.cgroups, path)?;
            if index == 0 {
                usage_us = cpu.usage_us;
            }
            throttled.extend(cpu.throttled_us.map(|us| (*id, us)));
        }
        let before = self.throttled.entry(pod.cgroup.clone()).or_default();
        Ok((usage_us, whole.then(|| before.add_up(throttled)).flatten()))
    }
}

/// What the listeners in a pod's network namespace dropped, and whether that is the node's. All containers of a pod share one.
/// Its oldest process is asked: what is younger may have made a namespace of its own.
fn listeners(node: NodeNetwork, cgroups: &[(u64, PathBuf)]) -> Result<(Listeners, bool), Trouble> {
    let mut processes = BTreeSet::new();
    for (_, cgroup) in cgroups {
        processes.extend(first_process(cgroup).map_err(|error| Trouble::Cgroup(error.kind()))?);
    }
    for pid in processes {
        if pid == 0 {
            return Err(Trouble::HiddenProcesses);
        }
        let shares = match node.has(pid) {
            Ok(shares) => shares,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(Trouble::Namespace(error.kind())),
        };
        match Listeners::of(pid) {
            Ok(listeners) => return Ok((listeners, shares)),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(Trouble::Netstat(error.kind())),
        }
    }
    Ok(Default::default())
}

#[cfg(test)]
mod tests;
