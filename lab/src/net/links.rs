//! The wires of pods: in, a pod and its node; out, a namespace with an address and the routes to it, and their end.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};

use super::{
    MAX_PODS_PER_NODE, Network, blocking, namespace,
    pods::{Pod, PodPlan},
    topology,
};

/// A namespace of its own, and the way there.
#[derive(Clone, Debug)]
pub struct Link {
    pub namespace: String,
    /// On the node.
    pub device: String,
    /// Index of the node whose range has the address, if that is another one.
    pub home: Option<usize>,
}

impl Network {
    /// Makes a pod's namespace and its link to the node with this index, and returns its address too.
    ///
    /// # Errors
    /// The address is in use or is no pod's, or the node has no address left.
    pub(super) async fn connect_pod(&mut self, pod: &PodPlan, node: usize) -> Result<(IpAddr, Link)> {
        let family = self.plan.family;
        let address = match pod.address {
            Some(address) => address,
            None => self.fresh_address(node)?,
        };
        let name = &pod.name;
        ensure!(
            !self.pod_addresses().any(|used| used == address),
            "the address {address} of pod {name} is in use"
        );
        let home = (0..self.plan.nodes.len())
            .find(|&node| family.pod_cidr(node).contains(&address))
            .with_context(|| format!("the address {address} of pod {name} is not in the range of a node"))?;
        let index = self.started[node];
        self.started[node] += 1;
        let link = Link {
            namespace: self.run.namespace(&format!("pod-{name}")),
            device: topology::pod_device(index),
            home: (home != node).then_some(home),
        };

        let (in_pod, device) = (link.namespace.clone(), link.device.clone());
        let on_node = self.on_node(node).to_owned();
        let mut routes = vec![];
        if let Some(home) = link.home {
            routes.push((
                self.proxies.router().to_owned(),
                topology::guest_on_router(family, address, node),
            ));
            routes.push((self.on_node(home).to_owned(), topology::guest_at_home(family, address)));
        }
        blocking(move || {
            namespace::ip(family, &format!("netns add {in_pod}\n"))?;
            namespace::within(&in_pod, || {
                topology::POD
                    .iter()
                    .try_for_each(|settings| namespace::set_kernel(settings))?;
                namespace::ip(family, &topology::pod(family, &on_node, &device, address))
            })?;
            routes.push((on_node, topology::pod_on_node(&device, address)));
            routes
                .iter()
                .try_for_each(|(namespace, script)| namespace::within(namespace, || namespace::ip(family, script)))
        })
        .await?;
        Ok((address, link))
    }

    fn fresh_address(&mut self, node: usize) -> Result<IpAddr> {
        loop {
            let index = self.addresses[node];
            ensure!(
                index < MAX_PODS_PER_NODE,
                "node {} has given {MAX_PODS_PER_NODE} pod addresses and has none left",
                self.plan.nodes[node]
            );
            self.addresses[node] += 1;
            let address = self.plan.family.pod_address(node, index);
            if !self.pod_addresses().any(|used| used == address) {
                return Ok(address);
            }
        }
    }

    /// Addresses in use by pods that have one of their own.
    fn pod_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let own = self.pods.values().filter(|pod| pod.link.is_some());
        own.map(|pod| pod.address)
    }

    /// Removes a pod's link, and the routes that were made for it. Does nothing when it has none.
    ///
    /// # Errors
    /// The link is gone already.
    pub(super) async fn disconnect(&self, pod: &Pod) -> Result<()> {
        let Some(Link { device, home, .. }) = &pod.link else {
            return Ok(());
        };
        let mut scripts = vec![(self.on_node(pod.node).to_owned(), format!("link delete {device}\n"))];
        if let Some(home) = *home {
            let gone = topology::guest_gone(pod.address);
            scripts.push((self.proxies.router().to_owned(), gone.clone()));
            scripts.push((self.on_node(home).to_owned(), gone));
        }
        let family = self.plan.family;
        blocking(move || {
            scripts
                .iter()
                .try_for_each(|(namespace, script)| namespace::within(namespace, || namespace::ip(family, script)))
        })
        .await
    }
}
