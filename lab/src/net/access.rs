//! Where clients are and which way they take: in, an origin and a door of a Service; out, running clients.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, bail};

use super::{Endpoint, Network, cgroups, child::Place, namespace};
use crate::clients::{Clients, Target};

/// Where clients run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Outside the cluster, with the addresses of [`super::Family::client_source`].
    External,
    /// In the network of this pod, with its address.
    Pod(String),
    /// On this node, with its address.
    Node(String),
}

/// Where a flow enters a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door {
    /// The load balancer's address.
    LoadBalancer,
    /// The node port at this node.
    NodePort(String),
    /// The address of the Service inside the cluster.
    ClusterIp,
    /// None: straight to a pod.
    Direct(Endpoint),
}

impl Network {
    /// Starts processes that open flows from outside to the first Service.
    ///
    /// # Errors
    /// A process does not start.
    pub async fn clients(&self) -> Result<Clients> {
        self.clients_through(0, &Origin::External, &Door::LoadBalancer).await
    }

    /// Starts processes that open flows to the Service with this index in the plan.
    ///
    /// # Errors
    /// There is no such Service, pod or node; a process does not start; or there is no way from this origin to this door.
    pub async fn clients_through(&self, service: usize, origin: &Origin, door: &Door) -> Result<Clients> {
        let plan = self
            .plan
            .services
            .get(service)
            .with_context(|| format!("there is no service number {service}"))?;
        let address = match door {
            Door::LoadBalancer => plan.load_balancer_target(),
            Door::ClusterIp if *origin == Origin::External => {
                bail!("the cluster address of service {} has no route from outside", plan.name)
            }
            Door::ClusterIp => plan.cluster_target(),
            Door::NodePort(node) => SocketAddr::new(self.node_address(node)?, plan.node_port),
            Door::Direct(Endpoint { pod, port }) => SocketAddr::new(self.pod(pod)?.address, *port),
        };
        let place = match origin {
            Origin::Pod(pod) => self.pod(pod)?.place.clone(),
            Origin::External => Place {
                netns: namespace::path(&self.run.namespace("clients")),
                cgroup: self.run.cgroup(cgroups::CLIENTS)?,
            },
            Origin::Node(node) => Place {
                netns: self.node_netns(node)?,
                cgroup: self.run.cgroup(cgroups::CLIENTS)?,
            },
        };
        let target = Target {
            protocol: plan.protocol,
            address,
        };
        Clients::start(&self.plan.program, target, &place).await
    }

    /// The address that clients of this origin have; `None` for those outside, which have many.
    ///
    /// # Errors
    /// There is no such pod or node.
    pub fn source(&self, origin: &Origin) -> Result<Option<IpAddr>> {
        match origin {
            Origin::External => Ok(None),
            Origin::Pod(pod) => Ok(Some(self.pod(pod)?.address)),
            Origin::Node(node) => self.node_address(node).map(Some),
        }
    }
}
