//! The kernel's counters at one moment: in, the maps; out, plain values.

use flowskew_agent_ebpf::{LedgerKey, LedgerValue, UnservedKey, loss};

use super::{Kernel, KernelError, now_ms};

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
    /// Steps of sockets that the kernel has kept from both programs that count: each may be an open or a close.
    pub recursion: u64,
}

impl Kernel {
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
                recursion: self.memory()?.recursion,
            },
        })
    }
}
