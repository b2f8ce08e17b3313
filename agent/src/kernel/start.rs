//! Begins to count, or goes on where another agent has stopped: in, the object and what is pinned; out, programs that run
//! and their maps.

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{Array, Map, MapData},
    programs::{BtfTracePoint, links::FdLink},
};
use flowskew_agent_ebpf::AgentMemory;

use super::{
    Kernel, KernelError, now_ms, object, offsets,
    pins::{self, Pins},
    program,
    requirements::{self, State},
    take_map,
};
use crate::config::MapSizes;

/// The maps that outlive an agent. The others serve the programs of one life only.
const PINNED_MAPS: &[&str] = &[
    "LEDGER",
    "FLOWS",
    "WATCHED",
    "CLASSES",
    "EVENTS",
    "LOSSES",
    "OVERFLOWED",
    MEMORY,
];
const MEMORY: &str = "MEMORY";
const PROGRAM: &str = "inet_sock_set_state";

/// How the counters of an agent began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From nothing: open flows have to be taken up.
    Fresh,
    /// The programs of an agent like this one have gone on counting: nothing is missing.
    Adopted,
    /// The programs of another version have gone on counting in maps like ours, and were replaced: nothing is missing.
    Upgraded,
    /// Another version of the records, or other sizes of the maps: counting began anew.
    Migrated,
}

impl Origin {
    /// One word, for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Adopted => "adopted",
            Self::Upgraded => "upgraded",
            Self::Migrated => "migrated",
        }
    }

    /// Whether the counters are those of the agent before.
    pub fn continues(self) -> bool {
        matches!(self, Self::Adopted | Self::Upgraded)
    }
}

impl Kernel {
    /// Checks the machine and counts from here on. With pins, what an agent before has left is taken over, and counting goes
    /// on when this process ends; without, it ends with it.
    pub fn start(sizes: &MapSizes, pins: Option<&Pins>) -> Result<Self, KernelError> {
        check_requirements()?;
        let object = object::embedded()?;
        let btf = Btf::from_sys_fs()?;
        let page = u32::try_from(rustix::param::page_size()).unwrap_or(4_096);
        let ring_bytes = sizes.ring_bytes.max(page).next_power_of_two();
        let map_sizes = [sizes.max_flows, sizes.max_ledger, ring_bytes];
        // Programs that log are others than those that do not.
        let name = pins::name_of(object) ^ u64::from(sizes.kernel_log);

        let mut origin = Origin::Fresh;
        if let Some(pins) = pins {
            match remembered(pins) {
                Some(memory) if memory.sizes == map_sizes => {
                    origin = if pins.link(name).exists() {
                        Origin::Adopted
                    } else {
                        Origin::Upgraded
                    };
                }
                Some(_) => {
                    pins.clear()?;
                    origin = Origin::Migrated;
                }
                None => pins.clear()?,
            }
        }
        let mut ebpf = load(object, sizes.kernel_log, map_sizes, page, pins)?;
        if origin != Origin::Adopted {
            attach(&mut ebpf, &btf, pins.map(|pins| (pins, name)))?;
        }
        if let Some(pins) = pins {
            // Only now: until here the programs of an older agent have counted.
            pins.remove_other_links(name)?;
            if pins.remove_other_versions()? {
                origin = Origin::Migrated;
            }
        }
        let mut kernel = Self {
            ledger: take_map(&mut ebpf, "LEDGER")?,
            losses: take_map(&mut ebpf, "LOSSES")?,
            watched: take_map(&mut ebpf, "WATCHED")?,
            classes: take_map(&mut ebpf, "CLASSES")?,
            memory: take_map(&mut ebpf, MEMORY)?,
            ebpf,
            btf,
            origin,
        };
        if !origin.continues() {
            let now = now_ms();
            kernel.remember(AgentMemory {
                // Two agents that start within one millisecond differ in their process id.
                epoch: now << 16 | u64::from(std::process::id() & 0xffff),
                epoch_started_at_ms: now,
                sequence: 0,
                seeded: 0,
                sizes: map_sizes,
            })?;
        }
        Ok(kernel)
    }
}

/// What the agent before has written down, if one has begun to count with these records.
fn remembered(pins: &Pins) -> Option<AgentMemory> {
    let map = MapData::from_pin(pins.map(MEMORY)).ok()?;
    let memory: Array<_, AgentMemory> = Map::Array(map).try_into().ok()?;
    memory.get(&0, 0).ok().filter(|memory| memory.epoch != 0)
}

fn load(
    object: &[u8],
    log: bool,
    [max_flows, max_ledger, ring_bytes]: [u32; 3],
    page: u32,
    pins: Option<&Pins>,
) -> Result<Ebpf, KernelError> {
    lift_memory_limit();
    let offsets = offsets::resolve()?;
    let log_level: u8 = if log { aya_log::Level::Debug as u8 } else { 0 };
    let mut loader = EbpfLoader::new();
    loader
        .map_max_entries("FLOWS", max_flows)
        .map_max_entries("LEDGER", max_ledger)
        .map_max_entries("EVENTS", ring_bytes)
        .override_global(aya_log::LEVEL, &log_level, true);
    if !log {
        loader.map_max_entries("AYA_LOGS", page);
    }
    for (global, offset) in &offsets {
        loader.override_global(global, offset, true);
    }
    if let Some(pins) = pins {
        for map in PINNED_MAPS {
            loader.map_pin_path(map, pins.map(map));
        }
    }
    Ok(loader.load(object)?)
}

/// Begins to count. A pinned link counts until its pin is removed.
fn attach(ebpf: &mut Ebpf, btf: &Btf, pin: Option<(&Pins, u64)>) -> Result<(), KernelError> {
    let program: &mut BtfTracePoint = program(ebpf, PROGRAM)?;
    let failed = |error| KernelError::Program {
        program: PROGRAM,
        error,
    };
    program.load(PROGRAM, btf).map_err(failed)?;
    let link = program.attach().map_err(failed)?;
    if let Some((pins, name)) = pin {
        let link: FdLink = program.take_link(link).map_err(failed)?.into();
        link.pin(pins.link(name))?;
    }
    Ok(())
}

fn check_requirements() -> Result<(), KernelError> {
    let mut missing = Vec::new();
    for requirement in requirements::all() {
        match requirement.state {
            State::Met(_) => {}
            State::Degraded(what) => tracing::warn!("{}: {what}", requirement.name),
            State::Missing(what) => missing.push(format!("  {}: {what}", requirement.name)),
        }
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(KernelError::Requirements(missing.join("\n")))
    }
}

/// Kernels before 5.11 count maps against the locked-memory limit.
fn lift_memory_limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    if let Err(error) = setrlimit(
        Resource::Memlock,
        Rlimit {
            current: None,
            maximum: None,
        },
    ) {
        tracing::debug!("cannot lift the locked-memory limit, which only kernels before 5.11 need: {error}");
    }
}
