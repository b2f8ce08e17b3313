//! The programs' own log: in, records of the ring AYA_LOGS; out, lines of the agent's log. For debugging only.

use std::time::Duration;

use aya::Ebpf;
use aya_log::EbpfLogger;

use super::KernelError;

/// Starts a task that passes records on until the agent ends.
pub fn forward(ebpf: &mut Ebpf) -> Result<(), KernelError> {
    let mut logger = EbpfLogger::init(ebpf)?;
    tokio::spawn(async move {
        loop {
            logger.flush();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    Ok(())
}
