//! The wires: in, names and indexes; out, the `ip -batch` scripts and kernel settings that connect clients, router,
//! nodes and pods. Pure functions.
//!
//! Every link is a pair of veth devices with fixed link addresses on both ends and a permanent neighbour entry, so that
//! no packet ever waits for address resolution. The end nearer to the clients' router is the gateway of the other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{addresses::Family, balancer::mark, namespace::host_bits};

const UPPER: &str = "02:00:00:00:00:01";
const LOWER: &str = "02:00:00:00:00:02";

/// Routing tables of the router, one for each node, from this number on.
const FIRST_TABLE: usize = 1000;

/// Kernel settings, as pairs of path below `/proc/sys/net` and value.
pub type Settings = &'static [(&'static str, &'static str)];

/// Before any device is made: its settings are copied from these defaults.
const DEVICES: Settings = &[
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
];

/// Router and nodes hand packets on.
pub const FORWARDING: [Settings; 2] = [
    DEVICES,
    &[
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv6/conf/default/forwarding", "1"),
    ],
];

/// Where flows are tracked: a table that holds some hundred thousand flows must not be full of closed ones when thousands
/// open in a second.
pub const TRACKING: Settings = &[("netfilter/nf_conntrack_tcp_timeout_time_wait", "10")];

/// Clients: every port of every source address, also without a device that has the address, and soon again.
pub const CLIENTS: [Settings; 2] = [
    DEVICES,
    &[
        ("ipv4/ip_nonlocal_bind", "1"),
        ("ipv6/ip_nonlocal_bind", "1"),
        ("ipv4/ip_local_port_range", "1024 65535"),
        ("ipv4/tcp_tw_reuse", "1"),
        ("ipv4/tcp_max_tw_buckets", "1048576"),
        ("ipv4/tcp_fin_timeout", "5"),
        ("ipv4/tcp_orphan_retries", "2"),
    ],
];

/// Pods.
pub const POD: [Settings; 2] = [DEVICES, SERVERS];

/// Nodes: some pods use the node's own network.
pub const NODE: [Settings; 3] = [FORWARDING[0], FORWARDING[1], SERVERS];

/// A burst of thousands of flows must fit in the accept queue, and nothing lingers when the process is gone.
const SERVERS: Settings = &[
    ("core/somaxconn", "65535"),
    ("ipv4/tcp_max_syn_backlog", "65535"),
    ("ipv4/tcp_fin_timeout", "5"),
    ("ipv4/tcp_orphan_retries", "2"),
];

/// The address a namespace uses for the upper end of its link, and for the lower end where that has none of its own.
fn link_addresses(family: Family) -> (IpAddr, IpAddr) {
    match family {
        Family::V4 => (
            Ipv4Addr::new(169, 254, 1, 1).into(),
            Ipv4Addr::new(169, 254, 1, 2).into(),
        ),
        Family::V6 => {
            let address = |last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, last).into();
            (address(1), address(2))
        }
    }
}

/// In the lower namespace: a link to `upper` whose device there is called `device`, and everything goes that way.
fn uplink(family: Family, upper: &str, device: &str) -> String {
    let (gateway, _) = link_addresses(family);
    format!(
        "link set lo up\n\
         link add eth0 address {LOWER} type veth peer name {device} address {UPPER} netns {upper}\n\
         link set eth0 up\n\
         neigh add {gateway} lladdr {UPPER} dev eth0 nud permanent\n\
         route add default via {gateway} dev eth0 onlink\n"
    )
}

/// In the lower namespace: its address.
fn own_address(address: IpAddr) -> String {
    let nodad = if address.is_ipv6() { " nodad" } else { "" };
    format!("addr add {address}/{} dev eth0{nodad}\n", host_bits(address))
}

/// In the upper namespace: the way down to `address` behind `device`.
fn downlink(address: IpAddr, device: &str) -> String {
    format!(
        "link set {device} up\n\
         neigh add {address} lladdr {LOWER} dev {device} nud permanent\n\
         route add {address}/{} dev {device}\n",
        host_bits(address)
    )
}

/// Device of a node in the router's namespace.
fn node_device(index: usize) -> String {
    format!("node{index}")
}

/// Device of the pod that was the `pod_index`-th to start on its node, in the node's namespace.
#[must_use]
pub fn pod_device(pod_index: usize) -> String {
    format!("pod{pod_index}")
}

/// In the clients' namespace. Every address of the clients' range is local there.
#[must_use]
pub fn clients(family: Family, router: &str) -> String {
    format!(
        "{}route add local {} dev lo\n",
        uplink(family, router, "clients"),
        family.client_cidr()
    )
}

/// In a node's namespace. The address of a pod that is gone is unreachable, and does not go round in circles.
#[must_use]
pub fn node(family: Family, router: &str, index: usize) -> String {
    format!(
        "{}{}route add unreachable {}\n",
        uplink(family, router, &node_device(index)),
        own_address(family.node_address(index)),
        family.pod_cidr(index)
    )
}

/// In the router's namespace, after clients and nodes.
#[must_use]
pub fn router(family: Family, nodes: usize) -> String {
    let (_, clients) = link_addresses(family);
    let own = family.router_address();
    let mut script = format!(
        "link set lo up\n\
         addr add {own}/{} dev lo\n\
         link set clients up\n\
         neigh add {clients} lladdr {LOWER} dev clients nud permanent\n\
         route add {} via {clients} dev clients onlink\n",
        host_bits(own),
        family.client_cidr()
    );
    for index in 0..nodes {
        let (address, device) = (family.node_address(index), node_device(index));
        script += &downlink(address, &device);
        script += &format!(
            "route add {} via {address} dev {device} onlink\n",
            family.pod_cidr(index)
        );
        let (mark, table) = (mark(index), FIRST_TABLE.saturating_add(index));
        script += &format!(
            "route add default via {address} dev {device} onlink table {table}\n\
             rule add fwmark {mark} table {table}\n"
        );
    }
    script
}

/// In the router's namespace: the way to a pod on this node whose address is of another node's range.
#[must_use]
pub fn guest_on_router(family: Family, address: IpAddr, node: usize) -> String {
    let (via, device) = (family.node_address(node), node_device(node));
    format!(
        "route replace {address}/{} via {via} dev {device} onlink\n",
        host_bits(address)
    )
}

/// In the namespace of the node whose range has the address: the pod is elsewhere.
#[must_use]
pub fn guest_at_home(family: Family, address: IpAddr) -> String {
    let (gateway, _) = link_addresses(family);
    format!(
        "route replace {address}/{} via {gateway} dev eth0 onlink\n",
        host_bits(address)
    )
}

/// In both: the pod is gone.
#[must_use]
pub fn guest_gone(address: IpAddr) -> String {
    format!("route delete {address}/{}\n", host_bits(address))
}

/// In a pod's namespace.
#[must_use]
pub fn pod(family: Family, node: &str, device: &str, address: IpAddr) -> String {
    uplink(family, node, device) + &own_address(address)
}

/// In the namespace of the pod's node, after [`pod`].
#[must_use]
pub fn pod_on_node(device: &str, address: IpAddr) -> String {
    downlink(address, device)
}
