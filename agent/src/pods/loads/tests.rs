//! Folders of an ordinary filesystem stand for cgroups here, with files as the kernel writes them.

use std::fs;

use super::*;

const OWN: &str = "/proc/self/ns/net";

/// A machine with one pod of two containers.
struct Machine {
    folder: tempfile::TempDir,
    pod: Pod,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let pod = Pod {
            uid: "0e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a45".to_owned(),
            cgroup: folder.path().join("unified/kubepods/pod"),
        };
        let machine = Self { folder, pod };
        for name in ["unified/kubepods/pod/a", "unified/kubepods/pod/b", "cpu", "cpuacct"] {
            fs::create_dir_all(machine.folder.path().join(name)).expect("made");
        }
        machine
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// `kinds`: the filesystems that are mounted, with the options of each.
    fn loads(&self, kinds: &[(&str, &str, &str)]) -> PodLoads {
        let mountinfo: String = kinds
            .iter()
            .map(|(name, kind, options)| {
                let point = self.folder.path().join(name);
                format!("30 29 0:26 / {} rw - {kind} none {options}\n", point.display())
            })
            .collect();
        PodLoads::new(Cgroups::among(&mountinfo, None).expect("mounts"), Path::new(OWN))
    }

    fn v2(&self) -> PodLoads {
        self.loads(&[("unified", "cgroup2", "rw")])
    }

    fn read(&self, loads: &mut PodLoads) -> (PodLoad, Vec<Degradation>) {
        let Loads { pods, degradations } = loads.read([&self.pod]);
        let [load] = pods.try_into().expect("one pod");
        (load, degradations)
    }
}

fn stat(usage: u64, throttled: u64) -> String {
    format!(
        "usage_usec {usage}\nuser_usec 1\nsystem_usec 1\nnr_periods 3\nnr_throttled 1\nthrottled_usec {throttled}\n"
    )
}

#[test]
fn throttled_time_is_of_all_limits_in_the_pod_and_does_not_fall_when_a_container_ends() {
    let machine = Machine::new();
    machine.write("unified/kubepods/pod/cpu.stat", &stat(900, 10));
    machine.write("unified/kubepods/pod/a/cpu.stat", &stat(500, 200));
    machine.write("unified/kubepods/pod/b/cpu.stat", &stat(400, 3_000));
    let mut loads = machine.v2();
    let (load, degradations) = machine.read(&mut loads);
    assert_eq!((load.cpu_usage_us, load.cpu_throttled_us), (Some(900), Some(3_210)));
    assert_eq!(degradations, []);

    // Moved, not removed: an ordinary filesystem would give its id to the next.
    fs::rename(machine.pod.cgroup.join("b"), machine.folder.path().join("ended")).expect("ended");
    machine.write("unified/kubepods/pod/a/cpu.stat", &stat(600, 201));
    machine.write("unified/kubepods/pod/c/cpu.stat", &stat(0, 40_000));
    assert_eq!(machine.read(&mut loads).0.cpu_throttled_us, Some(43_211));
    assert_eq!(machine.read(&mut loads).0.cpu_throttled_us, Some(43_211), "once");
}

#[test]
fn a_machine_with_both_versions_has_the_limits_in_the_older() {
    let machine = Machine::new();
    machine.write(
        "unified/kubepods/pod/cpu.stat",
        "usage_usec 900\nuser_usec 1\nsystem_usec 1\n",
    );
    machine.write(
        "cpu/kubepods/pod/cpu.stat",
        "nr_periods 3\nnr_throttled 1\nthrottled_time 5000\n",
    );
    machine.write(
        "cpu/kubepods/pod/a/cpu.stat",
        "nr_periods 3\nnr_throttled 1\nthrottled_time 2000999\n",
    );
    machine.write("cpuacct/kubepods/pod/cpuacct.usage", "7000000\n");
    let mounts = [
        ("unified", "cgroup2", "rw"),
        ("cpu", "cgroup", "rw,cpu"),
        ("cpuacct", "cgroup", "rw,cpuacct"),
    ];
    let (load, _) = machine.read(&mut machine.loads(&mounts));
    assert_eq!((load.cpu_usage_us, load.cpu_throttled_us), (Some(900), Some(2_005)));

    fs::remove_file(machine.pod.cgroup.join("cpu.stat")).expect("removed");
    let (load, _) = machine.read(&mut machine.loads(&mounts));
    assert_eq!(
        load.cpu_usage_us,
        Some(7_000),
        "from the older, where the newer has none"
    );
}

