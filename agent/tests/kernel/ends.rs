//! How flows end: each cause, and ends that nobody saw.

use std::{
    io::Write,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use aya::maps::{HashMap, Map, MapData};
use flowskew_agent::kernel::{Kernel, pins::Pins};
use flowskew_agent_ebpf::{ABI_VERSION, Flow, close_cause};
use rustix::net::sockopt::{set_socket_linger, set_tcp_user_timeout};

use crate::common::{BpfFs, SIZES, closed_by, counting, counts, listen, mapped, open, walks_maps};

/// Closes with a reset.
fn abort(stream: &TcpStream) {
    set_socket_linger(stream, Some(Duration::ZERO)).expect("lingers not");
}

/// From now on the socket gets nothing: as if the network to it were cut.
#[expect(unsafe_code, reason = "there is no safe call for socket filters")]
fn go_deaf(stream: &TcpStream) {
    let mut drop_all = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut drop_all,
    };
    // SAFETY: the kernel copies the program, whose one instruction outlives the call.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "a filter is attached");
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
fn a_client_that_answers_no_more_is_a_timeout() {
    let Some(kernel) = counting(&SIZES) else { return };
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 11));
    let (client, mut server) = open(&listener, address);
    set_tcp_user_timeout(&server, 300).expect("a timeout");
    go_deaf(&client);
    server.write_all(b"anybody there?").expect("writes");
    let deadline = Instant::now() + Duration::from_secs(20);
    while counts(&kernel, address).established > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(counts(&kernel, address).closed, closed_by(close_cause::TIMEOUT));
}

/// The map FLOWS of an agent with pins.
fn flows_map(bpf: &BpfFs) -> HashMap<MapData, u64, Flow> {
    let pin = bpf.root().join(format!("abi-{ABI_VERSION}/FLOWS"));
    let map = Map::HashMap(MapData::from_pin(pin).expect("pinned"));
    map.try_into().expect("the map")
}

fn pinned(bpf: &BpfFs) -> (Kernel, Pins) {
    let pins = Pins::hold(&bpf.root()).expect("held");
    (Kernel::start(&SIZES, Some(&pins)).expect("starts"), pins)
}

fn entry_of(flows: &HashMap<MapData, u64, Flow>, address: SocketAddr) -> (u64, Flow) {
    let mut entries = flows.iter().map(|entry| entry.expect("an entry"));
    entries
        .find(|(_, flow)| flow.key.address == mapped(address) && flow.key.port == address.port())
        .expect("the flow is tracked")
}

#[test]
fn a_flow_whose_end_was_not_seen_is_taken_out_of_the_gauge() {
    let Some(bpf) = BpfFs::mount() else { return };
    let (mut kernel, _pins) = pinned(&bpf);
    let mut flows = flows_map(&bpf);
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 12));
    let _open = open(&listener, address);
    let (id, flow) = entry_of(&flows, address);
    let before = kernel.snapshot().expect("counters").losses;

    if !walks_maps() {
        assert!(kernel.reconcile().is_err(), "and it is said");
        return;
    }
    kernel.reconcile().expect("walks");
    assert_eq!(counts(&kernel, address).established, 1, "an open flow stays");

    // A socket that is open, but with another client than its flow says; and an address at which there is no socket.
    let (elsewhere, other_address) = listen(Ipv4Addr::new(127, 9, 0, 15));
    let _other = open(&elsewhere, other_address);
    let (other, _) = entry_of(&flows, other_address);
    flows.insert(other, flow, 0).expect("replaces");
    flows.insert(16, flow, 0).expect("inserts");
    kernel.reconcile().expect("walks");
    let after = kernel.snapshot().expect("counters").losses;
    assert_eq!(after.corrected - before.corrected, 2);
    let counts = counts(&kernel, address);
    assert_eq!(counts.closed[usize::from(close_cause::OTHER)], 2);
    assert_eq!(counts.established, 1 - 2, "two were added behind the gauge's back");
    assert_eq!(flows.get(&id, 0).expect("still tracked"), flow);
}

#[test]
fn the_end_of_a_socket_ends_its_flow_at_the_latest() {
    let Some(bpf) = BpfFs::mount() else { return };
    let (kernel, _pins) = pinned(&bpf);
    let mut flows = flows_map(&bpf);
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 13));
    let (client, server) = open(&listener, address);
    let (id, flow) = entry_of(&flows, address);
    drop(client);
    assert_eq!(counts(&kernel, address).closed, closed_by(close_cause::CLIENT_FIN));
    // As if that step had not been seen. The server's socket still exists.
    flows.insert(id, flow, 0).expect("inserts");
    drop(server);
    assert!(flows.get(&id, 0).is_err(), "it went with its socket");
    let snapshot = kernel.snapshot().expect("counters");
    assert_eq!(snapshot.losses.orphan_flow, 1);
    assert_eq!(counts(&kernel, address).closed[usize::from(close_cause::OTHER)], 1);
}

#[test]
fn what_the_first_program_is_skipped_for_the_second_counts() {
    let Some(bpf) = BpfFs::mount() else { return };
    let (kernel, _pins) = pinned(&bpf);
    let (listener, address) = listen(Ipv4Addr::new(127, 9, 0, 14));
    drop(open(&listener, address));
    // The first program is gone: the second sees each step without its mark.
    let folder = bpf.root().join(format!("abi-{ABI_VERSION}"));
    let links: Vec<_> = std::fs::read_dir(folder)
        .expect("pins")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().contains("link-inet_sock_set_state-"))
        .collect();
    assert_eq!(links.len(), 1, "{links:?}");
    std::fs::remove_file(&links[0]).expect("unpins");
    let flows: Vec<_> = (0..20).map(|_| open(&listener, address)).collect();
    assert_eq!(counts(&kernel, address).opened, 21);
    drop(flows);
    let counts = counts(&kernel, address);
    assert_eq!((counts.established, counts.closed.iter().sum::<u64>()), (0, 21));
}
