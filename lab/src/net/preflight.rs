//! Whether this machine can carry the network: in, mode and family; out, the tools to use, or an error with its remedy.
//!
//! Features are tried, not guessed from versions: the very rules of the lab are loaded in a namespace that is thrown
//! away.

use std::{collections::BTreeSet, net::SocketAddr, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::geteuid;

use super::{
    addresses::Family,
    balancer::{self, Pool, Target},
    cgroups::cgroup_root,
    kube_proxy::{self, NodeView, ServiceView},
    namespace::run,
    plan::{Balancer, Delivery, ProxyMode},
    service::ServicePlan,
};

/// What the checks found out.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The program that restores iptables rules and works on this kernel; `None` in nftables mode.
    pub iptables_restore: Option<&'static str>,
}

/// Checks privileges, programs and kernel features.
///
/// # Errors
/// What is missing, and what to do about it.
pub fn preflight(mode: ProxyMode, family: Family) -> Result<Tools> {
    ensure!(
        geteuid().is_root(),
        "the lab makes network namespaces and needs root: run it with sudo"
    );
    run("unshare", &["--version"], "")?;
    run("setpriv", &["--version"], "")?;
    run("unshare", &["--net", "true"], "").context(
        "cannot make a network namespace: the kernel needs CONFIG_NET_NS, and a container the capability SYS_ADMIN",
    )?;
    run("ip", &["-Version"], "")?;
    run("ss", &["-V"], "")?;
    run("nft", &["--version"], "")?;
    in_new_namespace(
        "ip",
        &["link", "add", "probe0", "type", "veth", "peer", "name", "probe1"],
        "",
    )
    .context("cannot make a veth pair: the kernel needs CONFIG_VETH")?;
    if family == Family::V6 {
        ensure!(
            Path::new("/proc/sys/net/ipv6").exists(),
            "IPv6 is switched off in this kernel: boot without ipv6.disable=1"
        );
    }
    cgroup_root()?;

    let service = ServicePlan {
        affinity_timeout_seconds: Some(1),
        ..ServicePlan::example(family)
    };
    let pool = Pool {
        service: &service,
        targets: vec![Target {
            node: 0,
            address: family.node_address(0),
            endpoints: 1,
            zone: String::new(),
        }],
    };
    let pools = [pool];
    for (kind, delivery) in [
        (Balancer::Equal, Delivery::NodePort),
        (Balancer::SourceHash, Delivery::Address),
    ] {
        let rules = balancer::rules(kind, delivery, family, &pools);
        in_new_namespace("nft", &["-f", "-"], &rules).context(
            "the load balancer needs nftables with NAT: the kernel needs CONFIG_NF_TABLES, CONFIG_NFT_NAT, CONFIG_NFT_CT, \
             CONFIG_NFT_NUMGEN and CONFIG_NFT_HASH",
        )?;
    }

    let endpoints = [0, 1]
        .map(|pod| SocketAddr::new(family.pod_address(0, pod), service.target_port))
        .to_vec();
    let view = NodeView {
        family,
        services: vec![ServiceView {
            service: &service,
            all: endpoints.clone(),
            local: endpoints,
        }],
    };
    let rules = kube_proxy::setup(mode, family) + &kube_proxy::sync(mode, &view, &BTreeSet::new()).text;
    match mode {
        ProxyMode::Nftables => {
            in_new_namespace("nft", &["-f", "-"], &rules).context(
                "the rules of kube-proxy in nftables mode do not load: use iptables mode, or a kernel with \
                 CONFIG_NFT_FIB_INET, CONFIG_NFT_MASQ and CONFIG_NFT_REJECT",
            )?;
            Ok(Tools { iptables_restore: None })
        }
        ProxyMode::Iptables => Ok(Tools {
            iptables_restore: Some(iptables_restore(family, &rules)?),
        }),
    }
}

/// Checks what UDP Services need besides.
///
/// # Errors
/// What is missing, and what to do about it.
pub fn preflight_udp() -> Result<()> {
    run("conntrack", &["--version"], "")
        .context("UDP Services need the program conntrack")
        .map(drop)
}

/// The first variant of `iptables-restore` that loads `rules`.
fn iptables_restore(family: Family, rules: &str) -> Result<&'static str> {
    let variants = match family {
        Family::V4 => ["iptables-nft-restore", "iptables-legacy-restore", "iptables-restore"],
        Family::V6 => ["ip6tables-nft-restore", "ip6tables-legacy-restore", "ip6tables-restore"],
    };
    let mut failures = vec![];
    for variant in variants {
        match run(variant, &["--version"], "").and_then(|_| in_new_namespace(variant, &["--noflush"], rules)) {
            Ok(_) => return Ok(variant),
            Err(error) => failures.push(format!("  {error:#}")),
        }
    }
    bail!(
        "no variant of iptables loads the rules of kube-proxy: use nftables mode, or install the Debian package iptables \
         on a kernel with the matches statistic, recent, conntrack, addrtype and comment (and CONFIG_NFT_COMPAT for \
         iptables-nft)\n{}",
        failures.join("\n")
    )
}

fn in_new_namespace(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    run("unshare", &[&["--net", program], arguments].concat(), input)
}