#[test]
fn what_is_not_known_is_absent_and_not_zero() {
    let machine = Machine::new();
    let (load, degradations) = machine.read(&mut machine.v2());
    let unknown = PodLoad {
        uid: machine.pod.uid.clone(),
        cpu_usage_us: None,
        cpu_throttled_us: None,
        listen_overflows: None,
        listen_drops: None,
        syn_cookies_sent: None,
        shares_network: false,
    };
    assert_eq!(load, unknown);
    assert_eq!(degradations, [], "a pod without a process is no fault");
}

#[test]
fn the_oldest_process_that_is_there_speaks_for_the_pod() {
    let machine = Machine::new();
    machine.write("unified/kubepods/pod/a/cgroup.procs", "4194999\n");
    machine.write(
        "unified/kubepods/pod/b/cgroup.procs",
        &format!("{}\n1\n", std::process::id()),
    );
    let (load, _) = machine.read(&mut machine.v2());
    assert!(load.shares_network);
    assert!(load.listen_overflows.is_some() && load.listen_drops.is_some() && load.syn_cookies_sent.is_some());
}

#[test]
fn a_trouble_of_many_pods_is_told_once() {
    let machine = Machine::new();
    machine.write("unified/kubepods/pod/a/cgroup.procs", "0\n");
    let mut pods = vec![machine.pod.clone()];
    machine.write("unified/kubepods/other/cgroup.procs", "0\n");
    pods.push(Pod {
        uid: "other".to_owned(),
        cgroup: machine.folder.path().join("unified/kubepods/other"),
    });
    let read = machine.v2().read(&pods);
    assert_eq!(read.pods.len(), 2);
    let [one] = read.degradations.try_into().expect("one");
    assert_eq!(one.code, "pod-load");
    assert!(one.sentence.contains("hostPID: true"), "{}", one.sentence);
}

#[test]
fn more_pods_and_more_cgroups_than_are_read() {
    let machine = Machine::new();
    machine.write("unified/kubepods/pod/cpu.stat", &stat(900, 10));
    for index in 0..MAX_CGROUPS {
        machine.write(&format!("unified/kubepods/pod/a/{index}/cpu.stat"), &stat(1, 1));
    }
    let mut pods = vec![machine.pod.clone()];
    let other = |index: usize, name: &str| Pod {
        uid: format!("{index:08}"),
        cgroup: machine.folder.path().join("unified/kubepods").join(name),
    };
    pods.extend((0..MAX_PODS).map(|index| other(index, "gone")));
    let read = machine.v2().read(&pods);
    let [load] = read.pods.try_into().expect("one: the others are gone");
    assert_eq!((load.cpu_usage_us, load.cpu_throttled_us), (Some(900), None));
    let [one] = read.degradations.try_into().expect("one");
    assert!(one.sentence.contains("more than 256 cgroups"), "{}", one.sentence);

    let pods: Vec<_> = (0..=MAX_PODS).map(|index| other(index, "pod/b")).collect();
    assert_eq!(machine.v2().read(&pods[1..]).degradations, []);
    let read = machine.v2().read(&pods);
    assert_eq!(read.pods.len(), MAX_PODS);
    let [one] = read.degradations.try_into().expect("one");
    assert!(one.sentence.contains("more than 512 pods"), "{}", one.sentence);
}

#[test]
fn a_node_whose_network_is_not_found_has_no_figures_of_it() {
    let machine = Machine::new();
    machine.write("unified/kubepods/pod/cgroup.procs", &std::process::id().to_string());
    let cgroups = machine.v2().cgroups;
    let (load, degradations) = machine.read(&mut PodLoads::new(cgroups, Path::new("/run/netns/no-such-name")));
    assert_eq!((load.listen_overflows, load.shares_network), (None, false));
    assert!(degradations[0].sentence.contains("--node-netns"), "{degradations:?}");
}
