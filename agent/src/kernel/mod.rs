//! The kernel side, seen from user space: loads the programs, attaches them, takes up what is already open, reads counters.

use std::{
    collections::HashSet,
    io::Read,
    os::fd::AsFd,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aya::{
    Btf, Ebpf,
    maps::{Array, HashMap, IterableMap, LpmTrie, MapData, MapError, PerCpuArray, RingBuf, lpm_trie},
    programs::{Iter, ProgramError},
};
use flowskew_agent_ebpf::{
    Address, AgentMemory, Flow, Handled, LedgerKey, LedgerValue, PROTOCOL_UDP, Settings, UdpFlow, UdpFlowKey,
    UnservedKey, WatchedKey, source_class,
};

use crate::{
    degradation::{Degradation, brief},
    doors,
};

mod attach;
mod batch;
mod error;
mod log;
pub mod object;
pub mod offsets;
pub mod pins;
pub mod requirements;
mod snapshot;
mod start;

pub use error::KernelError;
pub use snapshot::{KernelLosses, Snapshot};
pub use start::Origin;

/// The running programs and their maps. Dropping it ends those that are not pinned.
pub struct Kernel {
    ebpf: Ebpf,
    btf: Btf,
    ledger: HashMap<MapData, LedgerKey, LedgerValue>,
    flows: HashMap<MapData, u64, Flow>,
    udp_flows: HashMap<MapData, UdpFlowKey, UdpFlow>,
    losses: PerCpuArray<MapData, u64>,
    handled: PerCpuArray<MapData, Handled>,
    watched: HashMap<MapData, WatchedKey, u8>,
    classes: LpmTrie<MapData, Address, u8>,
    front_doors: HashMap<MapData, WatchedKey, u8>,
    unserved: HashMap<MapData, UnservedKey, u64>,
    settings: Array<MapData, Settings>,
    memory: Array<MapData, AgentMemory>,
    counting: attach::CountingProgram,
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
        for name in ["seed_listeners", "seed_flows"] {
            self.walk(name, "task_file")?;
            let program: &mut Iter = program(&mut self.ebpf, name)?;
            program
                .unload()
                .map_err(|error| KernelError::Program { program: name, error })?;
        }
        Ok(())
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

    /// Looks how often the kernel has skipped the counting programs.
    pub fn note_skipped(&mut self) -> Result<(), KernelError> {
        let memory = self.memory()?;
        // In this order: what was skipped until now has been taken when that is read.
        let skipped = memory.skipped_before + self.counting.skipped();
        let handled = self
            .handled
            .get(&0, 0)
            .map_err(|error| KernelError::Map { map: "HANDLED", error })?;
        let taken = handled.iter().map(|handled| handled.taken).sum();
        // What neither program has handled is lost; more can be taken meanwhile than was skipped before.
        let recursion = skipped.saturating_sub(taken).max(memory.recursion);
        self.remember(AgentMemory { recursion, ..memory })
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
            Some(root) => self.udp.attach(&mut self.ebpf, root).map_err(|error| brief(&error)),
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
        removed(self.ledger.remove(key)).map_err(|error| KernelError::Map { map: "LEDGER", error })
    }

    /// Forgets attempts at a place that is neither an endpoint nor a front door any more.
    pub fn forget_unserved(&mut self, key: &UnservedKey) -> Result<(), KernelError> {
        removed(self.unserved.remove(key)).map_err(|error| KernelError::Map { map: "UNSERVED", error })
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
                visit(&key.flow(flow));
            },
        )?;
        Ok(())
    }

    /// Passes on the programs' own log, when it was asked for, until the agent ends.
    pub fn forward_log(&mut self) -> Result<(), KernelError> {
        log::forward(&mut self.ebpf)
    }
}

/// What is not there need not be removed.
pub fn removed(result: Result<(), MapError>) -> Result<(), MapError> {
    match result {
        Err(MapError::SyscallError(error)) if error.io_error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Makes a map hold these keys and no others.
fn replace_keys(map: &mut HashMap<MapData, WatchedKey, u8>, keys: &HashSet<WatchedKey>) -> Result<(), MapError> {
    let present: HashSet<WatchedKey> = map.keys().collect::<Result<_, _>>()?;
    for key in present.difference(keys) {
        removed(map.remove(key))?;
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
