//! Pods: in, the cgroup ids of sockets; out, whose pod each is ([`PodDirectory`]) and how busy it is ([`PodLoads`]).
//!
//! Both read the cgroup filesystems ([`Cgroups`]) and `/proc`, and nothing else: the container runtime and the Kubernetes API
//! are not asked. What cannot be read is told as a [`Degradation`], never as a zero.

use std::{fmt::Display, io, path::PathBuf};

use rustix::io::Errno;

use crate::degradation::Degradation;

mod cgroups;
mod cpu;
mod directory;
mod loads;
mod network;
mod place;
mod walk;

pub use cgroups::{CgroupError, Cgroups};
pub use directory::PodDirectory;
pub use loads::{Loads, PodLoad, PodLoads};

/// A pod, as its cgroup names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// UID in lower case, with dashes. Of a pod that the kubelet made from a file: 32 hex digits, which the Kubernetes API has
    /// in the annotation `kubernetes.io/config.hash` of the pod that stands for it.
    pub uid: String,
    /// The pod's own cgroup, above those of its containers.
    pub cgroup: PathBuf,
}

/// It is not known, or not of all flows, which pod they reached.
fn identity_degraded(why: impl Display) -> Degradation {
    Degradation {
        code: "pod-identity",
        sentence: format!("not all flows can be told to their pods: {why}"),
    }
}

/// It is not known, or not of all pods, how busy they are.
fn load_degraded(why: impl Display) -> Degradation {
    Degradation {
        code: "pod-load",
        sentence: format!("the load of pods is not known in full: {why}"),
    }
}

/// A process or a cgroup that has ended, in one of the ways its files say so.
fn is_gone(error: &io::Error) -> bool {
    let ended = [Errno::NOENT, Errno::NODEV, Errno::SRCH].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| ended.contains(&code))
}
