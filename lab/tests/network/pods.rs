//! Pods with the node's own network, and pods that come to the address of another.

use std::{os::unix::fs::MetadataExt as _, path::Path, process::Command};

use flowskew_lab::net::{Door, Family, Listen, Network, Origin, PodPlan, Protocol, StopPod};

use crate::support::*;

fn listen(port: u16) -> Vec<Listen> {
    let protocol = Protocol::Tcp;
    vec![Listen { protocol, port }]
}

#[tokio::test]
async fn network_pods_with_the_address_of_their_node() {
    let Some(_turn) = turn() else { return };
    for (mode, family) in MODES.into_iter().zip(FAMILIES) {
        let mut network = Network::create(plan(mode, family)).await.unwrap();
        let node = network.node_address("node-0").unwrap();
        for (name, port) in [("one", 9001), ("two", 9002), ("daemon", 9003)] {
            let kind = if name == "daemon" { "system" } else { "kubepods" };
            let pod = PodPlan {
                host_network: true,
                cgroup: Some(format!("node-0/{kind}/pod-{name}/main").into()),
                ..PodPlan::new(name, "node-0", listen(port))
            };
            assert_eq!(network.start(pod).await.unwrap(), node);
        }
        network.start_pod("c", "node-1").await.unwrap();
        let ready = at(&[("one", 9001), ("two", 9002), ("c", 8883)]);
        network.set_service_endpoints(&[ready]).await.unwrap();
        let clients = network.clients().await.unwrap();
        let opened = open(&clients, request(family, 2000, 100)).await;
        for (pod, share) in [("one", 0.25), ("two", 0.25), ("c", 0.5)] {
            assert_share(&opened, pod, share);
        }
        let straight = Door::Direct(at(&[("daemon", 9003)]).remove(0));
        let to_daemon = network.clients_through(0, &Origin::External, &straight).await.unwrap();
        open(&to_daemon, request(family, 30, 30)).await;
        let counts = clients.counts().await.unwrap();
        assert_established(&network, &counts, &["one", "two", "c"]).await;
        assert_established(&network, &to_daemon.counts().await.unwrap(), &["daemon"]).await;

        // On one address, each socket belongs to its own pod's group.
        for (pod, port) in [("one", 9001), ("two", 9002), ("daemon", 9003)] {
            let group = network.pod_cgroup(pod).unwrap();
            let sockets = in_node(
                &network,
                "node-0",
                &["ss", "-Htn", "--cgroup", "sport", &format!("= :{port}")],
            );
            assert_eq!(sockets.lines().count() as u64, network.established(pod).await.unwrap());
            let (path, number) = (in_cgroup2(group), group.metadata().unwrap().ino());
            let own = |line: &str| line.contains(&path) || line.contains(&format!("cgroup:unreachable:{number:x}"));
            assert!(
                sockets.lines().all(own),
                "not all of {pod} are in {path} ({number:x}): {sockets:.500}"
            );
        }

        let error = network.stop_pod("one", StopPod::Vanish).await.unwrap_err();
        assert!(error.to_string().contains("the node's network"), "{error}");
        let group = network.pod_cgroup("one").unwrap().to_owned();
        network
            .set_service_endpoints(&[at(&[("two", 9002), ("c", 8883)])])
            .await
            .unwrap();
        network.stop_pod("one", StopPod::Terminate).await.unwrap();
        assert!(!group.parent().unwrap().exists(), "the pod's group goes with it");
        let on_one = counts.open["one"];
        until(&clients, |counts| counts.server_closed.get("one") == Some(&on_one)).await;
        assert_eq!(open(&clients, request(family, 400, 100)).await.len(), 2);
        network.destroy().await.unwrap();
    }
}

