//! What the agent tells of single clients, held against connections that the test has made from several addresses.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    ops::RangeInclusive,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use datasketches::{common::NumStdDev, hll::HllSketch};
use flowskew_proto::v1::{
    AssignedEndpoint, Assignment, ClientKey, CloseCause, EndpointActivity, LedgerEntry, Protocol, Report, SourceClass,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt::set_socket_linger};
use siphasher::sip::SipHasher24;

use super::{TestAggregator, agent, can_load_programs, free_address, terminate};
use crate::common::{listen, mapped};

const KEYS: [(u32, [u8; 16]); 2] = [(0xaaaa, [7; 16]), (0xbbbb, [9; 16])];

fn assignment(endpoint: SocketAddr) -> Assignment {
    Assignment {
        endpoints: vec![AssignedEndpoint {
            address: mapped(endpoint).to_vec(),
            port: endpoint.port().into(),
            protocol: Protocol::Tcp.into(),
        }],
        client_keys: KEYS.map(|(id, key)| ClientKey { id, key: key.to_vec() }).to_vec(),
        ..Assignment::default()
    }
}

fn hash(key: usize, client: Ipv4Addr) -> u64 {
    SipHasher24::new_with_key(&KEYS[key].1).hash(&client.to_ipv6_mapped().octets())
}

/// A flow from this address: client's end, server's end.
fn open_from(client: Ipv4Addr, listener: &TcpListener, to: SocketAddr) -> (TcpStream, TcpStream) {
    // Not for the processes that tests start: a close must be the last.
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&socket, &SocketAddr::from((client, 0))).expect("an address of loopback");
    connect(&socket, &to).expect("connects");
    let (server, _) = listener.accept().expect("accepts");
    (TcpStream::from(socket), server)
}

fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).expect("lingers not");
}

fn wall_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("fits")
}

/// The activity and the counters of the endpoint in a report, if there are any.
fn at_endpoint(report: &Report, endpoint: SocketAddr) -> (Option<&EndpointActivity>, Option<&LedgerEntry>) {
    let (address, port) = (mapped(endpoint), u32::from(endpoint.port()));
    let activity: Vec<_> = (report.activity.iter())
        .filter(|activity| activity.address == address && activity.port == port)
        .collect();
    assert!(activity.len() <= 1, "one cgroup: {activity:?}");
    let entry = (report.entries.iter()).find(|entry| entry.address == address && entry.port == port);
    (activity.first().copied(), entry)
}

/// Hash under the first key, hash under the second, kind.
type What = (u64, u64, u32);

/// What reports have told, and for each close the lifetime; each time is checked.
#[derive(Default)]
struct Heard {
    counts: BTreeMap<What, u64>,
    lifetimes: Vec<(u64, u64)>,
}

impl Heard {
    fn add(&mut self, report: &Report, activity: &EndpointActivity, times: &RangeInclusive<i64>) {
        assert_eq!(activity.sampling_shift, 0);
        let [first, second] = activity.columns.as_slice() else {
            panic!("a column for each key: {activity:?}")
        };
        assert_eq!([first.key_id, second.key_id], KEYS.map(|(id, _)| id));
        let events = activity.kinds.len();
        assert_eq!(
            (activity.at_ms.len(), first.clients.len(), second.clients.len()),
            (events, events, events)
        );
        let mut at = i64::try_from(report.taken_at_ms).expect("fits");
        let mut lifetimes = activity.lifetimes_ms.iter();
        for (event, kind) in activity.kinds.iter().enumerate() {
            at += activity.at_ms[event];
            assert!(times.contains(&at), "{at} in {times:?}");
            let clients = (first.clients[event], second.clients[event]);
            *self.counts.entry((clients.0, clients.1, *kind)).or_default() += 1;
            if *kind > 0 {
                let lifetime = lifetimes.next().expect("one for each close");
                self.lifetimes.push((clients.0, *lifetime));
            }
        }
        assert_eq!(lifetimes.next(), None);
    }
}

