//! The kernel side, seen from user space: loads the programs, attaches them, takes up what is already open, reads counters.

use std::{
    collections::HashSet,
    io::Read,
    os::fd::AsFd,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aya::{
    Btf, Ebpf, EbpfError,
    maps::{Array, HashMap, IterableMap, LpmTrie, MapData, MapError, PerCpuArray, RingBuf, lpm_trie},
    programs::{Iter, ProgramError},
};
use flowskew_agent_ebpf::{
    Address, AgentMemory, Flow, LedgerKey, LedgerValue, PROTOCOL_UDP, Settings, UdpFlow, UdpFlowKey, UnservedKey,
    WatchedKey, loss, source_class,
};
use thiserror::Error;

use crate::{degradation::Degradation, doors};

mod attach;
mod batch;
mod log;
pub mod object;
pub mod offsets;
pub mod pins;
pub mod requirements;
mod start;

pub use start::Origin;

/// Something that the kernel refused.
#[derive(Debug, Error)]
pub enum KernelError {
    /// What the agent cannot work without; each with its remedy.
    #[error("this machine lacks what the agent needs:\n{0}")]
    Requirements(String),
    /// Built without the kernel programs.
    #[error(transparent)]
    NotBuiltIn(#[from] object::NotBuiltIn),
    /// A field that the programs read is not known.
    #[error(transparent)]
    Offset(#[from] offsets::OffsetError),
    /// The object or a map was refused.
    #[error("the kernel refused the eBPF object: {0}")]
    Load(#[from] EbpfError),
    /// A program was refused.
    #[error("the kernel refused the program {program}: {error}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// What the kernel said.
        error: ProgramError,
    },
    /// The object has not what this agent expects: they were built from different sources.
    #[error("the eBPF object has no {0}: build it again with `cargo xtask build-ebpf`")]
    Absent(&'static str),
    /// An iterator could not be started.
    #[error("cannot use the link of a program: {0}")]
    Link(#[from] aya::programs::links::LinkError),
    /// What should outlive the agent could not be kept.
    #[error(transparent)]
    Pins(#[from] pins::PinError),
    /// The link of a program could not be kept.
    #[error("cannot pin the link of the eBPF program: {0}")]
    PinLink(#[from] aya::pin::PinError),
    /// A map could not be read or written.
    #[error("map {map}: {error}")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// What the kernel said.
        error: MapError,
    },
    /// The kernel's BTF could not be read by the loader.
    #[error("cannot read the kernel's type information: {0}")]
    Btf(#[from] aya::BtfError),
    /// The programs' log could not be read.
    #[error("cannot read the log of the eBPF programs: {0}")]
    Log(#[from] aya_log::Error),
    /// An iterator or a ring could not be read.
    #[error("cannot read from the kernel: {0}")]
    Read(#[from] std::io::Error),
}

/// The counters of the node at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// Wall clock, milliseconds since 1970.
    pub taken_at_ms: u64,
    /// One entry for each local address, port and cgroup; order does not matter.
    pub entries: Vec<(LedgerKey, LedgerValue)>,
    /// Attempts that reached no pod, since the epoch began.
    pub unserved: Vec<(UnservedKey, u64)>,
    /// What could not be counted, since the epoch began.
    pub losses: KernelLosses,
}

/// Losses that the kernel programs counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelLosses {
    /// Events that found the ring full.
    pub ring_full: u64,
    /// Flows that found FLOWS full.
    pub flows_full: u64,
    /// Flows that found LEDGER full.
    pub ledger_full: u64,
    /// Closes of flows that FLOWS did not hold.
    pub orphan_close: u64,
    /// Flows whose end was not seen when it happened.
    pub orphan_flow: u64,
    /// Flows that a walk over FLOWS found gone.
    pub corrected: u64,
    /// Attempts that reached no pod and found no room to be counted.
    pub unserved_full: u64,
    /// Datagrams of flows that found UDP_FLOWS full.
    pub udp_flows_full: u64,
    /// Steps of sockets that the kernel may have kept from the programs: at most this many.
    pub recursion: u64,
}

/// The running programs and their maps. Dropping it ends those that are not pinned.
pub struct Kernel {
    ebpf: Ebpf,
    btf: Btf,
    ledger: HashMap<MapData, LedgerKey, LedgerValue>,
    flows: HashMap<MapData, u64, Flow>,
    udp_flows: HashMap<MapData, UdpFlowKey, UdpFlow>,
    losses: PerCpuArray<MapData, u64>,
    watched: HashMap<MapData, WatchedKey, u8>,
    classes: LpmTrie<MapData, Address, u8>,
    front_doors: HashMap<MapData, WatchedKey, u8>,
    unserved: HashMap<MapData, UnservedKey, u64>,
    settings: Array<MapData, Settings>,
    memory: Array<MapData, AgentMemory>,
    counting: attach::CountingPrograms,
    udp: attach::UdpHook,
    cgroup_root: Option<PathBuf>,
    origin: Origin,
    degradations: Vec<Degradation>,
}

impl Kernel {
    /// How these counters began.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// What the kernel does not offer here.
    pub fn degradations(&self) -> &[Degradation] {
        &self.degradations
    }

    /// Tells the programs what they go by.
    pub fn set(&mut self, settings: Settings) -> Result<(), KernelError> {
        self.settings
            .set(0, settings, 0)
            .map_err(|error| KernelError::Map { map: "SETTINGS", error })
    }

    /// What has to be known of this life of the counters.
    pub fn memory(&self) -> Result<AgentMemory, KernelError> {
        self.memory
            .get(&0, 0)
            .map_err(|error| KernelError::Map { map: "MEMORY", error })
    }

    /// Writes it down for the agent after this one.
    pub fn remember(&mut self, memory: AgentMemory) -> Result<(), KernelError> {
        self.memory
            .set(0, memory, 0)
            .map_err(|error| KernelError::Map { map: "MEMORY", error })
    }

    /// Takes up the flows that are already open, as established but never as opened. Safe to call while flows open and
    /// close; flows that are known are left alone.
    pub fn seed(&mut self) -> Result<(), KernelError> {
        self.walk("seed_listeners", "task_file")?;
        self.walk("seed_flows", "task_file")
    }

    /// Takes flows out of the gauge whose sockets are gone though nobody saw it, and counts them as corrected.
    pub fn reconcile(&mut self) -> Result<(), KernelError> {
        self.walk("reconcile", "bpf_map")
    }

    /// Closes the UDP flows that have been silent for the idle time.
    pub fn expire(&mut self) -> Result<(), KernelError> {
        self.walk("expire", "bpf_map")
    }

    /// Runs an iterator once.
    fn walk(&mut self, name: &'static str, over: &'static str) -> Result<(), KernelError> {
        let program: &mut Iter = program(&mut self.ebpf, name)?;
        let failed = |error| KernelError::Program { program: name, error };
        match program.load(over, &self.btf) {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
            Err(error) => return Err(failed(error)),
        }
        let link = program.attach().and_then(|id| program.take_link(id)).map_err(failed)?;
        let mut file = link.into_file()?;
        // The programs print nothing; reading is what runs them.
        file.read_to_end(&mut Vec::new())?;
        Ok(())
    }

    /// Reads all counters.
    pub fn snapshot(&self) -> Result<Snapshot, KernelError> {
        let mut entries = Vec::new();
        for entry in self.ledger.iter() {
            entries.push(entry.map_err(|error| KernelError::Map { map: "LEDGER", error })?);
        }
        let loss = |index| -> Result<u64, KernelError> {
            let values = self
                .losses
                .get(&index, 0)
                .map_err(|error| KernelError::Map { map: "LOSSES", error })?;
            Ok(values.iter().sum())
        };
        let mut unserved = Vec::new();
        for entry in self.unserved.iter() {
            unserved.push(entry.map_err(|error| KernelError::Map { map: "UNSERVED", error })?);
        }
        Ok(Snapshot {
            taken_at_ms: now_ms(),
            entries,
            unserved,
            losses: KernelLosses {
                ring_full: loss(loss::RING_FULL)?,
                flows_full: loss(loss::FLOWS_FULL)?,
                ledger_full: loss(loss::LEDGER_FULL)?,
                orphan_close: loss(loss::ORPHAN_CLOSE)?,
                orphan_flow: loss(loss::ORPHAN_FLOW)?,
                corrected: loss(loss::CORRECTED)?,
                unserved_full: loss(loss::UNSERVED_FULL)?,
                udp_flows_full: loss(loss::UDP_FLOWS_FULL)?,
                recursion: self.memory()?.skipped_before + self.counting.skipped(),
            },
        })
    }

    /// Where the program that counts UDP is attached when it is needed: the sockets of this cgroup and those below.
    pub fn set_cgroup_root(&mut self, root: PathBuf) {
        self.cgroup_root = Some(root);
    }

    /// Makes the programs tell the single flows of these endpoints, and of no others. UDP is counted while one of them is of
    /// UDP.
    pub fn watch(&mut self, endpoints: &HashSet<WatchedKey>) -> Result<(), KernelError> {
        replace_keys(&mut self.watched, endpoints).map_err(|error| KernelError::Map { map: "WATCHED", error })?;
        self.degradations.retain(|known| known.code != "udp");
        let wants_udp = endpoints.iter().any(|endpoint| endpoint.protocol == PROTOCOL_UDP);
        if !wants_udp {
            return self.udp.detach();
        }
        let attached = match &self.cgroup_root {
            Some(root) => self.udp.attach(&mut self.ebpf, root).map_err(|error| error.to_string()),
            None => Err("no cgroup v2 hierarchy is mounted; name one with --cgroup-root".to_owned()),
        };
        if let Err(error) = attached {
            self.degradations.push(Degradation {
                code: "udp",
                sentence: format!("the flows of UDP endpoints are not counted: {error}"),
            });
        }
        Ok(())
    }

    /// Makes the programs count attempts at these addresses and ports that the node's rules drop, and at no others.
    pub fn set_front_doors(&mut self, doors: &HashSet<WatchedKey>) -> Result<(), KernelError> {
        replace_keys(&mut self.front_doors, doors).map_err(|error| KernelError::Map {
            map: "FRONT_DOORS",
            error,
        })
    }

    /// Makes the programs class clients by these prefixes, and all others as external.
    pub fn classify(&mut self, prefixes: &std::collections::HashMap<(Address, u32), u8>) -> Result<(), KernelError> {
        let failed = |error| KernelError::Map { map: "CLASSES", error };
        let everything = lpm_trie::Key::new(0, [0; 16]);
        let mut stale = Vec::new();
        let mut present = std::collections::HashMap::new();
        for entry in self.classes.iter() {
            let (key, class) = entry.map_err(failed)?;
            if prefixes.contains_key(&(key.data(), key.prefix_len())) || key.prefix_len() == 0 {
                present.insert((key.data(), key.prefix_len()), class);
            } else {
                stale.push(key);
            }
        }
        for (prefix, class) in prefixes {
            if present.get(prefix) != Some(class) {
                self.classes
                    .insert(&lpm_trie::Key::new(prefix.1, prefix.0), class, 0)
                    .map_err(failed)?;
            }
        }
        // Last, so that no client of a pod is taken for external in between.
        self.classes
            .insert(&everything, source_class::EXTERNAL, 0)
            .map_err(failed)?;
        for key in stale {
            self.classes.remove(&key).map_err(failed)?;
        }
        Ok(())
    }

    /// The stream of single flows. Can be taken once.
    pub fn take_events(&mut self) -> Result<RingBuf<MapData>, KernelError> {
        take_map(&mut self.ebpf, "EVENTS")
    }

    /// Where flows by front door are kept. Can be taken once.
    pub fn take_door_memory(&mut self) -> Result<doors::memory::Maps, KernelError> {
        Ok(doors::memory::Maps {
            doors: take_map(&mut self.ebpf, "DOORS")?,
            coverage: take_map(&mut self.ebpf, "DOOR_COVERAGE")?,
        })
    }

    /// Forgets the counters of a key. Only for keys that no socket can count on any more.
    pub fn forget(&mut self, key: &LedgerKey) -> Result<(), KernelError> {
        match self.ledger.remove(key) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(KernelError::Map { map: "LEDGER", error }),
        }
    }

    /// Calls `visit` with each open flow that is tracked, of TCP and UDP.
    pub fn visit_flows(&self, visit: &mut dyn FnMut(&Flow)) -> Result<(), KernelError> {
        batch::visit(
            IterableMap::map(&self.flows).fd().as_fd(),
            &mut |_: &u64, flow: &Flow| visit(flow),
        )?;
        batch::visit(
            IterableMap::map(&self.udp_flows).fd().as_fd(),
            &mut |key: &UdpFlowKey, flow: &UdpFlow| {
                visit(&Flow {
                    key: key.key,
                    client: key.client,
                    opened_at_ns: flow.opened_at_ns,
                    client_port: key.client_port,
                    source_class: flow.source_class,
                    padding: [0; 5],
                });
            },
        )?;
        Ok(())
    }

    /// Passes on the programs' own log, when it was asked for, until the agent ends.
    pub fn forward_log(&mut self) -> Result<(), KernelError> {
        log::forward(&mut self.ebpf)
    }
}

/// Makes a map hold these keys and no others.
fn replace_keys(map: &mut HashMap<MapData, WatchedKey, u8>, keys: &HashSet<WatchedKey>) -> Result<(), MapError> {
    let present: HashSet<WatchedKey> = map.keys().collect::<Result<_, _>>()?;
    for key in present.difference(keys) {
        map.remove(key)?;
    }
    for key in keys.difference(&present) {
        map.insert(key, 1, 0)?;
    }
    Ok(())
}

fn take_map<T>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, KernelError>
where
    T: TryFrom<aya::maps::Map, Error = MapError>,
{
    let map = ebpf.take_map(name).ok_or(KernelError::Absent(name))?;
    map.try_into().map_err(|error| KernelError::Map { map: name, error })
}

fn program<'a, T>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut T, KernelError>
where
    &'a mut T: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or(KernelError::Absent(name))?;
    program
        .try_into()
        .map_err(|error| KernelError::Program { program: name, error })
}

/// Wall clock, milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
