//! `flowskew-agent cleanup`: ends what agents have left counting in the kernel.

use crate::{config::PinConfig, kernel::pins};

/// Removes all pins. Fails when an agent runs, which would lose its counters.
pub fn run(config: &PinConfig) -> anyhow::Result<()> {
    let removed = pins::clean_up(&config.pin_dir)?;
    println!("{}: {removed} pins removed", config.pin_dir.display());
    Ok(())
}
