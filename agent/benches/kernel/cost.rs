//! What programs cost by the kernel's own statistics: in, contenders; out, time per open and per close, round by round.

use std::{collections::BTreeMap, thread::sleep, time::Duration};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::{
    contender::{Contender, Setting},
    plan::Plan,
    programs::{self, Runs},
    progress::Progress,
};

/// Who is compared.
pub const CONTENDERS: [Contender; 5] = [
    Contender::Empty,
    Contender::Agent,
    Contender::AgentUnassigned,
    Contender::Tcplife,
    Contender::Bpftrace,
];

/// Time until all sockets of closed flows have gone through their states.
const SETTLE: Duration = Duration::from_millis(30);

/// What flows have cost one contender in one round.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Flows opened and closed.
    pub flows: u64,
    /// All its programs while flows opened.
    pub open: Runs,
    /// All its programs while flows closed.
    pub close: Runs,
    /// Each program, both together.
    pub programs: BTreeMap<String, Runs>,
}

impl Sample {
    /// Nanoseconds per open.
    pub fn open_ns(&self) -> f64 {
        self.open.ns as f64 / self.flows as f64
    }

    /// Nanoseconds per close.
    pub fn close_ns(&self) -> f64 {
        self.close.ns as f64 / self.flows as f64
    }

    /// Nanoseconds per flow, from open to close.
    pub fn flow_ns(&self) -> f64 {
        self.open_ns() + self.close_ns()
    }

    /// Nanoseconds per run of a program.
    pub fn event_ns(&self) -> f64 {
        let all = self.open.plus(self.close);
        all.ns as f64 / all.count as f64
    }

    /// Runs per flow.
    pub fn events(&self) -> f64 {
        self.open.plus(self.close).count as f64 / self.flows as f64
    }
}

/// All rounds, and why a peer is in none.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// One sample a contender and round.
    pub rounds: Vec<BTreeMap<Contender, Sample>>,
    /// Peers that could not be measured.
    pub failed: BTreeMap<Contender, String>,
}

/// Measures each contender once a round.
pub fn measure(setting: &Setting, plan: &Plan, progress: &Progress) -> Result<Cost> {
    let mut cost = Cost::default();
    for round in 0..plan.cost_rounds {
        let mut samples = BTreeMap::new();
        for turn in 0..CONTENDERS.len() {
            // Each is first once.
            let contender = CONTENDERS[(round + turn) % CONTENDERS.len()];
            let part = format!("cost of a flow, round {} of {}", round + 1, plan.cost_rounds);
            progress.step(&part, contender.label());
            if cost.failed.contains_key(&contender) {
                continue;
            }
            match sample(setting, plan, contender) {
                Ok(sample) => _ = samples.insert(contender, sample),
                Err(error) if contender.is_peer() => _ = cost.failed.insert(contender, format!("{error:#}")),
                Err(error) => return Err(error.context(contender.label())),
            }
        }
        cost.rounds.push(samples);
    }
    Ok(cost)
}

fn sample(setting: &Setting, plan: &Plan, contender: Contender) -> Result<Sample> {
    let mut running = setting.start(contender)?;
    let _statistics = programs::count_runs()?;
    // The first flows fill caches and make entries of maps that later ones find.
    drop(setting.servers.open(plan.cost_flows.min(500))?);
    sleep(SETTLE);
    let mut sample = Sample::default();
    let begin = running.runs()?;
    for _ in 0..plan.cost_cycles {
        let before = running.all_runs()?;
        let flows = setting.servers.open(plan.cost_flows)?;
        let open = running.all_runs()?;
        drop(flows);
        sleep(SETTLE);
        let close = running.all_runs()?;
        sample.flows += plan.cost_flows as u64;
        sample.open = sample.open.plus(open.since(before));
        sample.close = sample.close.plus(close.since(open));
    }
    running.check()?;
    for ((name, after), (_, before)) in running.runs()?.into_iter().zip(begin) {
        let runs: &mut Runs = sample.programs.entry(name).or_default();
        *runs = runs.plus(after.since(before));
    }
    Ok(sample)
}