#[tokio::test]
async fn reports_tell_each_flow_of_each_client() {
    if !can_load_programs() {
        return;
    }
    let (listener, endpoint) = listen(Ipv4Addr::new(127, 8, 4, 1));
    // Open before counting began.
    let old = open_from(Ipv4Addr::new(127, 8, 4, 99), &listener, endpoint);
    let (grpc, http) = (free_address().await, free_address().await);
    let mut aggregator = TestAggregator::start(grpc, true, assignment(endpoint)).await;
    let (aggregator_url, http) = (format!("http://{grpc}"), http.to_string());
    let mut child = agent(&["--aggregator", &aggregator_url, "--http-listen", &http])
        .args(["--report-interval", "300ms", "--no-front-doors"])
        .spawn()
        .expect("starts");
    aggregator.hears_hello().await;
    let mut reports = vec![aggregator.hears_report().await];
    let began = wall_ms();

    type End = fn(TcpStream, TcpStream);
    let ends: [(CloseCause, End); 4] = [
        (CloseCause::ClientFin, |client, _server| drop(client)),
        (CloseCause::ServerFin, |_client, server| drop(server)),
        (CloseCause::ClientRst, |client, _server| reset(client)),
        (CloseCause::ServerRst, |_client, server| reset(server)),
    ];
    let mut truth = BTreeMap::<What, u64>::new();
    let mut tell = |client, kind| *truth.entry((hash(0, client), hash(1, client), kind)).or_default() += 1;
    let mut left = Vec::new();
    let mut lifetimes = BTreeMap::new();
    for (last, (cause, end)) in (10..).zip(ends) {
        let client = Ipv4Addr::new(127, 8, 4, last);
        let before = Instant::now();
        let flows: Vec<_> = (0..last).map(|_| open_from(client, &listener, endpoint)).collect();
        let opened = Instant::now();
        for _ in 0..last {
            tell(client, 0);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
        let shortest = opened.elapsed();
        for (flow, (at_client, at_server)) in flows.into_iter().enumerate() {
            // Two of each client stay open.
            if flow < 2 {
                left.push((at_client, at_server));
                continue;
            }
            end(at_client, at_server);
            tell(client, 1 + i32::from(cause).unsigned_abs());
        }
        lifetimes.insert(hash(0, client), shortest.as_millis()..=before.elapsed().as_millis());
    }
    // The last flows, and ages that were read since.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let ended = wall_ms();
    assert!(terminate(&mut child).await.success());
    while reports
        .last()
        .is_none_or(|report| report.taken_at_ms.cast_signed() <= ended)
    {
        reports.push(aggregator.hears_report().await);
    }

    let mut heard = Heard::default();
    let times = began - 100..=ended + 100;
    for report in &reports {
        if let (Some(activity), _) = at_endpoint(report, endpoint) {
            heard.add(report, activity, &times);
        }
    }
    assert_eq!(heard.counts, truth);
    for (client, lifetime) in &heard.lifetimes {
        let bounds = &lifetimes[client];
        // Told plus 1; both ends are rounded down.
        let lifetime = u128::from(lifetime - 1);
        assert!(
            (*bounds.start() - 1..=bounds.end() + 1).contains(&lifetime),
            "{lifetime} in {bounds:?}"
        );
    }

    let report = reports.last().expect("reports");
    let (_, entry) = at_endpoint(report, endpoint);
    let entry = entry.expect("counters");
    let [external] = entry.classes.as_slice() else {
        panic!("external only: {entry:?}")
    };
    assert_eq!(external.source_class(), SourceClass::External);
    assert_eq!((external.established, external.seeded), (9, 1));
    let ages = entry.ages.as_ref().expect("ages");
    assert_eq!((ages.unknown, ages.flows.iter().sum::<u64>()), (1, 8), "{ages:?}");
    // All that opened here is older than a second and younger than the test.
    let oldest = flowskew_proto::ages::bucket((ended - began).unsigned_abs() + 1_000);
    assert!(ages.buckets.iter().all(|bucket| *bucket <= oldest), "{ages:?}");
    let losses = report.losses.expect("losses");
    assert_eq!((losses.ring_full, losses.activity_dropped), (0, 0));
    drop((left, old));
    aggregator.stop();
}

#[tokio::test]
async fn of_too_many_clients_a_sample_and_sketches_are_told() {
    if !can_load_programs() {
        return;
    }
    let (listener, endpoint) = listen(Ipv4Addr::new(127, 8, 5, 1));
    let (grpc, http) = (free_address().await, free_address().await);
    let mut aggregator = TestAggregator::start(grpc, true, assignment(endpoint)).await;
    let (aggregator_url, http) = (format!("http://{grpc}"), http.to_string());
    let mut child = agent(&["--aggregator", &aggregator_url, "--http-listen", &http])
        .args(["--report-interval", "1h", "--no-front-doors"])
        .args(["--client-events", "100", "--client-addresses"])
        .spawn()
        .expect("starts");
    aggregator.hears_hello().await;
    let first = aggregator.hears_report().await;

    let clients = (0..=1).flat_map(|third| (2..=250).map(move |last| Ipv4Addr::new(127, 8, 6 + third, last)));
    let clients: Vec<_> = clients.collect();
    let heavy = Ipv4Addr::new(127, 8, 8, 8);
    for client in clients.iter().chain(&[heavy; 80]) {
        drop(open_from(*client, &listener, endpoint));
    }
    assert!(terminate(&mut child).await.success());
    let report = aggregator.hears_report().await;
    assert_eq!(report.sequence, first.sequence + 1);
    let (activity, _) = at_endpoint(&report, endpoint);
    let activity = activity.expect("activity");
    let shift = activity.sampling_shift;
    assert!(shift >= 3 && activity.kinds.len() <= 100, "1,156 events: {activity:?}");

    let all = || clients.iter().copied().chain([heavy]);
    for (key, column) in activity.columns.iter().enumerate() {
        let mut expected: Vec<_> = all()
            .filter(|client| (0..2).any(|key| hash(key, *client) >> (64 - shift) == 0))
            .flat_map(|client| vec![hash(key, client); if client == heavy { 80 } else { 1 }])
            .collect();
        let mut opened: Vec<_> = (column.clients.iter().zip(&activity.kinds))
            .filter(|(_, kind)| **kind == 0)
            .map(|(client, _)| *client)
            .collect();
        expected.sort_unstable();
        opened.sort_unstable();
        assert_eq!(opened, expected, "all of the sampled clients and no others");
        let sketch = HllSketch::deserialize(&column.distinct).expect("a sketch");
        let bounds = sketch.lower_bound(NumStdDev::Three)..=sketch.upper_bound(NumStdDev::Three);
        assert!(bounds.contains(&(all().count() as f64)), "{bounds:?}");
        let most = &column.heavy[0];
        assert_eq!(
            (most.client, most.address.as_slice()),
            (hash(key, heavy), heavy.to_ipv6_mapped().octets().as_slice())
        );
        assert!((most.opened - most.error..=most.opened).contains(&80), "{most:?}");
    }
    assert_eq!(report.losses.map(|losses| losses.activity_dropped), Some(0));
    aggregator.stop();
}
