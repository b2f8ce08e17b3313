//! The eBPF object that was built into this binary.

use thiserror::Error;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/flowskew-ebpf.o"));

/// This agent was built without its kernel programs.
#[derive(Debug, Error)]
#[error("this agent was built without its eBPF object: run `cargo xtask build-ebpf`, then build the agent again")]
pub struct NotBuiltIn;

/// The object's bytes.
pub fn embedded() -> Result<&'static [u8], NotBuiltIn> {
    if OBJECT.is_empty() { Err(NotBuiltIn) } else { Ok(OBJECT) }
}
