//! Begins to count, or goes on where another agent has stopped: in, the object and what is pinned; out, programs that run
//! and their maps.

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{Array, Map, MapData},
};
use flowskew_agent_ebpf::AgentMemory;

use super::{
    Kernel, KernelError,
    attach::{self, CountingProgram, Pinned, UdpHook},
    now_ms, object,
    offsets::{self, Layout},
    pins::{self, Pins},
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
    "UDP_FLOWS",
    "FRONT_DOORS",
    "UNSERVED",
    "ATTEMPTS",
    "SETTINGS",
    "HANDLED",
    "DOORS",
    "DOOR_COVERAGE",
    MEMORY,
];
const MEMORY: &str = "MEMORY";

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
        let map_sizes = [sizes.max_flows, sizes.max_ledger, ring_bytes, sizes.max_udp_flows];
        // Programs that log are others than those that do not.
        let pinned = pins.map(|pins| Pinned {
            pins,
            object: pins::name_of(object) ^ u64::from(sizes.kernel_log),
        });

        let mut origin = Origin::Fresh;
        if let Some(pinned) = pinned {
            match remembered(pinned.pins) {
                Some(memory) if memory.sizes == map_sizes => {
                    origin = if pinned.counts_already() {
                        Origin::Adopted
                    } else {
                        Origin::Upgraded
                    };
                }
                Some(_) => {
                    pinned.pins.clear()?;
                    origin = Origin::Migrated;
                }
                None => pinned.pins.clear()?,
            }
        }
        let layout = offsets::resolve()?;
        let mut ebpf = load(object, sizes.kernel_log, map_sizes, page, pins, &layout)?;
        let degradations = attach::attach(&mut ebpf, &btf, pinned, layout.tells_drop_reasons)?;
        let mut skipped_before = 0;
        if let Some(pinned) = pinned {
            // Only now: until here the programs of an older agent have counted.
            skipped_before = attach::skipped_before(pinned);
            pinned.pins.remove_other_objects(pinned.object, attach::UDP)?;
            if pinned.pins.remove_other_versions()? && !origin.continues() {
                origin = Origin::Migrated;
            }
        }
        let mut kernel = Self {
            ledger: take_map(&mut ebpf, "LEDGER")?,
            flows: take_map(&mut ebpf, "FLOWS")?,
            udp_flows: take_map(&mut ebpf, "UDP_FLOWS")?,
            losses: take_map(&mut ebpf, "LOSSES")?,
            handled: take_map(&mut ebpf, "HANDLED")?,
            watched: take_map(&mut ebpf, "WATCHED")?,
            classes: take_map(&mut ebpf, "CLASSES")?,
            front_doors: take_map(&mut ebpf, "FRONT_DOORS")?,
            unserved: take_map(&mut ebpf, "UNSERVED")?,
            settings: take_map(&mut ebpf, "SETTINGS")?,
            memory: take_map(&mut ebpf, MEMORY)?,
            counting: CountingProgram::running(&ebpf, pinned),
            udp: UdpHook::new(pinned),
            cgroup_root: None,
            ebpf,
            btf,
            origin,
            degradations,
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
                ..AgentMemory::default()
            })?;
        } else if skipped_before > 0 {
            let mut memory = kernel.memory()?;
            memory.skipped_before += skipped_before;
            kernel.remember(memory)?;
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
    [max_flows, max_ledger, ring_bytes, max_udp_flows]: [u32; 4],
    page: u32,
    pins: Option<&Pins>,
    layout: &Layout,
) -> Result<Ebpf, KernelError> {
    lift_memory_limit();
    let log_level: u8 = if log { aya_log::Level::Debug as u8 } else { 0 };
    let mut loader = EbpfLoader::new();
    loader
        .map_max_entries("FLOWS", max_flows)
        .map_max_entries("LEDGER", max_ledger)
        .map_max_entries("EVENTS", ring_bytes)
        .map_max_entries("UDP_FLOWS", max_udp_flows)
        .override_global(aya_log::LEVEL, &log_level, true);
    if !log {
        loader.map_max_entries("AYA_LOGS", page);
    }
    for (global, value) in &layout.globals {
        loader.override_global(global, value, true);
    }
    if let Some(pins) = pins {
        for map in PINNED_MAPS {
            loader.map_pin_path(map, pins.map(map));
        }
    }
    Ok(loader.load(object)?)
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
