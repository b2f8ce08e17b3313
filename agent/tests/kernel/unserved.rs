//! Attempts that reach no pod because nothing listens there. Those that the node's rules drop need a namespace with rules: the
//! lab has them.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
};

use flowskew_agent::kernel::Kernel;
use flowskew_agent_ebpf::{PROTOCOL_TCP, PROTOCOL_UDP, WatchedKey, unserved_reason};

use crate::common::{SIZES, counting, endpoint, listen};

fn refused(kernel: &Kernel, endpoint: WatchedKey) -> u64 {
    let snapshot = kernel.snapshot().expect("counters");
    let of_endpoint = snapshot
        .unserved
        .iter()
        .filter(|(key, _)| key.dialled == endpoint && key.reason == unserved_reason::REFUSED);
    of_endpoint.map(|(_, attempts)| attempts).sum()
}

#[test]
fn attempts_at_an_endpoint_where_nothing_listens_are_counted_once_each() {
    let Some(mut kernel) = counting(&SIZES) else { return };
    if let Some(why) = kernel.degradations().iter().find(|known| known.code == "unserved") {
        eprintln!("skipped: {}", why.sentence);
        return;
    }
    let (listener, tcp) = listen(Ipv4Addr::new(127, 9, 0, 30));
    drop(listener);
    let udp = SocketAddr::from((Ipv4Addr::new(127, 9, 0, 30), 9));
    let unwatched = SocketAddr::from((Ipv4Addr::new(127, 9, 0, 31), tcp.port()));
    let (by_tcp, by_udp) = (endpoint(tcp, PROTOCOL_TCP), endpoint(udp, PROTOCOL_UDP));
    kernel.watch(&HashSet::from([by_tcp, by_udp])).expect("watches");
    for _ in 0..7 {
        assert!(TcpStream::connect(tcp).is_err());
        assert!(TcpStream::connect(unwatched).is_err());
    }
    let client = UdpSocket::bind((Ipv4Addr::new(127, 9, 0, 32), 0)).expect("binds");
    for _ in 0..3 {
        client.send_to(b"x", udp).expect("sends");
    }
    assert_eq!(refused(&kernel, by_tcp), 7);
    assert_eq!(refused(&kernel, by_udp), 1, "three datagrams of one client");
    assert_eq!(refused(&kernel, endpoint(unwatched, PROTOCOL_TCP)), 0);
}
