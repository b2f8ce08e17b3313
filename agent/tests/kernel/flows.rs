//! Flows that open, with their address and class; flows that were open before; what is told of single flows.

use std::{
    collections::{HashMap, HashSet},
    io::{Read, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use flowskew_agent::events::{self, EventMetrics};
use flowskew_agent_ebpf::{ClassCounts, PROTOCOL_TCP, close_cause, source_class};

use crate::common::{SIZES, class_counts, closed_by, counting, counts, endpoint, listen, mapped, open};

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

#[tokio::test]
async fn single_flows_of_watched_endpoints_are_told() {
    let Some(mut kernel) = counting(&SIZES) else { return };
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 9));
    let (unwatched, elsewhere) = listen(Ipv4Addr::new(127, 9, 0, 10));
    let key = endpoint(address, PROTOCOL_TCP);
    kernel.watch(&HashSet::from([key])).expect("watches");
    let metrics = EventMetrics::default();
    let reader = tokio::spawn(events::drain(
        kernel.take_events().expect("a ring"),
        metrics.clone(),
        Vec::new(),
    ));
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
