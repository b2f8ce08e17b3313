//! What connection tracking on a node says: by which door a flow came, and which pod it went to.

use std::process::Command;

use flowskew_lab::net::{Delivery, Door, Network, NetworkPlan, Origin, Protocol};

use crate::support::*;

/// Flows in a node's table that went to `to`, and are answered by `from`.
fn tracked(network: &Network, node: &str, protocol: Protocol, to: &str, from: &str) -> u64 {
    let namespace = format!("fsk{}-node-{node}", network.id());
    let family = if to.contains(':') { "ipv6" } else { "ipv4" };
    let output = Command::new("ip")
        .args(["netns", "exec", &namespace, "conntrack", "-L", "-f", family])
        .args(["-p", protocol.word(), "--orig-dst", to, "--reply-src", from])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().lines().count() as u64
}

#[tokio::test]
async fn network_nodes_know_by_which_door_a_flow_came() {
    let Some(_turn) = turn() else { return };
    for (mode, family) in MODES.into_iter().flat_map(|mode| FAMILIES.map(|family| (mode, family))) {
        for (delivery, protocol) in [
            (Delivery::Address, Protocol::Tcp),
            (Delivery::NodePort, Protocol::Tcp),
            (Delivery::Address, Protocol::Udp),
        ] {
            let mut services = services(family, &["gateway", "api"]);
            services.iter_mut().for_each(|service| service.protocol = protocol);
            let vips = [0, 1].map(|index| services[index].load_balancer_ip.to_string());
            let cluster_ip = services[0].cluster_ip.to_string();
            let (mut network, gateway) = start(NetworkPlan {
                services,
                delivery,
                ..plan(mode, family)
            })
            .await;
            let external = async |service, door: Door| {
                let clients = network
                    .clients_through(service, &Origin::External, &door)
                    .await
                    .unwrap();
                open(&clients, request(family, 60, 20)).await
            };
            let to_gateway = open(&gateway, request(family, 200, 20)).await;
            let to_api = external(1, Door::LoadBalancer).await;
            external(0, Door::Direct(at(&[("c", 8883)]).remove(0))).await;
            let from_a = network
                .clients_through(0, &Origin::Pod("a".into()), &Door::ClusterIp)
                .await
                .unwrap();
            let own = vec![network.source(&Origin::Pod("a".into())).unwrap().unwrap()];
            let to_cluster = open(
                &from_a,
                flowskew_lab::clients::OpenFlows {
                    sources: own,
                    ..request(family, 60, 1)
                },
            )
            .await;

            let c = family.pod_address(1, 0).to_string();
            let count = |to: &str| tracked(&network, "node-1", protocol, to, &c);
            match delivery {
                Delivery::Address => {
                    assert_eq!(count(&vips[0]), to_gateway["c"], "{mode:?} {family}");
                    assert_eq!(count(&vips[1]), to_api["c"], "{mode:?} {family}");
                }
                // The destination was the node port of each.
                Delivery::NodePort => {
                    let node = network.node_address("node-1").unwrap().to_string();
                    assert_eq!(count(&node), to_gateway["c"] + to_api["c"], "{mode:?} {family}");
                }
            }
            assert_eq!(
                count(&c),
                60 + to_cluster["c"],
                "straight, and from a pod of another node"
            );
            let on_node_0 = tracked(&network, "node-0", protocol, &cluster_ip, &c);
            assert_eq!(
                on_node_0, to_cluster["c"],
                "{mode:?} {family}: the node of the client chose"
            );
            network.destroy().await.unwrap();
        }
    }
}
