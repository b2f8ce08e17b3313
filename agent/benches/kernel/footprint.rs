//! What an agent needs: in, a load, or a number of open flows; out, processor time and memory.

use std::{collections::BTreeMap, fs, thread::sleep, time::Duration};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{
    contender::{Contender, Setting},
    maps,
    plan::Plan,
    programs,
    progress::Progress,
};

/// The agent as it is under load, and without an assignment.
pub const LOADS: [Contender; 2] = [Contender::Agent, Contender::AgentUnassigned];

/// Processor time of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Connections made.
    pub connections: u64,
    /// Over that many seconds.
    pub seconds: f64,
    /// Process, milliseconds per 10,000 connections, with what it does anyway.
    pub process_ms: f64,
    /// Process, milliseconds per second without connections.
    pub idle_ms: f64,
    /// Kernel programs, milliseconds per 10,000 connections.
    pub programs_ms: f64,
}

/// Memory of an agent with open flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Entries put into FLOWS.
    pub flows: u32,
    /// Entries that were there at the end.
    pub flows_at_end: u32,
    /// Entries that FLOWS has room for.
    pub max_flows: u32,
    /// Bytes of FLOWS without entries.
    pub empty_bytes: u64,
    /// Bytes of FLOWS with them.
    pub flows_bytes: u64,
    /// Bytes of each map at the end.
    pub maps: BTreeMap<String, u64>,
    /// Resident bytes of the process.
    pub resident: u64,
    /// Of it, what is not backed by files.
    pub anonymous: u64,
    /// Most that it ever had.
    pub peak_resident: u64,
    /// By how much the machine's available memory went down, with whatever else happened on it.
    pub machine: i64,
}

impl Memory {
    /// Bytes of FLOWS for each flow.
    pub fn per_flow(&self) -> Option<f64> {
        let bytes = self.flows_bytes.saturating_sub(self.empty_bytes);
        (self.flows > 0).then(|| bytes as f64 / f64::from(self.flows))
    }

    /// Bytes of all maps.
    pub fn all_maps(&self) -> u64 {
        self.maps.values().sum()
    }
}

/// What an agent needs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Footprint {
    /// Processor time.
    pub work: BTreeMap<Contender, Work>,
    /// Memory, by ascending number of flows.
    pub memory: Vec<Memory>,
}

/// Measures both.
pub fn measure(setting: &Setting, plan: &Plan, progress: &Progress) -> Result<Footprint> {
    let mut footprint = Footprint::default();
    for contender in LOADS {
        progress.step("processor time of the agent", contender.label());
        footprint.work.insert(contender, work(setting, plan, contender)?);
    }
    for &flows in &plan.tracked {
        progress.step("memory of the agent", &format!("{flows} flows"));
        footprint.memory.push(memory(setting, flows)?);
    }
    Ok(footprint)
}

fn work(setting: &Setting, plan: &Plan, contender: Contender) -> Result<Work> {
    let mut running = setting.start(contender)?;
    let idle_from = programs::process_cpu(running.pid)?;
    sleep(plan.agent_load);
    let from = programs::process_cpu(running.pid)?;
    let statistics = programs::count_runs()?;
    let before = running.all_runs()?;
    let done = setting.servers.run(plan.agent_load)?;
    let runs = running.all_runs()?.since(before);
    drop(statistics);
    // For what it still has to read.
    sleep(Duration::from_millis(200));
    let process = programs::process_cpu(running.pid)?.saturating_sub(from);
    running.check()?;
    let tens_of_thousands = done.connections as f64 / 10_000.0;
    Ok(Work {
        connections: done.connections,
        seconds: done.elapsed.as_secs_f64(),
        process_ms: process.as_secs_f64() * 1e3 / tens_of_thousands,
        idle_ms: from.saturating_sub(idle_from).as_secs_f64() * 1e3 / plan.agent_load.as_secs_f64(),
        programs_ms: runs.ns as f64 / 1e6 / tens_of_thousands,
    })
}

fn memory(setting: &Setting, flows: u32) -> Result<Memory> {
    let max_flows = flows.next_power_of_two().max(262_144);
    let available = kilobytes("/proc/meminfo", "MemAvailable")?;
    let maximum = max_flows.to_string();
    let arguments = ["--max-flows", &maximum, "--report-interval", "500ms"];
    let mut running = setting.start_with(Contender::Agent, &arguments)?;
    let empty = maps::sizes(running.pid)?;
    maps::fill(running.pid, flows)?;
    let filled = maps::sizes(running.pid)?;
    // So that it has read its maps a few times.
    sleep(Duration::from_secs(2));
    let status = format!("/proc/{}/status", running.pid);
    let memory = Memory {
        flows,
        flows_at_end: maps::flows(running.pid)?,
        max_flows,
        empty_bytes: *empty.get("FLOWS").context("the agent has no map FLOWS")?,
        flows_bytes: *filled.get("FLOWS").context("the agent has no map FLOWS")?,
        maps: filled,
        resident: kilobytes(&status, "VmRSS")?,
        anonymous: kilobytes(&status, "RssAnon")?,
        peak_resident: kilobytes(&status, "VmHWM")?,
        machine: i64::try_from(available)? - i64::try_from(kilobytes("/proc/meminfo", "MemAvailable")?)?,
    };
    running.check()?;
    Ok(memory)
}

/// Bytes of a line such as `VmRSS:  1234 kB`.
fn kilobytes(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let number = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix(" kB"))
        .with_context(|| format!("{path} does not tell {name}"))?;
    Ok(number
        .trim()
        .parse::<u64>()
        .with_context(|| format!("{path}: {name}"))?
        * 1_024)
}
