//! Front doors of real flows, on this machine's kernel: a client, a node with address translation and a pod, each in a
//! network namespace of its own. Needs root, iproute2 and nftables; each test says so and passes when it cannot run.

mod common;

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use aya::{
    EbpfLoader,
    maps::{MapData, MapError},
};
use common::{BpfFs, endpoint, mapped, netns};
use flowskew_agent::{
    doors::{
        Answer, Direction, Doors, FrontDoor, Settings, Snapshot,
        conntrack::{Conntrack, ConntrackError},
        memory::{Maps, Memory},
    },
    kernel::object,
};
use flowskew_agent_ebpf::{
    DoorCoverage, DoorKey, DoorValue, Flow, FlowEvent, LedgerKey, PROTOCOL_TCP, PROTOCOL_UDP, WatchedKey, event_kind,
    source_class,
};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const POD: &str = "10.77.0.2";
const POD6: &str = "fd77::2";
const PORT: u16 = 8_080;

/// Two Services on one pod, each with its address and port, and one that hides the client.
const ONE: &str = "203.0.113.1:443";
const TWO: &str = "203.0.113.2:8883";
const HIDING: &str = "203.0.113.3:443";
const ONE6: &str = "[2001:db8:f::1]:443";
const DIRECT: &str = "10.77.0.2:8080";
const DIRECT6: &str = "[fd77::2]:8080";

/// The namespaces, gone with the test.
struct Net {
    name: String,
}

impl Net {
    /// `None`, with the reason printed, when this machine does not allow it.
    fn make(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: not root");
            return None;
        }
        for tool in ["ip", "nft"] {
            if Command::new(tool).arg("-V").output().is_err() {
                eprintln!("skipped: no {tool}; install iproute2 and nftables");
                return None;
            }
        }
        let net = Self {
            name: format!("fsdoors-{}-{test}", std::process::id()),
        };
        let [client, node, pod] = ["client", "node", "pod"].map(|part| net.part(part));
        let script = format!(
            "
            ip netns add {client}; ip netns add {node}; ip netns add {pod}
            ip -n {node} link add c type veth peer name eth0 netns {client}
            ip -n {node} link add p type veth peer name eth0 netns {pod}
            for n in {client} {node} {pod}; do ip -n $n link set lo up; done
            ip -n {node} link set c up; ip -n {node} link set p up
            ip -n {client} link set eth0 up; ip -n {pod} link set eth0 up
            ip -n {node} address add 192.0.2.1/24 dev c; ip -n {node} address add 2001:db8:1::1/64 dev c nodad
            ip -n {node} address add 10.77.0.1/24 dev p; ip -n {node} address add fd77::1/64 dev p nodad
            ip -n {client} address add 192.0.2.2/24 dev eth0; ip -n {client} address add 2001:db8:1::2/64 dev eth0 nodad
            ip -n {pod} address add {POD}/24 dev eth0; ip -n {pod} address add {POD6}/64 dev eth0 nodad
            ip -n {client} route add default via 192.0.2.1; ip -n {client} -6 route add default via 2001:db8:1::1
            ip -n {pod} route add default via 10.77.0.1; ip -n {pod} -6 route add default via fd77::1
            ip netns exec {node} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
            ip netns exec {node} nft -f - <<'END'
            table inet doors {{
                chain prerouting {{
                    type nat hook prerouting priority dstnat
                    ip daddr 203.0.113.1 meta l4proto {{ tcp, udp }} th dport 443 dnat ip to {POD}:{PORT}
                    ip daddr 203.0.113.2 meta l4proto {{ tcp, udp }} th dport 8883 dnat ip to {POD}:{PORT}
                    ip daddr 203.0.113.3 meta l4proto {{ tcp, udp }} th dport 443 dnat ip to {POD}:{PORT}
                    ip6 daddr 2001:db8:f::1 meta l4proto {{ tcp, udp }} th dport 443 dnat ip6 to [{POD6}]:{PORT}
                }}
                chain postrouting {{
                    type nat hook postrouting priority srcnat
                    ct original ip daddr 203.0.113.3 masquerade
                }}
            }}\nEND\n"
        );
        let made = Command::new("sh")
            .args(["-ec", &script])
            .output()
            .expect("a shell runs");
        assert!(
            made.status.success(),
            "the network: {}",
            String::from_utf8_lossy(&made.stderr)
        );
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

