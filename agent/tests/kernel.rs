//! The kernel programs on this machine's kernel, with real sockets on loopback. Needs root and the built-in object; each test
//! says so and passes when it cannot run.

mod common;

use std::{
    collections::{HashMap, HashSet},
    io::{Read, Write},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use common::can_load_programs;
use flowskew_agent::{
    config::MapSizes,
    events::{self, EventMetrics},
    kernel::{Kernel, requirements},
};
use flowskew_agent_ebpf::{ClassCounts, PROTOCOL_TCP, WatchedKey, close_cause, source_class};
use rustix::process::geteuid;

const SIZES: MapSizes = MapSizes {
    max_flows: 4_096,
    max_ledger: 1_024,
    ring_bytes: 65_536,
    kernel_log: false,
};

/// Loaded and attached programs, or `None` with the reason printed.
fn counting(sizes: &MapSizes) -> Option<Kernel> {
    if !can_load_programs() {
        return None;
    }
    Some(Kernel::start(sizes, None).expect("starts"))
}

fn mapped(address: SocketAddr) -> [u8; 16] {
    match address {
        SocketAddr::V4(address) => address.ip().to_ipv6_mapped().octets(),
        SocketAddr::V6(address) => address.ip().octets(),
    }
}

/// The counters of one local address and port: one class, one cgroup.
fn counts(kernel: &Kernel, address: SocketAddr) -> ClassCounts {
    class_counts(kernel, address, source_class::UNCLASSIFIED)
}

fn class_counts(kernel: &Kernel, address: SocketAddr, class: u8) -> ClassCounts {
    let snapshot = kernel.snapshot().expect("counters");
    let found: Vec<_> = (snapshot.entries.iter())
        .filter(|(key, _)| key.address == mapped(address) && key.port == address.port())
        .collect();
    assert!(found.len() <= 1, "one cgroup: {found:?}");
    found
        .first()
        .map(|(_, value)| value.classes[usize::from(class)])
        .unwrap_or_default()
}

/// A flow from a client to the listener: client's end, server's end.
fn open(listener: &TcpListener, to: SocketAddr) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(to).expect("connects");
    let (server, _) = listener.accept().expect("accepts");
    (client, server)
}

fn listen(address: impl Into<std::net::IpAddr>) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((address.into(), 0)).expect("listens");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn closed_by(cause: u8) -> [u64; close_cause::COUNT] {
    let mut closed = [0; close_cause::COUNT];
    closed[usize::from(cause)] = 1;
    closed
}

/// Closes with a reset.
fn abort(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("lingers not");
}

#[test]
fn an_open_and_a_close_are_counted_once_and_only_at_the_passive_end() {
    let Some(kernel) = counting(&SIZES) else { return };
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 1));
    let (client, server) = open(&listener, address);
    let client_address = client.local_addr().expect("an address");
    assert_eq!(
        counts(&kernel, address),
        ClassCounts {
            opened: 1,
            established: 1,
            ..ClassCounts::default()
        }
    );
    assert_eq!(
        counts(&kernel, client_address),
        ClassCounts::default(),
        "the active end is none of ours"
    );
    drop(client);
    drop(server);
    let expected = ClassCounts {
        opened: 1,
        closed: closed_by(close_cause::CLIENT_FIN),
        ..ClassCounts::default()
    };
    assert_eq!(counts(&kernel, address), expected);
}

#[test]
fn each_way_to_end_a_flow_is_told_apart() {
    let Some(kernel) = counting(&SIZES) else { return };
    type End = fn(TcpStream, TcpStream);
    let ends: [(u8, End); 6] = [
        (close_cause::CLIENT_FIN, |client, _server| drop(client)),
        (close_cause::CLIENT_FIN, |client, _server| {
            client.shutdown(Shutdown::Write).expect("half-closes")
        }),
        (close_cause::SERVER_FIN, |_client, server| drop(server)),
        (close_cause::CLIENT_RST, |client, _server| {
            abort(&client);
            drop(client);
        }),
        (close_cause::SERVER_RST, |_client, server| {
            abort(&server);
            drop(server);
        }),
        // Closed with unread data, as when a server is killed: the server resets, the client did nothing wrong.
        (close_cause::SERVER_RST, |mut client, server| {
            client.write_all(b"unread").expect("writes");
            server.peek(&mut [0]).expect("arrives");
            drop(server);
        }),
    ];
    for (row, (cause, end)) in ends.into_iter().enumerate() {
        let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 2));
        let (client, server) = open(&listener, address);
        end(client, server);
        let counts = counts(&kernel, address);
        assert_eq!(
            (counts.opened, counts.established, counts.closed),
            (1, 0, closed_by(cause)),
            "row {row}"
        );
    }
}

