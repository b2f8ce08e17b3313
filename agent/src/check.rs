//! `flowskew-agent check`: says what this machine offers and what is missing, then tries to load and attach for real.

use comfy_table::{Table, presets};

use crate::{
    config::MapSizes,
    kernel::{
        Kernel, KernelError,
        requirements::{self, State},
    },
};

/// Prints the table. Fails when the agent cannot run here.
pub fn run() -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["", "what", "found, or what to do"]);
    let requirements = requirements::all();
    let mut missing = 0;
    for requirement in &requirements {
        let (mark, text) = match &requirement.state {
            State::Met(text) => ("ok", text),
            State::Degraded(text) => ("less", text),
            State::Missing(text) => {
                missing += 1;
                ("MISSING", text)
            }
        };
        table.add_row([mark, requirement.name, text]);
    }
    if missing == 0 {
        let (mark, text) = match try_kernel() {
            Ok(()) => ("ok", "the programs load, attach and find open flows".to_owned()),
            Err(error) => {
                missing += 1;
                ("MISSING", error.to_string())
            }
        };
        table.add_row([mark, "kernel programs", &text]);
    }
    println!("{table}");
    anyhow::ensure!(missing == 0, "the agent cannot run here: {missing} of the above missing");
    Ok(())
}

fn try_kernel() -> Result<(), KernelError> {
    let sizes = MapSizes { max_flows: 65_536, max_ledger: 4_096, ring_bytes: 4_096, kernel_log: false };
    Kernel::start(&sizes, None)?.seed()
}
