//! Flows of UDP: counted for watched endpoints only, until they are silent.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use flowskew_agent::{config::MapSizes, kernel::Kernel, pods::Cgroups};
use flowskew_agent_ebpf::{PROTOCOL_UDP, Settings, close_cause};

use crate::common::{SIZES, counting, counts, endpoint, walks_maps};

const IDLE: Duration = Duration::from_millis(300);

/// Programs that count UDP, with a short idle time.
fn counting_udp(sizes: &MapSizes) -> Option<Kernel> {
    let mut kernel = counting(sizes)?;
    let cgroups = match Cgroups::find(None) {
        Ok(cgroups) => cgroups,
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    kernel.set_cgroup_root(cgroups.root().to_owned());
    kernel
        .set(Settings {
            udp_idle_ns: IDLE.as_nanos() as u64,
            ..Settings::default()
        })
        .expect("sets");
    Some(kernel)
}

fn server(address: impl Into<IpAddr>) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((address.into(), 0)).expect("binds");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

/// Sends a datagram, and waits until the server has it.
fn send(client: &UdpSocket, server: &UdpSocket, to: SocketAddr) {
    client.send_to(b"x", to).expect("sends");
    server.recv_from(&mut [0]).expect("arrives");
}

fn clients(address: impl Into<IpAddr>, number: usize) -> Vec<UdpSocket> {
    let address = address.into();
    (0..number)
        .map(|_| UdpSocket::bind((address, 0)).expect("binds"))
        .collect()
}

#[test]
fn a_flow_is_one_client_until_it_is_silent() {
    let Some(mut kernel) = counting_udp(&SIZES) else { return };
    for ip in [IpAddr::from(Ipv4Addr::new(127, 9, 0, 20)), Ipv6Addr::LOCALHOST.into()] {
        let (socket, address) = server(ip);
        let clients = clients(ip, 5);
        send(&clients[0], &socket, address);
        assert_eq!(counts(&kernel, address).opened, 0, "not watched yet");

        kernel
            .watch(&HashSet::from([endpoint(address, PROTOCOL_UDP)]))
            .expect("watches");
        assert!(kernel.degradations().iter().all(|known| known.code != "udp"));
        for _ in 0..3 {
            for client in &clients {
                send(client, &socket, address);
            }
        }
        socket
            .send_to(b"answer", clients[0].local_addr().expect("an address"))
            .expect("answers");
        let now = counts(&kernel, address);
        assert_eq!((now.opened, now.established), (5, 5));
        if !walks_maps() {
            assert!(kernel.expire().is_err(), "and it is said");
            return;
        }
        kernel.expire().expect("walks");
        assert_eq!(counts(&kernel, address).established, 5, "none is silent yet");

        std::thread::sleep(IDLE * 2);
        // One speaks again before anybody has looked: it has ended, and is another flow.
        send(&clients[0], &socket, address);
        kernel.expire().expect("walks");
        let now = counts(&kernel, address);
        assert_eq!((now.opened, now.established), (6, 1));
        assert_eq!(now.closed[usize::from(close_cause::TIMEOUT)], 5);
        let mut open = Vec::new();
        kernel.visit_flows(&mut |flow| open.push(*flow)).expect("walks");
        open.retain(|flow| flow.key.endpoint() == endpoint(address, PROTOCOL_UDP));
        assert_eq!(open.len(), 1);
        assert_eq!(open[0].client_port, clients[0].local_addr().expect("an address").port());
    }
}

#[test]
fn nothing_is_counted_once_no_endpoint_is_watched() {
    let Some(mut kernel) = counting_udp(&SIZES) else { return };
    let ip = Ipv4Addr::new(127, 9, 0, 21);
    let (socket, address) = server(ip);
    let clients = clients(ip, 2);
    kernel
        .watch(&HashSet::from([endpoint(address, PROTOCOL_UDP)]))
        .expect("watches");
    send(&clients[0], &socket, address);
    kernel.watch(&HashSet::new()).expect("watches nothing");
    send(&clients[1], &socket, address);
    assert_eq!(counts(&kernel, address).opened, 1);
    if !walks_maps() {
        return;
    }
    std::thread::sleep(IDLE * 2);
    kernel.expire().expect("walks");
    assert_eq!(counts(&kernel, address).established, 0, "what was open still ends");
}

#[test]
fn when_the_table_is_full_the_loss_is_counted() {
    let Some(mut kernel) = counting_udp(&MapSizes {
        max_udp_flows: 4,
        ..SIZES
    }) else {
        return;
    };
    let ip = Ipv4Addr::new(127, 9, 0, 22);
    let (socket, address) = server(ip);
    kernel
        .watch(&HashSet::from([endpoint(address, PROTOCOL_UDP)]))
        .expect("watches");
    for client in &clients(ip, 10) {
        send(client, &socket, address);
    }
    assert_eq!(counts(&kernel, address).opened, 4);
    assert_eq!(kernel.snapshot().expect("counters").losses.udp_flows_full, 6);
}

#[test]
fn without_a_cgroup_to_attach_to_it_is_said() {
    let Some(mut kernel) = counting(&SIZES) else { return };
    kernel.set_cgroup_root("/no/such/cgroup".into());
    let address = SocketAddr::from((Ipv4Addr::new(127, 9, 0, 23), 9));
    kernel
        .watch(&HashSet::from([endpoint(address, PROTOCOL_UDP)]))
        .expect("watches");
    let codes: Vec<_> = kernel.degradations().iter().map(|known| known.code).collect();
    assert_eq!(codes.iter().filter(|&&code| code == "udp").count(), 1, "{codes:?}");
    kernel.watch(&HashSet::new()).expect("watches nothing");
    assert!(kernel.degradations().iter().all(|known| known.code != "udp"));
}
