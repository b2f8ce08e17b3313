//! Pods that come and go: names and nodes enter; servers that start and end, objects of the API, and rules of nodes and
//! balancer leave, in the order in which Kubernetes changes them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;

use super::{Cluster, Running};
use crate::apiserver::objects::{self, PodView};
use crate::net::{Endpoint, Listen, PodPlan, StopPod};
use crate::run::identity;

/// A pod to start.
pub(super) struct Start {
    pod: String,
    node: String,
    /// That of a pod before it.
    address: Option<IpAddr>,
}

impl Start {
    /// A pod with an address of its own.
    pub(super) fn anywhere(pod: &str, node: &str) -> Self {
        Self {
            pod: pod.to_owned(),
            node: node.to_owned(),
            address: None,
        }
    }
}

impl Cluster {
    /// Ends these pods together, and starts each again on the node named with it.
    ///
    /// # Errors
    /// A pod does not end or start.
    pub async fn relocate(&mut self, pods: &[(String, String)], how: StopPod) -> Result<()> {
        let names: Vec<String> = pods.iter().map(|(pod, _)| pod.clone()).collect();
        self.stop(&names, how).await?;
        for (pod, node) in pods {
            self.pods.relocate(pod, node);
        }
        self.start(pods.iter().map(|(pod, node)| Start::anywhere(pod, node)).collect())
            .await
    }

    /// Ends pods together, and starts another one at the address of each.
    ///
    /// # Errors
    /// A pod does not end or start.
    pub async fn replace(&mut self, pods: &[(String, String)], how: StopPod) -> Result<()> {
        let mut starts = Vec::new();
        for (old, new) in pods {
            let view = &self.pod(old)?.view;
            starts.push(Start {
                pod: new.clone(),
                node: view.node.clone(),
                address: Some(view.ip),
            });
        }
        let names: Vec<String> = pods.iter().map(|(old, _)| old.clone()).collect();
        self.stop(&names, how).await?;
        for (old, new) in pods {
            self.pods.rename(old, new);
        }
        self.start(starts).await
    }

    /// Gives a node so many pods.
    ///
    /// # Errors
    /// A pod does not end or start.
    pub async fn scale(&mut self, node: &str, pods: usize) -> Result<()> {
        let scaling = self.pods.scale(node, pods);
        self.stop(&scaling.removed, StopPod::Terminate).await?;
        self.start(scaling.added.iter().map(|pod| Start::anywhere(pod, node)).collect())
            .await
    }

    /// The balancer goes on sending to these nodes, and to no others without pods.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub async fn keep_sending(&mut self, nodes: &[String]) -> Result<()> {
        self.kept = nodes.iter().cloned().collect();
        self.network.keep_in_balancer(nodes).await
    }

    pub(super) async fn start(&mut self, pods: Vec<Start>) -> Result<()> {
        for Start { pod, node, address } in pods {
            self.starts += 1;
            let instance = format!("{pod}.{}", self.starts);
            let uid = identity::pod_uid(self.network.id(), &instance);
            let host_port = self.host_network.get(&pod).copied();
            let Listen { protocol, port } = Listen {
                protocol: self.main().protocol,
                port: host_port.unwrap_or(self.main().target_port),
            };
            let plan = PodPlan {
                host_network: host_port.is_some(),
                address,
                cgroup: Some(identity::pod_cgroup(&node, &uid)),
                work: self.work,
                ..PodPlan::new(&instance, &node, vec![Listen { protocol, port }])
            };
            let ip = self
                .network
                .start(plan)
                .await
                .with_context(|| format!("cannot start {pod}"))?;
            let view = PodView {
                name: pod.clone(),
                uid,
                host_ip: self.network.node_address(&node)?,
                zone: self.network.plan().zones.get(&node).cloned(),
                node,
                ip,
                port,
                host_network: host_port.is_some(),
                ready: true,
            };
            self.api.store().put(&objects::pod(self.main(), &view))?;
            self.running.insert(pod, Running { view, instance });
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
        }
        for running in &ending {
            self.api.store().put(&objects::pod(self.main(), &running.view))?;
        }
        self.publish().await?;
        for running in ending {
            let name = &running.view.name;
            self.network
                .stop_pod(&running.instance, how)
                .await
                .with_context(|| format!("cannot stop {name}"))?;
            self.running.remove(name);
            self.api.store().delete::<Pod>(&self.main().namespace, name)?;
            self.ended.push(running);
        }
        self.publish().await
    }

    /// Tells API and nodes which pods are endpoints now.
    async fn publish(&mut self) -> Result<()> {
        let views: Vec<PodView> = self.running.values().map(|running| running.view.clone()).collect();
        for service in self.services() {
            let ports = self.host_network.values().copied().chain([service.target_port]);
            for port in ports.collect::<BTreeSet<u16>>() {
                let there: Vec<PodView> = views.iter().filter(|view| view.port == port).cloned().collect();
                self.api.store().put(&objects::endpoint_slice(service, port, &there))?;
            }
        }
        let ready = self.running.values().filter(|running| running.view.ready);
        let ready: Vec<Endpoint> = ready
            .map(|running| Endpoint {
                pod: running.instance.clone(),
                port: running.view.port,
            })
            .collect();
        self.network
            .set_service_endpoints(&vec![ready; self.services().len()])
            .await
            .context("cannot set the rules of the nodes")
    }
}
