//! Attaches the programs that count: in, the loaded object and the pins; out, programs that run, and what of them could not.

use std::{
    fs::{self, File},
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
};

use aya::{
    Btf, Ebpf,
    programs::{
        BtfTracePoint, CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, ProgramError, ProgramFd, links::FdLink,
    },
};

use super::{KernelError, pins::Pins, program};
use crate::degradation::{Degradation, brief};

/// A program at a tracepoint.
struct Hook {
    program: &'static str,
    tracepoint: &'static str,
    /// What is missing without it; `None`: the agent cannot work without it.
    without: Option<&'static str>,
}

/// The programs at tracepoints, in the order in which they must be attached.
const HOOKS: &[Hook] = &[
    Hook {
        program: COUNTING,
        tracepoint: "inet_sock_set_state",
        without: None,
    },
    Hook {
        program: SKIPPED,
        tracepoint: "inet_sock_set_state",
        without: None,
    },
    Hook {
        program: "tcp_destroy_sock",
        tracepoint: "tcp_destroy_sock",
        without: Some(
            "a flow whose end was not seen is taken out of 'established' by the walk over open flows only, which comes once a \
             minute",
        ),
    },
    Hook {
        program: UNSERVED,
        tracepoint: "kfree_skb",
        without: Some("attempts that reach no pod are not counted"),
    },
];

/// The program that counts, whose link says that an agent like this one has counted here.
const COUNTING: &str = "inet_sock_set_state";
/// The program that handles what the one above was skipped for.
const SKIPPED: &str = "inet_sock_set_state_skipped";
/// The program that needs the kernel to tell why it drops packets.
const UNSERVED: &str = "kfree_skb";
/// The program that counts UDP. That of another object counts on until this one's is attached, or no endpoint needs it.
pub const UDP: &str = "cgroup_skb";

/// The pins, and the name of this object in them.
#[derive(Clone, Copy)]
pub struct Pinned<'a> {
    pub pins: &'a Pins,
    pub object: u64,
}

impl Pinned<'_> {
    /// Whether programs of this very object count here already.
    pub fn counts_already(&self) -> bool {
        self.pins.link(COUNTING, self.object).exists()
    }
}

/// Begins to count, with what does not yet run. A pinned program runs until its pin is removed.
pub fn attach(
    ebpf: &mut Ebpf,
    btf: &Btf,
    pinned: Option<Pinned<'_>>,
    tells_drop_reasons: bool,
) -> Result<Vec<Degradation>, KernelError> {
    let mut degradations = Vec::new();
    for hook in HOOKS {
        let result = if hook.program == UNSERVED && !tells_drop_reasons {
            Err("the kernel does not tell why it drops packets; Linux 5.18 and newer do".to_owned())
        } else {
            match attach_hook(ebpf, btf, hook, pinned) {
                Err(error) if hook.without.is_none() => return Err(error),
                result => result.map_err(|error| brief(&error)),
            }
        };
        if let (Err(error), Some(without)) = (result, hook.without) {
            degradations.push(Degradation {
                code: if hook.program == UNSERVED { "unserved" } else { "expiry" },
                sentence: format!("{without}: {error}"),
            });
        }
    }
    Ok(degradations)
}

fn attach_hook(ebpf: &mut Ebpf, btf: &Btf, hook: &Hook, pinned: Option<Pinned<'_>>) -> Result<(), KernelError> {
    if let Some(Pinned { pins, object }) = pinned
        && pins.link(hook.program, object).exists()
    {
        return Ok(());
    }
    let failed = |error| KernelError::Program {
        program: hook.program,
        error,
    };
    let program: &mut BtfTracePoint = program(ebpf, hook.program)?;
    program.load(hook.tracepoint, btf).map_err(failed)?;
    let link = program.attach().map_err(failed)?;
    if let Some(Pinned { pins, object }) = pinned {
        let path = pins.program(hook.program, object);
        if path.exists() {
            // Its agent died before it could keep the link.
            fs::remove_file(&path)?;
        }
        program.pin(path)?;
        let link: FdLink = program.take_link(link).map_err(failed)?.into();
        link.pin(pins.link(hook.program, object))?;
    }
    Ok(())
}