#[tokio::test]
async fn network_gives_the_address_of_a_pod_to_another() {
    let Some(_turn) = turn() else { return };
    let family = Family::V4;
    for (mode, how, node) in [
        (MODES[0], StopPod::Vanish, "node-0"),
        (MODES[1], StopPod::Vanish, "node-2"),
        (MODES[0], StopPod::Terminate, "node-2"),
        (MODES[1], StopPod::Kill, "node-0"),
    ] {
        let (mut network, clients) = start(plan(mode, family)).await;
        open(&clients, request(family, 1000, 100)).await;
        let before = clients.counts().await.unwrap();
        let on_b = before.open["b"];
        network.set_endpoints(&names(&["a", "c"])).await.unwrap();
        network.stop_pod("b", how).await.unwrap();
        let heir = PodPlan {
            address: Some(family.pod_address(0, 1)),
            ..PodPlan::new("heir", node, listen(8883))
        };
        assert_eq!(network.start(heir).await.unwrap(), family.pod_address(0, 1));
        network.set_endpoints(&names(&["a", "c", "heir"])).await.unwrap();

        let opened = open(&clients, request(family, 1000, 100)).await;
        assert_share(&opened, "heir", if node == "node-0" { 0.25 } else { 1.0 / 3.0 });
        if how == StopPod::Vanish {
            let counts = clients.counts().await.unwrap();
            assert_eq!(counts.open["b"], on_b, "nobody has told the clients of b");
            assert_eq!(counts.server_closed.len(), 0, "{counts:?}");
            let of_b = flowskew_lab::clients::CloseFlows {
                pod: Some("b".into()),
                ..Default::default()
            };
            assert_eq!(clients.close(of_b).await.unwrap(), on_b);
        }
        let counts = until(&clients, |counts| counts.open["b"] == 0).await;
        assert_established(&network, &counts, &["a", "c", "heir"]).await;

        // When it goes, nothing of its routes is left: the address is free for its own node again.
        network.set_endpoints(&names(&["a", "c"])).await.unwrap();
        network.stop_pod("heir", StopPod::Terminate).await.unwrap();
        let again = PodPlan {
            address: Some(family.pod_address(0, 1)),
            ..PodPlan::new("again", "node-0", listen(8883))
        };
        network.start(again).await.unwrap();
        network.set_endpoints(&names(&["a", "again", "c"])).await.unwrap();
        let opened = open(&clients, request(family, 400, 100)).await;
        assert_share(&opened, "again", 0.25);
        network.destroy().await.unwrap();
    }
}

/// What a program prints in the namespace of a node.
fn in_node(network: &Network, node: &str, command: &[&str]) -> String {
    let namespace = format!("fsk{}-node-{node}", network.id());
    let output = Command::new("ip")
        .args(["netns", "exec", &namespace])
        .args(command)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Path of a control group as the kernel names it.
fn in_cgroup2(group: &Path) -> String {
    let text = group.display().to_string();
    text[text.find("/flowskew-lab-").unwrap()..].to_owned()
}

#[tokio::test]
async fn network_clients_inside_the_cluster_have_their_own_addresses() {
    let Some(_turn) = turn() else { return };
    for (mode, family) in MODES.into_iter().zip(FAMILIES) {
        let (mut network, _external) = start(plan(mode, family)).await;
        // From a pod: the cluster address reaches all endpoints, and the source is kept but for the way back to itself.
        let origin = Origin::Pod("a".into());
        let source = network.source(&origin).unwrap().unwrap();
        let inside = network.clients_through(0, &origin, &Door::ClusterIp).await.unwrap();
        let sources = vec![source];
        let flows = |flows| flowskew_lab::clients::OpenFlows {
            sources: sources.clone(),
            ..request(family, flows, 1)
        };
        let opened = open(&inside, flows(600)).await;
        ["a", "b", "c"]
            .iter()
            .for_each(|pod| assert_share(&opened, pod, 1.0 / 3.0));
        let peers = ss(&network, "c", &["state", "established"]);
        assert_eq!(
            peers.matches(&format!("{source}")).count() as u64,
            opened["c"],
            "{peers:.500}"
        );
        let own = ss(&network, "a", &["state", "established", "sport", "=", ":8883"]);
        let node = network.node_address("node-0").unwrap().to_string();
        assert_eq!(
            own.matches(&node).count() as u64,
            opened["a"],
            "hairpin is masqueraded: {own:.500}"
        );

        // From a node: by its node port, and straight to a pod, as probes of the kubelet do.
        let origin = Origin::Node("node-1".into());
        let sources = vec![network.source(&origin).unwrap().unwrap()];
        let flows = |flows| flowskew_lab::clients::OpenFlows {
            sources: sources.clone(),
            ..request(family, flows, 1)
        };
        for (door, expected) in [
            (Door::Direct(at(&[("c", 8883)]).remove(0)), 1),
            (Door::ClusterIp, 3),
            (Door::NodePort("node-1".into()), 3),
            (Door::LoadBalancer, 3),
        ] {
            let on_node = network.clients_through(0, &origin, &door).await.unwrap();
            let opened = open(&on_node, flows(100)).await;
            assert_eq!(opened.len(), expected, "{door:?}: {opened:?}");
        }
        let error = network.clients_through(0, &Origin::External, &Door::ClusterIp).await;
        assert!(error.unwrap_err().to_string().contains("no route from outside"));
        assert_eq!(Family::V4.has(source), family == Family::V4);
        network.destroy().await.unwrap();
    }
}
