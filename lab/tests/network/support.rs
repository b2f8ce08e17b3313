//! What the tests share: a small network, and what the kernel says about it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use flowskew_lab::{
    clients::{Clients, Counts, OpenFlows},
    net::{Balancer, Delivery, Endpoint, Family, Network, NetworkPlan, ProxyMode, ServicePlan},
};
use tokio::time::sleep;

pub const MODES: [ProxyMode; 2] = [ProxyMode::Iptables, ProxyMode::Nftables];
pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Held while a test has networks: no lab runs meanwhile, whose agents would count the flows of both. `None` without root:
/// then the test ends.
pub fn turn() -> Option<File> {
    const FOLDER: &str = "/run/flowskew-lab";
    if !rustix::process::geteuid().is_root() {
        println!("skipped: network namespaces need root");
        return None;
    }
    fs::create_dir_all(FOLDER).unwrap();
    let turn = File::create(Path::new(FOLDER).join("turn")).unwrap();
    // Tests do not disturb each other; a lab locks it alone.
    turn.lock_shared().unwrap();
    Some(turn)
}

pub fn plan(mode: ProxyMode, family: Family) -> NetworkPlan {
    NetworkPlan {
        program: env!("CARGO_BIN_EXE_flowskew-lab").into(),
        family,
        mode,
        balancer: Balancer::Equal,
        nodes: names(&["node-0", "node-1", "node-2"]),
        zones: BTreeMap::new(),
        delivery: Delivery::NodePort,
        services: vec![ServicePlan::example(family)],
    }
}

/// Pods a and b on node-0, c on node-1, none on node-2; all are endpoints.
pub async fn start(plan: NetworkPlan) -> (Network, Clients) {
    let mut network = Network::create(plan).await.unwrap();
    for (pod, node) in [("a", "node-0"), ("b", "node-0"), ("c", "node-1")] {
        network.start_pod(pod, node).await.unwrap();
    }
    network.set_endpoints(&names(&["a", "b", "c"])).await.unwrap();
    let clients = network.clients().await.unwrap();
    (network, clients)
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// The example Service and others, each with its own addresses and node port, all with the same target port.
pub fn services(family: Family, names: &[&str]) -> Vec<ServicePlan> {
    let service = |(index, name): (usize, &&str)| {
        let (cluster_ip, load_balancer_ip) = family.service_addresses(index);
        ServicePlan {
            name: (*name).to_owned(),
            node_port: 30_883 + index as u16,
            cluster_ip,
            load_balancer_ip,
            ..ServicePlan::example(family)
        }
    };
    names.iter().enumerate().map(service).collect()
}

/// Endpoints from pods and ports.
pub fn at(endpoints: &[(&str, u16)]) -> Vec<Endpoint> {
    let endpoint = |&(pod, port): &(&str, u16)| Endpoint {
        pod: pod.to_owned(),
        port,
    };
    endpoints.iter().map(endpoint).collect()
}

/// Waits until the counts are as they should be.
pub async fn until(clients: &Clients, holds: impl Fn(&Counts) -> bool) -> Counts {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let counts = clients.counts().await.unwrap();
        if holds(&counts) {
            return counts;
        }
        assert!(Instant::now() < deadline, "{counts:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// A request from this many sources in turn.
pub fn request(family: Family, flows: u64, sources: u32) -> OpenFlows {
    let sources = (0..sources).map(|n| family.client_source(n)).collect();
    OpenFlows {
        flows,
        sources,
        ..OpenFlows::default()
    }
}

/// Opens flows, none of which may fail.
pub async fn open(clients: &Clients, request: OpenFlows) -> BTreeMap<String, u64> {
    let flows = request.flows;
    let summary = clients.open(request).await.unwrap();
    assert_eq!(
        (summary.opened.values().sum(), summary.failed),
        (flows, BTreeMap::new())
    );
    summary.opened
}

pub fn assert_share(opened: &BTreeMap<String, u64>, pod: &str, expected: f64) {
    let total: u64 = opened.values().sum();
    let share = opened.get(pod).copied().unwrap_or(0) as f64 / total as f64;
    // Five standard deviations of the share: a false alarm in two million.
    let tolerance = 5.0 * (expected * (1.0 - expected) / total as f64).sqrt();
    assert!(
        (share - expected).abs() <= tolerance,
        "{pod} has {share}, not {expected} within {tolerance}: {opened:?}"
    );
}

/// The clients' books agree with the kernel.
pub async fn assert_established(network: &Network, counts: &Counts, pods: &[&str]) {
    for &pod in pods {
        let open = counts.open.get(pod).copied().unwrap_or(0);
        let deadline = Instant::now() + Duration::from_secs(5);
        while network.established(pod).await.unwrap() != open && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(network.established(pod).await.unwrap(), open, "pod {pod}: {counts:?}");
    }
}

/// What `ss` prints for the TCP sockets of a pod.
pub fn ss(network: &Network, pod: &str, options: &[&str]) -> String {
    let namespace = format!("fsk{}-pod-{pod}", network.id());
    let output = Command::new("ss")
        .args(["-N", &namespace, "-Htn"])
        .args(options)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

pub fn cgroup_of_run(id: &str) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some("cgroup2"))
        .unwrap();
    Path::new(mount.split(' ').nth(1).unwrap()).join(format!("flowskew-lab-{id}"))
}

/// Everything on the machine that carries the id.
pub fn traces(id: &str) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir("/run/netns")
        .map(|list| {
            list.map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        })
        .unwrap_or_default();
    found.retain(|name| name.starts_with(&format!("fsk{id}-")));
    for path in [Path::new("/run/flowskew-lab").join(id), cgroup_of_run(id)] {
        found.extend(path.exists().then(|| path.display().to_string()));
    }
    for process in fs::read_dir("/proc").unwrap() {
        let process = process.unwrap().path();
        let arguments = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        found.extend(
            arguments
                .contains(&format!("/fsk{id}-"))
                .then(|| format!("process {}", process.display())),
        );
    }
    found
}
