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
    table
        .load_style(presets::NOTHING)
        .set_header(["", "what", "found, or what to do"]);
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
            Ok(Ok(())) => ("ok", "the programs load, attach and find open flows".to_owned()),
            Ok(Err(error)) => (
                "less",
                format!("they load and attach, but flows that are open at start are not found: {error}"),
            ),
            Err(error) => {
                missing += 1;
                ("MISSING", error.to_string())
            }
        };
        table.add_row([mark, "kernel programs", &text]);
    }
    println!("{table}");
    anyhow::ensure!(
        missing == 0,
        "the agent cannot run here: {missing} of the above missing"
    );
    Ok(())
}

/// Whether the programs run, and then whether they find open flows.
fn try_kernel() -> Result<Result<(), KernelError>, KernelError> {
    let sizes = MapSizes {
        max_flows: 65_536,
        max_ledger: 4_096,
        ring_bytes: 4_096,
        max_udp_flows: 1_024,
        kernel_log: false,
    };
    Ok(Kernel::start(&sizes, None)?.seed())
}