    fn listen(&self) -> TcpListener {
        self.within("pod", || {
            TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).expect("listens")
        })
    }

    fn listen_udp(&self) -> UdpSocket {
        let socket = self.within("pod", || {
            UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).expect("listens")
        });
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        socket
    }

    /// Opens flows from the client to a door; the flows as the pod sees them, and both ends of each.
    fn dial(&self, listener: &TcpListener, door: &str, flows: usize) -> Vec<(Flow, TcpStream, TcpStream)> {
        (0..flows)
            .map(|_| {
                let client = self.within("client", || TcpStream::connect(door).expect("connects"));
                let (server, peer) = listener.accept().expect("accepts");
                let local = server.local_addr().expect("an address");
                (flow(local, peer, PROTOCOL_TCP), client, server)
            })
            .collect()
    }

    /// Sends one datagram each from sockets of the client to a door.
    fn send(&self, server: &UdpSocket, door: &str, local: &str, flows: usize) -> Vec<(Flow, UdpSocket)> {
        (0..flows)
            .map(|_| {
                let client = self.within("client", || {
                    let any = if door.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
                    let client = UdpSocket::bind(any).expect("bound");
                    client.send_to(b"hello", door).expect("sent");
                    client
                });
                let (_, peer) = server.recv_from(&mut [0; 16]).expect("received");
                (flow(local.parse().expect("an address"), peer, PROTOCOL_UDP), client)
            })
            .collect()
    }

    fn settings(&self, look_ups: u32) -> Settings {
        Settings {
            node_netns: self.path("node"),
            look_ups,
            max_flows: 10_000,
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for part in ["client", "node", "pod"] {
            let _ = Command::new("ip").args(["netns", "delete", &self.part(part)]).output();
        }
    }
}

fn flow(local: SocketAddr, peer: SocketAddr, protocol: u8) -> Flow {
    Flow {
        key: LedgerKey {
            address: mapped(local),
            cgroup_id: 1,
            port: local.port(),
            protocol,
            padding: 0,
            padding_word: 0,
        },
        client: mapped(peer),
        opened_at_ns: 1,
        client_port: peer.port(),
        source_class: source_class::EXTERNAL,
        padding: 0,
        padding_word: 0,
    }
}

fn event(flow: &Flow, kind: u8) -> FlowEvent {
    FlowEvent {
        flow: *flow,
        at_ns: 2,
        kind,
        cause: 0,
        padding: [0; 6],
    }
}

/// What an agent leaves to the next.
#[derive(Default, Clone)]
struct Kept(Arc<Mutex<(HashMap<DoorKey, DoorValue>, DoorCoverage)>>);

impl Memory for Kept {
    fn load(&self) -> Result<(Vec<(DoorKey, DoorValue)>, DoorCoverage), MapError> {
        let kept = self.0.lock().expect("held by nobody");
        Ok((kept.0.iter().map(|(key, value)| (*key, *value)).collect(), kept.1))
    }

    fn write(&mut self, key: &DoorKey, value: &DoorValue) -> Result<(), MapError> {
        self.0.lock().expect("held by nobody").0.insert(*key, *value);
        Ok(())
    }

    fn remove(&mut self, key: &DoorKey) -> Result<(), MapError> {
        self.0.lock().expect("held by nobody").0.remove(key);
        Ok(())
    }

    fn write_coverage(&mut self, coverage: &DoorCoverage) -> Result<(), MapError> {
        self.0.lock().expect("held by nobody").1 = *coverage;
        Ok(())
    }
}