/// The program that counts UDP at the root of the cgroup hierarchy, attached or not.
#[derive(Debug, Default)]
pub struct UdpHook {
    /// Where the link is pinned; without pins it is held here.
    pin: Option<PathBuf>,
    link: Option<FdLink>,
    attached: bool,
    /// Links of the objects that this one replaces.
    others: Vec<PathBuf>,
}

impl UdpHook {
    /// As an agent before has left it.
    pub fn new(pinned: Option<Pinned<'_>>) -> Self {
        let pin = pinned.map(|Pinned { pins, object }| pins.link(UDP, object));
        Self {
            attached: pin.as_ref().is_some_and(|pin| pin.exists()),
            pin,
            link: None,
            others: pinned
                .and_then(|Pinned { pins, object }| pins.other_links(UDP, object).ok())
                .unwrap_or_default(),
        }
    }

    /// Attaches it, if it is not.
    pub fn attach(&mut self, ebpf: &mut Ebpf, cgroup_root: &Path) -> Result<(), KernelError> {
        if self.attached {
            return self.end_others();
        }
        let failed = |error| KernelError::Program { program: UDP, error };
        let root = File::open(cgroup_root)?;
        let program: &mut CgroupSkb = program(ebpf, UDP)?;
        match program.load() {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
            Err(error) => return Err(failed(error)),
        }
        let link = program
            // A link never excludes the programs of others, whatever the mode.
            .attach(&root, CgroupSkbAttachType::Ingress, CgroupAttachMode::Single)
            .and_then(|id| program.take_link(id))
            .map_err(failed)?;
        let link: FdLink = link.try_into()?;
        match &self.pin {
            Some(path) => {
                link.pin(path)?;
            }
            None => self.link = Some(link),
        }
        self.attached = true;
        // Both have counted for a moment: UDP_FLOWS lets only one count a flow.
        self.end_others()
    }

    fn end_others(&mut self) -> Result<(), KernelError> {
        for path in self.others.drain(..) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Detaches it, if it is attached.
    pub fn detach(&mut self) -> Result<(), KernelError> {
        if self.attached {
            if let Some(path) = &self.pin {
                fs::remove_file(path)?;
            }
            self.link = None;
            self.attached = false;
        }
        self.end_others()
    }
}

/// The program that counts, to ask how often the kernel has skipped it.
#[derive(Debug, Default)]
pub struct CountingProgram(Option<ProgramFd>);

impl CountingProgram {
    /// The one that runs now.
    pub fn running(ebpf: &Ebpf, pinned: Option<Pinned<'_>>) -> Self {
        match pinned {
            Some(Pinned { pins, object }) => Self::pinned(pins, object),
            None => Self(
                ebpf.program(COUNTING)
                    .and_then(|program| program.fd().ok()?.try_clone().ok()),
            ),
        }
    }

    fn pinned(pins: &Pins, object: u64) -> Self {
        let program = BtfTracePoint::from_pin(pins.program(COUNTING, object)).ok();
        Self(program.and_then(|program| program.fd().ok()?.try_clone().ok()))
    }

    /// How often, since it was loaded.
    pub fn skipped(&self) -> u64 {
        self.0.as_ref().map_or(0, |fd| misses(fd.as_fd().as_raw_fd()))
    }
}

/// The same for the objects that this one replaces.
pub fn skipped_before(Pinned { pins, object }: Pinned<'_>) -> u64 {
    let others = pins.other_objects(object).unwrap_or_default();
    let skipped = others
        .into_iter()
        .map(|other| CountingProgram::pinned(pins, other).skipped());
    skipped.sum()
}

/// `recursion_misses` of a program; 0 on kernels that do not count it.
fn misses(fd: i32) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")) else {
        return 0;
    };
    text.lines()
        .find_map(|line| line.strip_prefix("recursion_misses:"))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}
