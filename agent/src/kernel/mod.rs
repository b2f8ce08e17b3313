//! The kernel side, seen from user space: loads the programs, attaches them, takes up what is already open, reads counters.

use std::{
    collections::HashSet,
    io::Read,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aya::{
    Btf, Ebpf, EbpfError,
    maps::{Array, HashMap, LpmTrie, MapData, MapError, PerCpuArray, RingBuf, lpm_trie},
    programs::{Iter, ProgramError},
};
use flowskew_agent_ebpf::{Address, AgentMemory, LedgerKey, LedgerValue, WatchedKey, loss, source_class};
use thiserror::Error;

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
    #[error("cannot start the walk over open files: {0}")]
    Walk(#[from] aya::programs::links::LinkError),
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
    /// What could not be counted, since the programs were loaded.
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
}

/// The running programs and their maps. Dropping it ends those that are not pinned.
pub struct Kernel {
    ebpf: Ebpf,
    btf: Btf,
    ledger: HashMap<MapData, LedgerKey, LedgerValue>,
    losses: PerCpuArray<MapData, u64>,
    watched: HashMap<MapData, WatchedKey, u8>,
    classes: LpmTrie<MapData, Address, u8>,
    memory: Array<MapData, AgentMemory>,
    origin: Origin,
}

impl Kernel {
    /// How these counters began.
    pub fn origin(&self) -> Origin {
        self.origin
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
        self.walk("seed_listeners")?;
        self.walk("seed_flows")
    }

    /// Runs an iterator over all open files once.
    fn walk(&mut self, name: &'static str) -> Result<(), KernelError> {
        let program: &mut Iter = program(&mut self.ebpf, name)?;
        let link = program
            .load("task_file", &self.btf)
            .and_then(|()| program.attach())
            .and_then(|id| program.take_link(id))
            .map_err(|error| KernelError::Program { program: name, error })?;
        let mut file = link.into_file()?;
        // The programs print nothing; reading is what runs them.
        file.read_to_end(&mut Vec::new())?;
        program
            .unload()
            .map_err(|error| KernelError::Program { program: name, error })
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
        Ok(Snapshot {
            taken_at_ms: now_ms(),
            entries,
            losses: KernelLosses {
                ring_full: loss(loss::RING_FULL)?,
                flows_full: loss(loss::FLOWS_FULL)?,
                ledger_full: loss(loss::LEDGER_FULL)?,
                orphan_close: loss(loss::ORPHAN_CLOSE)?,
                orphan_flow: loss(loss::ORPHAN_FLOW)?,
            },
        })
    }

    /// Makes the programs tell the single flows of these endpoints, and of no others.
    pub fn watch(&mut self, endpoints: &HashSet<WatchedKey>) -> Result<(), KernelError> {
        let failed = |error| KernelError::Map { map: "WATCHED", error };
        let present: HashSet<WatchedKey> = self.watched.keys().collect::<Result<_, _>>().map_err(failed)?;
        for key in present.difference(endpoints) {
            self.watched.remove(key).map_err(failed)?;
        }
        for key in endpoints.difference(&present) {
            self.watched.insert(key, 1, 0).map_err(failed)?;
        }
        Ok(())
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

    /// Passes on the programs' own log, when it was asked for, until the agent ends.
    pub fn forward_log(&mut self) -> Result<(), KernelError> {
        log::forward(&mut self.ebpf)
    }
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
