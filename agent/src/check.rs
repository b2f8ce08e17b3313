//! `flowskew-agent check`: says what this machine offers and what is missing, then tries to load and attach for real.

use std::{collections::HashSet, path::Path};

use comfy_table::{Table, presets};
use flowskew_agent_ebpf::{PROTOCOL_UDP, WatchedKey};

use crate::{
    config::MapSizes,
    degradation::{Degradation, brief},
    doors::{self, conntrack::Conntrack},
    kernel::{
        Kernel, KernelError,
        requirements::{self, State},
    },
    pods::Cgroups,
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
        match try_kernel() {
            Ok(less) => {
                table.add_row(["ok", "kernel programs", "they load, attach and count"]);
                for degradation in &less {
                    table.add_row(["less", degradation.code, &degradation.sentence]);
                }
            }
            Err(error) => {
                missing += 1;
                table.add_row(["MISSING", "kernel programs", &error.to_string()]);
            }
        }
    }
    println!("{table}");
    anyhow::ensure!(
        missing == 0,
        "the agent cannot run here: {missing} of the above missing"
    );
    Ok(())
}

/// Whether the programs run, and then what they cannot do here.
fn try_kernel() -> Result<Vec<Degradation>, KernelError> {
    let sizes = MapSizes {
        max_flows: 65_536,
        max_ledger: 4_096,
        ring_bytes: 4_096,
        max_udp_flows: 1_024,
        kernel_log: false,
    };
    let mut kernel = Kernel::start(&sizes, None)?;
    let mut less = Vec::new();
    let mut note = |code, meaning: &str, error: String| {
        less.push(Degradation {
            code,
            sentence: format!("{meaning}: {error}"),
        });
    };
    if let Err(error) = kernel.seed() {
        note(
            "seeding",
            "flows that are open at start are not found",
            error.to_string(),
        );
    }
    if let Err(error) = kernel.reconcile() {
        let meaning = "flows whose end was not seen stay, and silent UDP flows end only when their client speaks again";
        note("expiry", meaning, brief(&error));
    }
    match Cgroups::find(None) {
        Ok(cgroups) => kernel.set_cgroup_root(cgroups.root().to_owned()),
        Err(error) => less.push(error.degradation()),
    }
    // Nothing listens at port 0: this only attaches the program.
    kernel.watch(&HashSet::from([WatchedKey {
        address: [0; 16],
        port: 0,
        protocol: PROTOCOL_UDP,
        padding: 0,
    }]))?;
    less.extend_from_slice(kernel.degradations());
    if let Err(error) = Conntrack::open(Path::new("/proc/self/ns/net")) {
        less.push(Degradation {
            code: doors::DEGRADATION,
            sentence: format!("front doors are not looked up: {error}"),
        });
    }
    Ok(less)
}
