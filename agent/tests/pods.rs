//! Pods on this machine: real cgroups, processes, network namespaces and sockets. Needs root and a cgroup v2 filesystem; each
//! test says so and passes when it cannot run.

mod common;

use std::{
    collections::HashMap,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use common::can_load_programs;
use flowskew_agent::{
    config::MapSizes,
    kernel::Kernel,
    pods::{Cgroups, Pod, PodDirectory, PodLoad, PodLoads},
};
use rustix::{
    process::geteuid,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

const OWN_NETWORK: &str = "/proc/self/ns/net";

/// A pod with one container, gone with the test, as are its processes.
struct TestPod {
    uid: String,
    /// Folders made, the outer ones first.
    folders: Vec<PathBuf>,
    pod: PathBuf,
    container: PathBuf,
    processes: Vec<Child>,
}

impl TestPod {
    /// `None`, with the reason printed, when this machine does not allow it. `number`: another for each test.
    fn start(number: u32) -> Option<Self> {
        if !geteuid().is_root() {
            eprintln!("skipped: not root");
            return None;
        }
        let root = match Cgroups::find(None) {
            Ok(cgroups) => cgroups.root().to_owned(),
            Err(error) => {
                eprintln!("skipped: {error}");
                return None;
            }
        };
        let uid = format!("{:08x}-93c2-4d7e-8a10-{number:012x}", std::process::id());
        let mut made = Self {
            folders: Vec::new(),
            pod: PathBuf::new(),
            container: PathBuf::new(),
            uid,
            processes: Vec::new(),
        };
        (made.pod, made.container) = made.make_below(&root);
        Some(made)
    }

    /// Makes the pod's cgroups in a hierarchy: those of the pod and of its container.
    fn make_below(&mut self, root: &Path) -> (PathBuf, PathBuf) {
        let mut path = root.to_owned();
        for name in [
            &format!("flowskew-test-{}", self.uid),
            "kubepods",
            &format!("pod{}", self.uid),
            "container",
        ] {
            path.push(name);
            self.make(&path);
        }
        (path.parent().expect("the pod").to_owned(), path)
    }

    fn make(&mut self, path: &Path) {
        fs::create_dir(path).expect("a cgroup can be made");
        self.folders.push(path.to_owned());
    }

    fn remove_folders(&mut self) {
        for mut process in self.processes.drain(..) {
            let _ = process.kill();
            let _ = process.wait();
        }
        for folder in self.folders.drain(..).rev() {
            // A cgroup is busy until the last of its processes is gone for good.
            let end = Instant::now() + Duration::from_secs(5);
            while fs::remove_dir(&folder).is_err() && Instant::now() < end {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Runs a program in the pod's container.
    fn run(&mut self, program: &str, arguments: &[&str]) -> u32 {
        let process = Command::new(program).args(arguments).spawn().expect("runs");
        let pid = process.id();
        self.processes.push(process);
        fs::write(self.container.join("cgroup.procs"), pid.to_string()).expect("moved");
        pid
    }

    fn id(&self) -> u64 {
        fs::metadata(&self.container).expect("there").ino()
    }

    /// The pod, as it is found by the id of its container's cgroup.
    fn found(&self) -> Arc<Pod> {
        let mut directory = PodDirectory::new(&Cgroups::find(None).expect("cgroups"));
        directory.resolve([self.id()]);
        assert_eq!(directory.degradation(), None);
        Arc::clone(directory.pod(self.id()).expect("found"))
    }
}

impl Drop for TestPod {
    fn drop(&mut self) {
        self.remove_folders();
    }
}

/// Of one pod, without anything missing.
fn load(loads: &mut PodLoads, pod: &Pod) -> PodLoad {
    let read = loads.read([pod]);
    assert_eq!(read.degradations, []);
    let [load] = read.pods.try_into().expect("one pod");
    assert_eq!(load.uid, pod.uid);
    load
}

fn loads(node: &str) -> PodLoads {
    PodLoads::new(Cgroups::find(None).expect("cgroups"), Path::new(node))
}

/// Looks again until it holds, for 10 s at most.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_pod_is_found_by_its_cgroups_and_remembered_when_they_are_gone() {
    let Some(mut pod) = TestPod::start(1) else { return };
    let inner = pod.container.join("init.scope");
    pod.make(&inner);
    let ids = [&pod.container, &inner, &pod.pod].map(|path| fs::metadata(path).expect("there").ino());
    let cgroups = Cgroups::find(None).expect("cgroups");
    let outside = fs::metadata(cgroups.root()).expect("there").ino();
    let mut directory = PodDirectory::new(&cgroups);
    directory.resolve(ids.into_iter().chain([outside]));
    assert_eq!(directory.pod(outside), None, "the root is no pod's");

    let expected = Pod {
        uid: pod.uid.clone(),
        cgroup: pod.pod.clone(),
    };
    pod.remove_folders();
    assert!(!expected.cgroup.exists());
    let Some(mut other) = TestPod::start(2) else { return };
    other.run("sleep", &["60"]);
    eventually("the other pod is found", || {
        directory.resolve([other.id()]);
        directory.pod(other.id()).is_some_and(|found| found.uid == other.uid)
    });
    for id in ids {
        assert_eq!(directory.pod(id).map(Arc::as_ref), Some(&expected));
    }
    let read = loads(OWN_NETWORK).read([&expected]);
    assert_eq!((read.pods, read.degradations), (vec![], vec![]), "gone, and no fault");
}

#[test]
fn the_root_can_be_named() {
    let Some(pod) = TestPod::start(3) else { return };
    let kubepods = pod.pod.parent().expect("kubepods");
    for root in [kubepods, kubepods.parent().expect("the test's"), &pod.pod] {
        let mut directory = PodDirectory::new(&Cgroups::find(Some(root)).expect("cgroups"));
        directory.resolve([pod.id()]);
        let found = directory.pod(pod.id()).map(|found| found.uid.as_str());
        assert_eq!(found, Some(pod.uid.as_str()), "{}", root.display());
    }
}

#[test]
fn cpu_time_and_time_throttled_rise_when_a_busy_pod_has_a_limit() {
    let Some(mut pod) = TestPod::start(4) else { return };
    let limited = limit_cpu(&mut pod);
    let (found, mut loads) = (pod.found(), loads(OWN_NETWORK));
    let before = load(&mut loads, &found);
    assert!(before.cpu_usage_us.is_some(), "{before:?}");
    let busy = pod.run("sh", &["-c", "while :; do :; done"]);
    let Some(limited) = limited else {
        eprintln!("the machine has no cpu controller to limit with: time throttled is not tested");
        eventually("CPU time rises", || {
            load(&mut loads, &found).cpu_usage_us >= before.cpu_usage_us.map(|us| us + 100_000)
        });
        return;
    };
    fs::write(limited.join("cgroup.procs"), busy.to_string()).expect("limited");
    assert_eq!(before.cpu_throttled_us, Some(0));
    eventually("CPU time rises, and time throttled more", || {
        let now = load(&mut loads, &found);
        let used = now
            .cpu_usage_us
            .zip(before.cpu_usage_us)
            .map(|(now, before)| now - before);
        used >= Some(50_000) && now.cpu_throttled_us >= Some(200_000)
    });
}

/// Limits the pod's container to a tenth of a CPU: the cgroup in which the limit holds. `None` where there is no such
/// controller.
fn limit_cpu(pod: &mut TestPod) -> Option<PathBuf> {
    let root = Cgroups::find(None).expect("cgroups").root().to_owned();
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).expect("controllers");
    if controllers.split_whitespace().any(|name| name == "cpu") {
        let above: Vec<_> = pod.pod.ancestors().take_while(|path| path.starts_with(&root)).collect();
        for cgroup in above.into_iter().rev() {
            fs::write(cgroup.join("cgroup.subtree_control"), "+cpu").expect("the controller is given on");
        }
        fs::write(pod.container.join("cpu.max"), "10000 100000").expect("a limit");
        return Some(pod.container.clone());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let mount = mounts.lines().find(|line| {
        let (_, options) = line.rsplit_once(' ').unwrap_or_default();
        line.contains(" - cgroup ") && options.split(',').any(|option| option == "cpu")
    })?;
    let (_, container) = pod.make_below(Path::new(mount.split(' ').nth(4)?));
    fs::write(container.join("cpu.cfs_quota_us"), "10000").expect("a limit");
    Some(container)
}

#[test]
fn a_full_accept_queue_shows_in_the_pod_and_not_in_another() {
    let Some(mut pod) = TestPod::start(5) else { return };
    let Some(mut quiet) = TestPod::start(6) else { return };
    let Some(mut on_host) = TestPod::start(7) else { return };
    let namespace = format!("/proc/{}/ns/net", pod.run("unshare", &["--net", "sleep", "60"]));
    let other = format!("/proc/{}/ns/net", quiet.run("unshare", &["--net", "sleep", "60"]));
    on_host.run("sleep", &["60"]);
    let inode = |path: &str| fs::metadata(path).map(|file| file.ino()).ok();
    eventually("both have a network of their own", || {
        let own = inode(OWN_NETWORK);
        inode(&namespace) != own && inode(&other) != own
    });
    let pods = [pod.found(), quiet.found(), on_host.found()];
    let mut loads_by_own = loads(OWN_NETWORK);
    let before = pods.each_ref().map(|pod| load(&mut loads_by_own, pod));
    assert_eq!(before.each_ref().map(|load| load.shares_network), [false, false, true]);
    assert_eq!((before[0].listen_overflows, before[0].listen_drops), (Some(0), Some(0)));

    let refused = thread::spawn({
        let namespace = namespace.clone();
        move || overflow(&namespace)
    });
    assert!(refused.join().expect("ran") >= 3);

    let after = pods.each_ref().map(|pod| load(&mut loads_by_own, pod));
    assert!(after[0].listen_overflows >= Some(3), "{:?}", after[0]);
    assert!(after[0].listen_drops >= after[0].listen_overflows, "{:?}", after[0]);
    assert!(after[0].syn_cookies_sent.is_some());
    assert_eq!(after[1].listen_overflows, Some(0), "another pod's network");

    // The other ways to name a node's network: by another process, and by a file of its own.
    let names = tempfile::tempdir().expect("a folder");
    let named = names.path().join("node");
    std::os::unix::fs::symlink(&namespace, &named).expect("named");
    for node in [namespace.as_str(), named.to_str().expect("a path")] {
        let mut loads = loads(node);
        let shares = pods.each_ref().map(|pod| load(&mut loads, pod).shares_network);
        assert_eq!(shares, [true, false, false], "{node}");
    }
}

/// Connects until the queue of a listener that does not accept is full, in another network: how many attempts it dropped.
fn overflow(namespace: &str) -> usize {
    let namespace = fs::File::open(namespace).expect("a namespace");
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network)).expect("entered");
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()
        .expect("ip runs");
    assert!(up.success());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    rustix::net::listen(&listener, 1).expect("a short queue");
    let address = listener.local_addr().expect("an address");
    let attempts: Vec<_> = (0..6)
        .map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200)))
        .collect();
    attempts.iter().filter(|attempt| attempt.is_err()).count()
}

