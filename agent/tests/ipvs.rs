//! kube-proxy's IPVS mode: a client, a node that balances with IPVS and two pods, each in a network namespace of its own.
//! Needs root, iproute2, nftables, ipvsadm and a kernel with IPVS; the test says so and passes when it cannot run.

mod common;

use std::{
    collections::HashMap,
    io::Read,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use common::{SIZES, class_counts, counting, mapped, netns};
use flowskew_agent::doors::{Answer, Direction, FrontDoor, conntrack::Conntrack};
use flowskew_agent_ebpf::{Flow, close_cause, source_class};

const CLIENT: &str = "192.0.2.2:0";
const SERVICE: &str = "203.0.113.1:443";
const PODS: [&str; 2] = ["10.78.1.2:8080", "10.78.2.2:8080"];
/// Flows to open; the two pods get them in turn.
const FLOWS: usize = 12;

/// The namespaces, gone with the test.
struct Net {
    name: String,
}

impl Net {
    /// `None`, with the reason printed, when this machine does not allow it.
    fn make() -> Option<Self> {
        for tool in ["ip", "nft", "ipvsadm"] {
            if Command::new(tool).arg("--version").output().is_err() {
                eprintln!("skipped: no {tool}; install iproute2, nftables and ipvsadm");
                return None;
            }
        }
        let net = Self {
            name: format!("fsipvs-{}", std::process::id()),
        };
        let [client, node, one, two] = ["client", "node", "pod0", "pod1"].map(|part| net.part(part));
        done(
            "namespaces",
            &shell(&format!(
                "for n in {client} {node} {one} {two}; do ip netns add $n; done"
            )),
        );
        let list = shell(&format!("ip netns exec {node} ipvsadm --list --numeric"));
        if !list.status.success() {
            eprintln!("skipped: this kernel has no IPVS (module ip_vs)");
            return None;
        }
        // As kube-proxy does: the addresses of Services are on a dummy interface, IPVS keeps its connections in conntrack, and
        // what is marked is masqueraded.
        let script = format!(
            "
            ip -n {node} link add c type veth peer name eth0 netns {client}
            ip -n {node} link add p0 type veth peer name eth0 netns {one}
            ip -n {node} link add p1 type veth peer name eth0 netns {two}
            ip -n {node} link add kube-ipvs0 type dummy
            for n in {client} {node} {one} {two}; do ip -n $n link set lo up; done
            for n in {client} {one} {two}; do ip -n $n link set eth0 up; done
            for d in c p0 p1; do ip -n {node} link set $d up; done
            ip -n {node} address add 192.0.2.1/24 dev c; ip -n {client} address add 192.0.2.2/24 dev eth0
            ip -n {node} address add 10.78.1.1/24 dev p0; ip -n {one} address add 10.78.1.2/24 dev eth0
            ip -n {node} address add 10.78.2.1/24 dev p1; ip -n {two} address add 10.78.2.2/24 dev eth0
            ip -n {node} address add 203.0.113.1/32 dev kube-ipvs0
            ip -n {client} route add default via 192.0.2.1
            ip -n {one} route add default via 10.78.1.1; ip -n {two} route add default via 10.78.2.1
            ip netns exec {node} sh -ec '
                echo 1 > /proc/sys/net/ipv4/ip_forward
                echo 1 > /proc/sys/net/ipv4/vs/conntrack
                nft add table ip nat
                nft \"add chain ip nat postrouting {{ type nat hook postrouting priority srcnat; }}\"
                nft add rule ip nat postrouting meta mark and 0x4000 == 0x4000 masquerade
                ipvsadm --add-service --tcp-service {SERVICE} --scheduler rr
                ipvsadm --add-server --tcp-service {SERVICE} --real-server {} --masquerading
                ipvsadm --add-server --tcp-service {SERVICE} --real-server {} --masquerading'",
            PODS[0], PODS[1]
        );
        done("the network", &shell(&script));
        Some(net)
    }

    fn part(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    fn path(&self, part: &str) -> PathBuf {
        Path::new("/run/netns").join(self.part(part))
    }

    /// Runs something on a thread inside a namespace.
    fn within<T: Send>(&self, part: &str, task: impl FnOnce() -> T + Send) -> T {
        netns::within(&self.path(part), task)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for part in ["client", "node", "pod0", "pod1"] {
            let _ = Command::new("ip").args(["netns", "delete", &self.part(part)]).output();
        }
    }
}

fn shell(script: &str) -> Output {
    Command::new("sh").args(["-ec", script]).output().expect("a shell runs")
}

fn done(what: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address and port")
}

#[test]
fn flows_through_ipvs_are_counted_at_the_pods_with_the_clients_address() {
    let Some(mut kernel) = counting(&SIZES) else { return };
    let Some(net) = Net::make() else { return };
    // An address that IPVS put in place of the client's would be of the class of nodes.
    let node = ["192.0.2.1:0", "10.78.1.1:0", "10.78.2.1:0", "203.0.113.1:0"];
    let prefixes = HashMap::from(node.map(|text| ((mapped(address(text)), 128), source_class::NODE)));
    kernel.classify(&prefixes).expect("classifies");

    let listeners: Vec<TcpListener> = (PODS.iter().enumerate())
        .map(|(number, pod)| net.within(&format!("pod{number}"), || TcpListener::bind(pod).expect("listens")))
        .collect();
    let clients: Vec<TcpStream> = net.within("client", || {
        let limit = Duration::from_secs(10);
        let dial = |_| TcpStream::connect_timeout(&address(SERVICE), limit).expect("connects");
        (0..FLOWS).map(dial).collect()
    });
    let mut servers = Vec::new();
    for listener in &listeners {
        for _ in 0..FLOWS / PODS.len() {
            let (server, peer) = listener.accept().expect("accepts");
            assert_eq!(peer.ip(), address(CLIENT).ip(), "the client's address is kept");
            servers.push(server);
        }
    }

    let half = (FLOWS / PODS.len()) as u64;
    for pod in PODS.map(address) {
        let external = class_counts(&kernel, pod, source_class::EXTERNAL);
        assert_eq!((external.opened, external.established), (half, half as i64), "{pod}");
        assert_eq!(class_counts(&kernel, pod, source_class::NODE).opened, 0, "{pod}");
    }
    let service = class_counts(&kernel, address(SERVICE), source_class::EXTERNAL);
    assert_eq!(service.opened, 0, "the Service's address accepts nothing itself");

    let mut flows: Vec<Flow> = Vec::new();
    kernel
        .visit_flows(&mut |flow| {
            if PODS.map(address).iter().any(|pod| mapped(*pod) == flow.key.address) {
                flows.push(*flow);
            }
        })
        .expect("visits");
    assert_eq!(flows.len(), FLOWS);
    let mut conntrack = Conntrack::open(&net.path("node")).expect("opens");
    let door = FrontDoor {
        address: mapped(address(SERVICE)),
        port: address(SERVICE).port(),
    };
    for flow in &flows {
        assert_eq!(flow.client, mapped(address(CLIENT)));
        let answer = conntrack.look_up(&Direction::answering(flow)).expect("answers");
        assert_eq!(answer, Answer::Door(door), "the front door is the Service's address");
    }

    drop(clients);
    for mut server in servers {
        assert_eq!(server.read(&mut [0]).expect("reads"), 0, "the client's end arrives");
    }
    let mut closed = [0; close_cause::COUNT];
    closed[usize::from(close_cause::CLIENT_FIN)] = half;
    for pod in PODS.map(address) {
        let counts = class_counts(&kernel, pod, source_class::EXTERNAL);
        assert_eq!((counts.established, counts.closed), (0, closed), "{pod}");
    }
}