#[test]
fn ipv6_and_mapped_addresses() {
    let Some(kernel) = counting(&SIZES) else { return };
    let (listener, address) = listen(Ipv6Addr::LOCALHOST);
    let _v6 = open(&listener, address);
    assert_eq!(counts(&kernel, address).opened, 1);

    let (listener, any) = listen(Ipv6Addr::UNSPECIFIED);
    let v4 = SocketAddr::from((Ipv4Addr::new(127, 9, 0, 3), any.port()));
    let _mapped = open(&listener, v4);
    assert_eq!(
        counts(&kernel, v4).opened,
        1,
        "counted under the IPv4 address that the client dialled"
    );
}

#[test]
fn open_flows_are_taken_up_as_established_but_never_as_opened() {
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 4));
    let early: Vec<_> = (0..50).map(|_| open(&listener, address)).collect();
    let (client, server) = &early[0];
    let _second_file_of_one_socket = server.try_clone().expect("duplicates");
    let Some(mut kernel) = counting(&SIZES) else { return };
    let late = open(&listener, address);
    kernel.seed().expect("seeds");
    assert_eq!(
        counts(&kernel, address),
        ClassCounts {
            opened: 1,
            established: 51,
            seeded: 50,
            ..ClassCounts::default()
        }
    );
    assert_eq!(
        counts(&kernel, client.local_addr().expect("an address")),
        ClassCounts::default(),
        "an active end"
    );
    kernel.seed().expect("seeds again");
    assert_eq!(counts(&kernel, address).seeded, 50, "a second walk finds nothing new");
    drop(late);
    for (client, server) in early {
        drop(client);
        drop(server);
    }
    let end = counts(&kernel, address);
    assert_eq!(
        (end.opened, end.established, end.closed.iter().sum::<u64>()),
        (1, 0, 51)
    );
}

#[test]
fn clients_are_classed_by_the_longest_prefix() {
    let Some(mut kernel) = counting(&SIZES) else { return };
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 5));
    let from = |last| {
        let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
            .expect("a socket");
        let local = SocketAddr::from((Ipv4Addr::new(127, 9, 1, last), 0));
        rustix::net::bind(&socket, &local).expect("binds");
        rustix::net::connect(&socket, &address).expect("connects");
        (socket, listener.accept().expect("accepts"))
    };
    let prefix = |last, bits: u32| (mapped(SocketAddr::from((Ipv4Addr::new(127, 9, 1, last), 0))), 96 + bits);
    let before = from(1);
    kernel
        .classify(&HashMap::from([
            (prefix(0, 28), source_class::POD),
            (prefix(2, 32), source_class::NODE),
        ]))
        .expect("classifies");
    let _flows = [before, from(1), from(2), from(3), from(200)];
    kernel
        .classify(&HashMap::from([(prefix(0, 28), source_class::NODE)]))
        .expect("classifies anew");
    let _later = [from(1), from(2)];
    let opened = |class| class_counts(&kernel, address, class).opened;
    assert_eq!(opened(source_class::UNCLASSIFIED), 1);
    assert_eq!(opened(source_class::POD), 2);
    assert_eq!(opened(source_class::NODE), 1 + 2);
    assert_eq!(opened(source_class::EXTERNAL), 1);
}

