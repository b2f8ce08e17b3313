//! Which pods take flows: in, the ready endpoints of each Service, and nodes that the load balancer does not let go; out,
//! the rules of nodes and load balancer.

use std::{collections::BTreeSet, net::SocketAddr};

use anyhow::{Result, ensure};

use super::{Network, blocking, proxy::Endpoints};

/// A pod and the port at which it serves a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Name of the pod.
    pub pod: String,
    /// Its port.
    pub port: u16,
}

impl Network {
    /// Makes these pods the ready endpoints of every Service, at its target port: on every node and at the load balancer.
    /// Flows that are open stay where they are.
    ///
    /// # Errors
    /// A pod does not run, or the kernel refuses the rules.
    pub async fn set_endpoints(&mut self, ready: &[String]) -> Result<()> {
        let endpoints: Vec<Vec<Endpoint>> = self
            .plan
            .services
            .iter()
            .map(|service| {
                let endpoint = |pod: &String| Endpoint {
                    pod: pod.clone(),
                    port: service.target_port,
                };
                ready.iter().map(endpoint).collect()
            })
            .collect();
        self.set_service_endpoints(&endpoints).await
    }

    /// Sets the ready endpoints of each Service, in the order of the plan. TCP flows that are open stay where they are; UDP
    /// flows to an endpoint that goes get another one with their next datagram.
    ///
    /// # Errors
    /// There are not as many lists as Services, a pod does not run, or the kernel refuses the rules.
    pub async fn set_service_endpoints(&mut self, ready: &[Vec<Endpoint>]) -> Result<()> {
        ensure!(
            ready.len() == self.plan.services.len(),
            "endpoints of {} services are given, and there are {}",
            ready.len(),
            self.plan.services.len()
        );
        let endpoints = ready
            .iter()
            .map(|ready| self.addresses_of(ready))
            .collect::<Result<Vec<_>>>()?;
        let (plan, mut proxies) = (self.plan.clone(), self.proxies.clone());
        self.proxies = blocking(move || proxies.sync(&plan, endpoints).map(|()| proxies)).await?;
        Ok(())
    }

    /// The load balancer goes on sending new flows of every Service to these nodes, with or without endpoints, as one does
    /// whose health checks are slow. Each call replaces the nodes of the one before.
    ///
    /// # Errors
    /// There is no such node, or the kernel refuses the rules.
    pub async fn keep_in_balancer(&mut self, nodes: &[String]) -> Result<()> {
        let nodes = nodes
            .iter()
            .map(|node| self.node(node))
            .collect::<Result<BTreeSet<_>>>()?;
        let (plan, mut proxies) = (self.plan.clone(), self.proxies.clone());
        self.proxies = blocking(move || proxies.keep(&plan, nodes).map(|()| proxies)).await?;
        Ok(())
    }

    fn addresses_of(&self, ready: &[Endpoint]) -> Result<Endpoints> {
        let mut endpoints = Endpoints::new();
        for Endpoint { pod: name, port } in ready {
            let pod = self.pod(name)?;
            let endpoint = (pod.node, SocketAddr::new(pod.address, *port));
            ensure!(!endpoints.contains(&endpoint), "pod {name} is listed twice");
            endpoints.push(endpoint);
        }
        Ok(endpoints)
    }
}