/// The first snapshot that fulfils a condition, or the one after five seconds.
fn wait_for(doors: &Doors, condition: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let snapshot = doors.snapshot();
        if condition(&snapshot) || Instant::now() > deadline {
            return snapshot;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn covered(snapshot: &Snapshot) -> u64 {
    snapshot.coverage.found + snapshot.coverage.not_found + snapshot.coverage.skipped
}

/// Opened, established and closed of one door of one endpoint.
fn counts(snapshot: &Snapshot, local: &str, protocol: u8, door: &str) -> (u64, u64, u64) {
    let [local, door] = [local, door].map(|text| text.parse::<SocketAddr>().expect("an address and port"));
    let key = flow(local, local, protocol).key;
    let doors = snapshot.doors.get(&key).map(Vec::as_slice).unwrap_or_default();
    let found = doors
        .iter()
        .find(|counts| counts.address == mapped(door) && counts.port == door.port());
    found.map_or((0, 0, 0), |counts| (counts.opened, counts.established, counts.closed))
}

fn watched() -> HashSet<WatchedKey> {
    HashSet::from([endpoint(DIRECT.parse().expect("an address"), PROTOCOL_TCP)])
}

#[test]
fn each_flow_is_counted_at_the_door_that_was_dialled() {
    let Some(net) = Net::make("each") else { return };
    let (listener, udp) = (net.listen(), net.listen_udp());
    let doors = Doors::start(net.settings(100_000), Kept::default()).expect("starts");
    let mut sink = doors.sink();

    let mut streams = Vec::new();
    let tcp = [(ONE, 20), (TWO, 13), (HIDING, 5), (DIRECT, 7), (ONE6, 11), (DIRECT6, 3)];
    for (door, flows) in tcp {
        for (flow, client, server) in net.dial(&listener, door, flows) {
            sink(&event(&flow, event_kind::OPENED));
            streams.push((door, flow, client, server));
        }
    }
    let mut sockets = Vec::new();
    let datagrams = [
        (ONE, DIRECT, 6),
        (TWO, DIRECT, 2),
        (DIRECT, DIRECT, 4),
        (ONE6, DIRECT6, 5),
    ];
    for (door, local, flows) in datagrams {
        for (flow, client) in net.send(&udp, door, local, flows) {
            sink(&event(&flow, event_kind::OPENED));
            sockets.push(client);
        }
    }
    let snapshot = wait_for(&doors, |snapshot| covered(snapshot) == 76);
    assert_eq!(
        snapshot.coverage,
        DoorCoverage {
            found: 76,
            not_found: 0,
            skipped: 0
        },
        "{snapshot:?}"
    );
    assert_eq!(snapshot.degraded, None);

    let mut ended = HashMap::new();
    for (door, flow, ..) in streams.drain(..).step_by(3) {
        sink(&event(&flow, event_kind::CLOSED));
        *ended.entry(door).or_insert(0) += 1;
    }
    let snapshot = doors.snapshot();
    for (door, flows) in tcp {
        let local = if door.starts_with('[') { DIRECT6 } else { DIRECT };
        let closed = ended.get(door).copied().unwrap_or(0);
        let flows = flows as u64;
        assert_eq!(
            counts(&snapshot, local, PROTOCOL_TCP, door),
            (flows, flows - closed, closed),
            "{door}"
        );
    }
    for (door, local, flows) in datagrams {
        let flows = flows as u64;
        assert_eq!(
            counts(&snapshot, local, PROTOCOL_UDP, door),
            (flows, flows, 0),
            "{door}"
        );
    }
    assert_eq!(
        snapshot.doors.values().map(Vec::len).sum::<usize>(),
        10,
        "no other doors: {snapshot:?}"
    );
}

#[test]
fn above_the_limit_the_coverage_adds_up() {
    let Some(net) = Net::make("limit") else { return };
    let listener = net.listen();
    let doors = Doors::start(net.settings(50), Kept::default()).expect("starts");
    let mut flows = net.dial(&listener, ONE, 100);
    flows.extend(net.dial(&listener, TWO, 100));
    let begun = Instant::now();
    let mut sink = doors.sink();
    for (flow, ..) in &flows {
        sink(&event(flow, event_kind::OPENED));
    }
    // Of the client's own port nothing is known.
    let mut strange = flows[0].0;
    strange.client_port = 1;
    sink(&event(&strange, event_kind::OPENED));

    let snapshot = wait_for(&doors, |snapshot| covered(snapshot) == 201);
    assert_eq!(covered(&snapshot), 201);
    let (one, two) = (
        counts(&snapshot, DIRECT, PROTOCOL_TCP, ONE),
        counts(&snapshot, DIRECT, PROTOCOL_TCP, TWO),
    );
    assert_eq!(one.0 + two.0, snapshot.coverage.found);
    // One second's allowance, and what has come on top until all was drawn.
    let most = 50 + (50.0 * begun.elapsed().as_secs_f64()).ceil() as u64;
    let looked_up = snapshot.coverage.found + snapshot.coverage.not_found;
    assert!((50..=most).contains(&looked_up), "{looked_up} of 50 to {most}");
    // Each has about 25; so far from it is less likely than one in a million.
    assert!(
        one.0 > 7 && two.0 > 7,
        "the sample is not of both halves: {one:?} {two:?}"
    );

    // What was skipped is taken up later, as the limit allows, and never as opened.
    let walk = |visit: &mut dyn FnMut(&Flow)| {
        flows.iter().for_each(|(flow, ..)| visit(flow));
        Ok::<_, Infallible>(())
    };
    doors.reconcile(&watched(), walk).expect("walks");
    let established = |snapshot: &Snapshot| {
        counts(snapshot, DIRECT, PROTOCOL_TCP, ONE).1 + counts(snapshot, DIRECT, PROTOCOL_TCP, TWO).1
    };
    let later = wait_for(&doors, |snapshot| established(snapshot) == 200);
    assert_eq!(established(&later), 200);
    assert_eq!(later.coverage, snapshot.coverage);
    assert_eq!(counts(&later, DIRECT, PROTOCOL_TCP, ONE), (one.0, 100, 0));
}

#[test]
fn a_flow_that_began_at_the_pod_has_no_door() {
    let Some(net) = Net::make("began") else { return };
    let udp = net.listen_udp();
    let client = net.within("client", || UdpSocket::bind("192.0.2.2:5000").expect("bound"));
    client.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    udp.send_to(b"first", "[::ffff:192.0.2.2]:5000").expect("sent");
    let (_, pod) = client.recv_from(&mut [0; 16]).expect("received");
    client.send_to(b"second", pod).expect("sent");
    let (_, peer) = udp.recv_from(&mut [0; 16]).expect("received");
    let mut conntrack = net.within("node", || Conntrack::open(&net.path("node")).expect("opens"));
    let local = DIRECT.parse().expect("an address");
    let there = Direction::answering(&flow(local, peer, PROTOCOL_UDP));
    let back = Direction::answering(&flow(peer, local, PROTOCOL_UDP));
    assert_eq!(conntrack.look_up(&there).expect("answers"), Answer::Unknown);
    // The kernel does have the entry: seen from the client, the pod dialled it.
    let door = FrontDoor {
        address: mapped(peer),
        port: peer.port(),
    };
    assert_eq!(conntrack.look_up(&back).expect("answers"), Answer::Door(door));
}

#[test]
fn the_next_agent_goes_on_from_the_maps() {
    let Some(bpf) = BpfFs::mount() else { return };
    let Some(net) = Net::make("next") else { return };
    let listener = net.listen();
    let pins = bpf.root();
    std::fs::create_dir(&pins).expect("a folder");
    let maps = || {
        let mut loader = EbpfLoader::new();
        for map in ["DOORS", "DOOR_COVERAGE"] {
            loader.map_pin_path(map, pins.join(map));
        }
        let mut object = loader.load(object::embedded().expect("built in")).expect("loads");
        let mut take = |name| object.take_map(name).expect("a map");
        let maps: Maps = Maps {
            doors: take("DOORS").try_into().expect("a hash map"),
            coverage: aya::maps::Array::<MapData, DoorCoverage>::try_from(take("DOOR_COVERAGE")).expect("an array"),
        };
        maps
    };
    let run = |flows: &[(Flow, TcpStream, TcpStream)], opened: &[(Flow, TcpStream, TcpStream)], total: u64| {
        let doors = Doors::start(net.settings(100_000), maps()).expect("starts");
        let walk = |visit: &mut dyn FnMut(&Flow)| {
            flows.iter().for_each(|(flow, ..)| visit(flow));
            Ok::<_, Infallible>(())
        };
        doors.reconcile(&watched(), walk).expect("walks");
        let mut sink = doors.sink();
        for (flow, ..) in opened {
            sink(&event(flow, event_kind::OPENED));
        }
        let established = (flows.len() + opened.len()) as u64;
        let snapshot = wait_for(&doors, |snapshot| {
            covered(snapshot) == total && counts(snapshot, DIRECT, PROTOCOL_TCP, ONE).1 == established
        });
        doors
            .reconcile(&watched(), |visit| {
                opened.iter().for_each(|(flow, ..)| visit(flow));
                walk(visit)
            })
            .expect("walks");
        (snapshot, doors.snapshot())
    };
    let mut flows = net.dial(&listener, ONE, 10);
    let (before, _) = run(&[], &flows, 10);
    assert_eq!(counts(&before, DIRECT, PROTOCOL_TCP, ONE), (10, 10, 0));

    // Nobody sees three of them close.
    flows.truncate(7);
    let late = net.dial(&listener, ONE, 2);
    let (after, settled) = run(&flows, &late, 12);
    assert_eq!(counts(&after, DIRECT, PROTOCOL_TCP, ONE), (12, 9, 0));
    assert_eq!(counts(&settled, DIRECT, PROTOCOL_TCP, ONE), (12, 9, 3));
    assert_eq!(settled.coverage.found, 12);
}

#[test]
fn what_is_missing_is_named_with_its_remedy() {
    let Some(net) = Net::make("missing") else { return };
    let settings = Settings {
        node_netns: net.path("nowhere"),
        ..net.settings(100)
    };
    let doors = Doors::start(settings, Kept::default()).expect("starts");
    doors.sink()(&event(
        &flow(
            DIRECT.parse().expect("an address"),
            ONE.parse().expect("an address"),
            PROTOCOL_TCP,
        ),
        event_kind::OPENED,
    ));
    let snapshot = wait_for(&doors, |snapshot| covered(snapshot) == 1);
    assert_eq!(snapshot.coverage.skipped, 1);
    let sentence = snapshot.degraded.expect("degraded");
    assert!(
        sentence.contains("nowhere") && sentence.contains("--node-netns"),
        "{sentence}"
    );

    let path = net.path("node");
    let refused = net.within("node", || {
        let mut own = capabilities(None).expect("capabilities");
        own.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, own).expect("dropped");
        Conntrack::open(&path).expect_err("not allowed")
    });
    assert!(matches!(refused, ConntrackError::Capability), "{refused}");
    let refused = net.within("client", || {
        let mut own = capabilities(None).expect("capabilities");
        own.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, own).expect("dropped");
        Conntrack::open(&path).expect_err("not allowed")
    });
    assert!(matches!(refused, ConntrackError::Enter { .. }), "{refused}");
}

#[test]
fn a_look_up_is_quick() {
    let Some(net) = Net::make("quick") else { return };
    let listener = net.listen();
    let flows = net.dial(&listener, ONE, 200);
    let path = net.path("node");
    let (known, unknown) = net.within("node", || {
        let mut conntrack = Conntrack::open(&path).expect("opens");
        let mut time = |change: u16| {
            let began = Instant::now();
            for round in 0..10_000 {
                let mut flow = flows[round % flows.len()].0;
                flow.key.port += change;
                let answer = conntrack.look_up(&Direction::answering(&flow)).expect("answers");
                assert_eq!(matches!(answer, Answer::Door(_)), change == 0);
            }
            began.elapsed() / 10_000
        };
        (time(0), time(1))
    });
    println!("a look-up takes {known:?}, one in vain {unknown:?}");
    // Slower than this, the usual limit of 2,000 a second could not be kept.
    assert!(known < Duration::from_micros(500), "{known:?}");
}
