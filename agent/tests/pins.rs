//! What outlives an agent: pinned maps and links, on this machine's kernel, with real sockets on loopback. Needs root and the
//! built-in object; each test says so and passes when it cannot run.

mod common;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
};

use common::{BpfFs, SIZES};
use flowskew_agent::{
    config::MapSizes,
    kernel::{
        Kernel, Origin,
        pins::{self, PinError, Pins},
    },
};
use flowskew_agent_ebpf::{ABI_VERSION, ClassCounts};

fn start(root: &Path, sizes: &MapSizes) -> (Kernel, Pins) {
    let pins = Pins::hold(root).expect("held");
    (Kernel::start(sizes, Some(&pins)).expect("starts"), pins)
}

/// The pinned links, in order.
fn links(bpf: &BpfFs) -> Vec<PathBuf> {
    let own = bpf.root().join(format!("abi-{ABI_VERSION}"));
    let pins = fs::read_dir(own)
        .expect("pins")
        .map(|entry| entry.expect("a pin").path());
    let mut links: Vec<_> = pins
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("link-"))
        })
        .collect();
    links.sort();
    links
}

fn listen(last: u8) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 9, 3, last), 0)).expect("listens");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn open(listener: &TcpListener, flows: usize) -> Vec<(TcpStream, TcpStream)> {
    let address = listener.local_addr().expect("an address");
    (0..flows)
        .map(|_| {
            (
                TcpStream::connect(address).expect("connects"),
                listener.accept().expect("accepts").0,
            )
        })
        .collect()
}

/// Opened, established, seeded and closed of one local address.
fn counts(kernel: &Kernel, address: SocketAddr) -> (u64, i64, u64, u64) {
    let SocketAddr::V4(v4) = address else { panic!("IPv4") };
    let mapped = v4.ip().to_ipv6_mapped().octets();
    let snapshot = kernel.snapshot().expect("counters");
    let found = snapshot
        .entries
        .iter()
        .find(|(key, _)| key.address == mapped && key.port == address.port());
    let ClassCounts {
        opened,
        established,
        seeded,
        closed,
    } = found.map(|(_, value)| value.classes[0]).unwrap_or_default();
    (opened, established, seeded, closed.iter().sum())
}

#[test]
fn counting_goes_on_while_no_agent_runs() {
    let Some(bpf) = BpfFs::mount() else { return };
    let (listener, address) = listen(1);
    let (kernel, pins) = start(&bpf.root(), &SIZES);
    assert_eq!(kernel.origin(), Origin::Fresh);
    let before = kernel.memory().expect("memory");
    let early = open(&listener, 5);
    drop((kernel, pins));

    let meanwhile = open(&listener, 7);
    drop(early);

    let (kernel, _pins) = start(&bpf.root(), &SIZES);
    assert_eq!(kernel.origin(), Origin::Adopted);
    assert_eq!(kernel.memory().expect("memory"), before, "the same epoch");
    assert_eq!(counts(&kernel, address), (12, 7, 0, 5));
    drop(meanwhile);
    assert_eq!(counts(&kernel, address), (12, 0, 0, 12));
}

#[test]
fn programs_of_two_versions_count_each_flow_once() {
    let Some(bpf) = BpfFs::mount() else { return };
    let (listener, address) = listen(2);
    let (kernel, pins) = start(&bpf.root(), &SIZES);
    // Out of sight of the next agent: the programs of both run, as at the moment of an upgrade.
    let elsewhere = bpf.path().join("older-version");
    fs::create_dir(&elsewhere).expect("a folder");
    for link in links(&bpf) {
        fs::rename(&link, elsewhere.join(link.file_name().expect("a name"))).expect("moved");
    }
    let early = open(&listener, 3);
    drop((kernel, pins));

    let (kernel, _pins) = start(&bpf.root(), &SIZES);
    assert_eq!(kernel.origin(), Origin::Upgraded);
    let late = open(&listener, 20);
    assert_eq!(counts(&kernel, address), (23, 23, 0, 0));
    drop((early, late));
    assert_eq!(counts(&kernel, address), (23, 0, 0, 23));
}

#[test]
fn an_upgrade_ends_the_older_programs() {
    let Some(bpf) = BpfFs::mount() else { return };
    let (kernel, pins) = start(&bpf.root(), &SIZES);
    let before = links(&bpf);
    assert!(before.len() >= 2, "{before:?}");
    for link in &before {
        let name = link.file_name().expect("a name").to_string_lossy();
        let (hook, _object) = name.rsplit_once('-').expect("an object");
        fs::rename(link, link.with_file_name(format!("{hook}-0123456789abcdef"))).expect("moved");
    }
    drop((kernel, pins));
    let (kernel, _pins) = start(&bpf.root(), &SIZES);
    assert_eq!((kernel.origin(), links(&bpf)), (Origin::Upgraded, before));
}

#[test]
fn other_sizes_and_other_records_begin_anew() {
    let Some(bpf) = BpfFs::mount() else { return };
    let (listener, address) = listen(3);
    let (kernel, pins) = start(&bpf.root(), &SIZES);
    let epoch = kernel.memory().expect("memory").epoch;
    let _flows = open(&listener, 4);
    drop((kernel, pins));

    let (mut kernel, pins) = start(
        &bpf.root(),
        &MapSizes {
            max_flows: 8_192,
            ..SIZES
        },
    );
    assert_eq!(kernel.origin(), Origin::Migrated);
    assert_ne!(kernel.memory().expect("memory").epoch, epoch);
    kernel.seed().expect("seeds");
    assert_eq!(
        counts(&kernel, address),
        (0, 4, 4, 0),
        "open flows are taken up, none is new"
    );
    drop((kernel, pins));

    // As left by an agent with other records.
    fs::rename(bpf.root().join(format!("abi-{ABI_VERSION}")), bpf.root().join("abi-0")).expect("moved");
    let (kernel, _pins) = start(&bpf.root(), &SIZES);
    assert_eq!(kernel.origin(), Origin::Migrated);
    assert!(!bpf.root().join("abi-0").exists(), "its programs have ended");
}

#[test]
fn a_second_agent_is_told_so_and_cleanup_ends_the_counting() {
    let Some(bpf) = BpfFs::mount() else { return };
    assert_eq!(pins::clean_up(&bpf.root()).expect("nothing to do"), 0);
    let (kernel, pins) = start(&bpf.root(), &SIZES);
    assert!(matches!(Pins::hold(&bpf.root()), Err(PinError::Held(_))));
    assert!(
        matches!(pins::clean_up(&bpf.root()), Err(PinError::Held(_))),
        "not under a running agent"
    );
    drop((kernel, pins));
    assert!(pins::clean_up(&bpf.root()).expect("cleaned") > 5);
    assert!(!bpf.root().exists());
    let (kernel, _pins) = start(&bpf.root(), &SIZES);
    assert_eq!(kernel.origin(), Origin::Fresh);
}

#[test]
fn a_folder_that_cannot_hold_pins_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = Pins::hold(&folder.path().join("flowskew")).expect_err("no BPF filesystem");
    assert!(error.to_string().contains("mount -t bpf bpf /sys/fs/bpf"), "{error}");
}