#[test]
fn when_flows_is_full_opened_and_closed_stay_exact_and_the_loss_is_counted() {
    let Some(kernel) = counting(&MapSizes { max_flows: 64, ..SIZES }) else {
        return;
    };
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 6));
    let flows: Vec<_> = (0..200).map(|_| open(&listener, address)).collect();
    let full = kernel.snapshot().expect("counters").losses.flows_full;
    assert!(
        full >= 136,
        "64 fit, and other tests of this machine may take some: {full}"
    );
    assert_eq!(
        (counts(&kernel, address).opened, counts(&kernel, address).established),
        (200, 200)
    );
    for (client, server) in flows {
        drop(client);
        drop(server);
    }
    let end = counts(&kernel, address);
    assert_eq!(
        (end.opened, end.established, end.closed.iter().sum::<u64>()),
        (200, 0, 200)
    );
    assert!(kernel.snapshot().expect("counters").losses.orphan_close >= 136);
}

#[test]
fn when_the_ledger_is_full_the_loss_is_counted() {
    let Some(kernel) = counting(&MapSizes { max_ledger: 1, ..SIZES }) else {
        return;
    };
    let flows: Vec<_> = (0..8).map(|_| listen(Ipv4Addr::new(127, 9, 0, 7))).collect();
    let _open: Vec<_> = flows
        .iter()
        .map(|(listener, address)| open(listener, *address))
        .collect();
    let snapshot = kernel.snapshot().expect("counters");
    assert!(snapshot.losses.ledger_full >= 7, "{:?}", snapshot.losses);
    assert_eq!(snapshot.entries.len(), 1);
}

#[test]
fn when_the_ring_is_full_counts_stay_exact_and_the_loss_is_counted() {
    let Some(mut kernel) = counting(&MapSizes {
        ring_bytes: 4_096,
        ..SIZES
    }) else {
        return;
    };
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 8));
    let key = WatchedKey {
        address: mapped(address),
        port: address.port(),
        protocol: PROTOCOL_TCP,
        padding: 0,
    };
    kernel.watch(&HashSet::from([key])).expect("watches");
    let mut ring = kernel.take_events().expect("a ring");
    for _ in 0..100 {
        drop(open(&listener, address));
    }
    let mut read = 0;
    while ring.next().is_some() {
        read += 1;
    }
    let snapshot = kernel.snapshot().expect("counters");
    assert_eq!(counts(&kernel, address).opened, 100);
    assert!(read < 200, "the ring did overflow: {read}");
    assert_eq!(
        read + snapshot.losses.ring_full,
        200,
        "each event was told or counted as lost"
    );
}

#[tokio::test]
async fn single_flows_of_watched_endpoints_are_told() {
    let Some(mut kernel) = counting(&SIZES) else { return };
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 9));
    let (unwatched, elsewhere) = listen(Ipv4Addr::new(127, 9, 0, 10));
    let key = WatchedKey {
        address: mapped(address),
        port: address.port(),
        protocol: PROTOCOL_TCP,
        padding: 0,
    };
    kernel.watch(&HashSet::from([key])).expect("watches");
    let metrics = EventMetrics::default();
    let reader = tokio::spawn(events::drain(kernel.take_events().expect("a ring"), metrics.clone()));
    let (mut client, mut server) = open(&listener, address);
    let _other = open(&unwatched, elsewhere);
    server.write_all(b"x").expect("writes");
    client.read_exact(&mut [0]).expect("reads");
    drop(client);
    tokio::time::sleep(Duration::from_millis(300)).await;
    reader.abort();
    kernel.watch(&HashSet::new()).expect("watches nothing");
    let text = flowskew_agent::metrics::render(&flowskew_agent::metrics::Published::default(), &metrics).expect("text");
    assert!(
        text.contains(r#"flowskew_agent_flow_duration_seconds_count{cause="client_fin"} 1"#),
        "{text}"
    );
    assert!(!text.contains("server_fin"), "{text}");
}

#[test]
fn nothing_is_missing_where_these_tests_run() {
    if !geteuid().is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let all = requirements::all();
    assert!(
        all.iter()
            .all(|one| !matches!(one.state, requirements::State::Missing(_))),
        "{all:?}"
    );
}
