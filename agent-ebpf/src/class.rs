//! The source class of a client: in, its address; out, the class of the longest prefix that covers it.

use aya_ebpf::maps::lpm_trie;
use flowskew_agent_ebpf::{Address, source_class};

use crate::maps::CLASSES;

/// One of [`source_class`].
#[inline(always)]
pub fn class_of(client: Address) -> u8 {
    match CLASSES.get(lpm_trie::Key::new(128, client)) {
        Some(class) => *class,
        None => source_class::UNCLASSIFIED,
    }
}
