//! What the agent tells the programs while they run.

/// The one value of SETTINGS.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// A UDP flow that is silent for so long is closed; nanoseconds.
    pub udp_idle_ns: u64,
    /// Inode of the node's network namespace: what netfilter drops elsewhere is none of the node's.
    pub node_netns: u32,
    /// Zero.
    pub padding: u32,
}

const _: () = assert!(size_of::<Settings>() == 16);

#[cfg(feature = "user")]
// SAFETY: repr(C), made of integers with explicit padding: every bit pattern is valid.
unsafe impl aya::Pod for Settings {}
