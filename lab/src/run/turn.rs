//! One run at a time on a machine. Agents see the sockets of all namespaces, and pods of two runs can have the same
//! addresses: each would count the flows of both.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::sleep;

use super::console::Console;
use crate::net;

const FOLDER: &str = "/run/flowskew-lab";
const LOCK: &str = "turn";
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Held while a run lasts; the kernel drops it with the process.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

/// Waits until no other run is alive, and removes what dead ones have left behind.
///
/// # Errors
/// Not root, or leftovers cannot be removed.
pub async fn take(console: &mut Console) -> Result<Turn> {
    let path = Path::new(FOLDER).join(LOCK);
    fs::create_dir_all(FOLDER).with_context(|| format!("cannot make {FOLDER}"))?;
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut told = false;
    loop {
        let free = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        };
        if free {
            let found = tokio::task::spawn_blocking(net::clean_stale)
                .await
                .context("cleaning up panicked")??;
            if !found.removed.is_empty() {
                console.step("Removed what an earlier run that was killed had left behind.");
            }
            if found.in_use.is_empty() {
                return Ok(Turn { _lock: file });
            }
            file.unlock()
                .with_context(|| format!("cannot unlock {}", path.display()))?;
        }
        if !told {
            console.step("Waiting for another run on this machine to end: agents would count its flows too.");
            told = true;
        }
        sleep(TRY_AGAIN_AFTER).await;
    }
}
