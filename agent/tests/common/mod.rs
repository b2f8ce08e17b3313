//! What tests of the kernel programs need of the machine, and real sockets on loopback.
#![allow(dead_code, reason = "each test binary uses its part of this")]

pub mod netns;

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
};

use flowskew_agent::{
    config::MapSizes,
    kernel::{Kernel, object, requirements},
};
use flowskew_agent_ebpf::{ClassCounts, WatchedKey, close_cause, source_class};
use rustix::{
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::geteuid,
};

pub const SIZES: MapSizes = MapSizes {
    max_flows: 4_096,
    max_ledger: 1_024,
    ring_bytes: 65_536,
    max_udp_flows: 1_024,
    kernel_log: false,
};

/// Whether programs can be loaded here; if not, the reason is printed.
pub fn can_load_programs() -> bool {
    if !geteuid().is_root() {
        eprintln!("skipped: not root");
        return false;
    }
    if let Err(error) = object::embedded() {
        eprintln!("skipped: {error}");
        return false;
    }
    true
}

/// Loaded and attached programs, or `None` with the reason printed.
pub fn counting(sizes: &MapSizes) -> Option<Kernel> {
    if !can_load_programs() {
        return None;
    }
    Some(Kernel::start(sizes, None).expect("starts"))
}

/// A BPF filesystem of the test's own, gone with the test; all pins in it end with it.
pub struct BpfFs(tempfile::TempDir);

impl BpfFs {
    /// `None`, with the reason printed, where programs cannot be loaded.
    pub fn mount() -> Option<Self> {
        if !can_load_programs() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        mount("bpf", folder.path(), "bpf", MountFlags::empty(), None).expect("a BPF filesystem can be mounted");
        Some(Self(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn root(&self) -> PathBuf {
        self.0.path().join("flowskew")
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

pub fn mapped(address: SocketAddr) -> [u8; 16] {
    match address {
        SocketAddr::V4(address) => address.ip().to_ipv6_mapped().octets(),
        SocketAddr::V6(address) => address.ip().octets(),
    }
}

pub fn endpoint(address: SocketAddr, protocol: u8) -> WatchedKey {
    WatchedKey {
        address: mapped(address),
        port: address.port(),
        protocol,
        padding: 0,
    }
}

/// The counters of one local address and port: one class, one cgroup.
pub fn counts(kernel: &Kernel, address: SocketAddr) -> ClassCounts {
    class_counts(kernel, address, source_class::UNCLASSIFIED)
}

pub fn class_counts(kernel: &Kernel, address: SocketAddr, class: u8) -> ClassCounts {
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
pub fn open(listener: &TcpListener, to: SocketAddr) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(to).expect("connects");
    let (server, _) = listener.accept().expect("accepts");
    (client, server)
}

pub fn listen(address: impl Into<std::net::IpAddr>) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((address.into(), 0)).expect("listens");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

pub fn closed_by(cause: u8) -> [u64; close_cause::COUNT] {
    let mut closed = [0; close_cause::COUNT];
    closed[usize::from(cause)] = 1;
    closed
}

/// Whether programs can walk over a map; if not, the reason is printed.
pub fn walks_maps() -> bool {
    let walks = requirements::kernel_version() >= Some((5, 13));
    if !walks {
        eprintln!("skipped: programs can walk over maps since Linux 5.13");
    }
    walks
}