#[test]
fn an_address_that_another_pod_takes_over_is_told_from_before() {
    if !can_load_programs() {
        return;
    }
    let Some(mut first) = TestPod::start(8) else { return };
    let Some(second) = TestPod::start(9) else { return };
    let sizes = MapSizes {
        max_flows: 4_096,
        max_ledger: 1_024,
        ring_bytes: 65_536,
        max_udp_flows: 1_024,
        kernel_log: false,
    };
    let kernel = Kernel::start(&sizes, None).expect("starts");
    let mut directory = PodDirectory::new(&Cgroups::find(None).expect("cgroups"));

    let listener = listen_in(&first, SocketAddr::from((Ipv4Addr::new(127, 9, 7, 1), 0)));
    let address = listener.local_addr().expect("an address");
    let opened = |directory: &mut PodDirectory| -> HashMap<String, u64> {
        let snapshot = kernel.snapshot().expect("counters");
        let entries = snapshot.entries.iter().filter(|(key, _)| key.port == address.port());
        directory.resolve(entries.clone().map(|(key, _)| key.cgroup_id));
        entries
            .filter_map(|(key, value)| Some((directory.pod(key.cgroup_id)?.uid.clone(), value.classes[0].opened)))
            .collect()
    };
    let flow = TcpStream::connect(address).expect("connects");
    assert_eq!(opened(&mut directory), HashMap::from([(first.uid.clone(), 1)]));

    // The pod is deleted with the flow open.
    drop(listener);
    first.remove_folders();
    drop(flow);
    let listener = listen_in(&second, address);
    let _flows = [(); 2].map(|()| TcpStream::connect(listener.local_addr().expect("an address")).expect("connects"));
    let expected = HashMap::from([(first.uid.clone(), 1), (second.uid.clone(), 2)]);
    eventually("each has its own flows", || opened(&mut directory) == expected);
}

/// A listener of the pod: a socket belongs to the cgroup that its process is in when it makes it.
fn listen_in(pod: &TestPod, address: SocketAddr) -> TcpListener {
    let own = fs::read_to_string("/proc/self/cgroup").expect("a cgroup");
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .expect("a cgroup of version two");
    let own = Cgroups::find(None).expect("cgroups").root().join(own);
    let join = |cgroup: &Path| fs::write(cgroup.join("cgroup.procs"), "0").expect("moved");
    join(&pod.container);
    let listener = TcpListener::bind(address);
    join(&own);
    listener.expect("listens")
}
