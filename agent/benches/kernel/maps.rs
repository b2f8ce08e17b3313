//! The maps of a running agent: in, its process id; out, an assignment or synthetic flows written into them from outside, and
//! their sizes. So the agent does all that it does in a cluster, without one.

use std::{collections::BTreeMap, fs, net::SocketAddrV4};

use anyhow::{Context, Result};
use aya::maps::{HashMap, LpmTrie, Map, MapData, MapInfo, lpm_trie::Key};
use flowskew_agent_ebpf::{Address, Flow, PROTOCOL_TCP, WatchedKey, source_class};

use crate::programs;

/// Nodes of the cluster whose prefixes are set.
const NODES: u8 = 27;

/// Watches the endpoints, and sets the prefixes of pods and nodes of a cluster.
pub fn assign(pid: u32, endpoints: impl Iterator<Item = SocketAddrV4>) -> Result<()> {
    let mut watched: HashMap<_, WatchedKey, u8> = Map::HashMap(open(pid, "WATCHED")?).try_into()?;
    for endpoint in endpoints {
        let key = WatchedKey {
            address: endpoint.ip().to_ipv6_mapped().octets(),
            port: endpoint.port(),
            protocol: PROTOCOL_TCP,
            padding: 0,
        };
        watched.insert(key, 1, 0).context("WATCHED")?;
    }
    let mut classes: LpmTrie<_, Address, u8> = Map::LpmTrie(open(pid, "CLASSES")?).try_into()?;
    let mapped = |octets: [u8; 4]| std::net::Ipv4Addr::from(octets).to_ipv6_mapped().octets();
    for node in 0..NODES {
        let prefixes = [
            (Key::new(96 + 24, mapped([10, 244, node, 0])), source_class::POD),
            (Key::new(128, mapped([192, 0, 2, node])), source_class::NODE),
        ];
        for (prefix, class) in prefixes {
            classes.insert(&prefix, class, 0).context("CLASSES")?;
        }
    }
    let everything = Key::new(0, [0; 16]);
    classes
        .insert(&everything, source_class::EXTERNAL, 0)
        .context("CLASSES")
}

/// Puts that many flows that do not exist into FLOWS.
pub fn fill(pid: u32, flows: u32) -> Result<()> {
    let mut map: HashMap<_, u64, [u8; size_of::<Flow>()]> = Map::HashMap(open(pid, "FLOWS")?).try_into()?;
    // No kernel socket has such an address.
    for key in 1..=u64::from(flows) {
        map.insert(key, [0; size_of::<Flow>()], 0)
            .with_context(|| format!("flow {key} does not fit into FLOWS"))?;
    }
    Ok(())
}

/// Number of entries of FLOWS.
pub fn flows(pid: u32) -> Result<u32> {
    let map: HashMap<_, u64, [u8; size_of::<Flow>()]> = Map::HashMap(open(pid, "FLOWS")?).try_into()?;
    let present = map.keys().filter(Result::is_ok).count();
    Ok(u32::try_from(present)?)
}

/// Bytes of each map, by the kernel's own account.
pub fn sizes(pid: u32) -> Result<BTreeMap<String, u64>> {
    let folder = format!("/proc/{pid}/fdinfo");
    let mut sizes = BTreeMap::new();
    for file in fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))? {
        // Files come and go.
        let Ok(text) = fs::read_to_string(file?.path()) else {
            continue;
        };
        let number = |name: &str| -> Option<u64> {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().parse().ok()
        };
        if let (Some(id), Some(bytes)) = (number("map_id"), number("memlock")) {
            let info = MapInfo::from_id(u32::try_from(id)?)?;
            sizes.insert(info.name_as_str().unwrap_or("?").to_owned(), bytes);
        }
    }
    Ok(sizes)
}

/// The map of that name that the process holds.
fn open(pid: u32, name: &'static str) -> Result<MapData> {
    for id in programs::ids(pid, "map_id") {
        if MapInfo::from_id(id)?.name_as_str() == Some(name) {
            return Ok(MapData::from_id(id)?);
        }
    }
    anyhow::bail!("the agent has no map {name}")
}
