//! What the kernel can refuse, in words that say what to do.

use aya::{EbpfError, maps::MapError, programs::ProgramError};
use thiserror::Error;

use super::{object, offsets, pins};

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
