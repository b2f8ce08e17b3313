//! How many connections a machine makes: in, contenders; out, the rate with each of them and without anybody before and after,
//! round by round.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::{
    contender::{Contender, Setting},
    isolation,
    load::Done,
    plan::Plan,
    progress::Progress,
};

/// Who is compared.
pub const CONTENDERS: [Contender; 6] = [
    Contender::Nobody,
    Contender::Agent,
    Contender::AgentUnassigned,
    Contender::Tcplife,
    Contender::Bpftrace,
    Contender::Conntrack,
];

/// A load with somebody, between two without.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Connections per second with the contender.
    pub with: f64,
    /// Mean of those before and after.
    pub without: f64,
    /// Processor time of the load per connection with the contender, nanoseconds.
    pub cpu_with: f64,
    /// The same without.
    pub cpu_without: f64,
}

impl Sample {
    /// Connections per second, with to without.
    pub fn ratio(&self) -> f64 {
        self.with / self.without
    }

    /// Processor time per connection, with to without.
    pub fn cpu_ratio(&self) -> f64 {
        self.cpu_with / self.cpu_without
    }
}

/// All rounds, and why a peer is in none.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Rate {
    /// Threads of the load.
    pub threads: usize,
    /// One sample a contender and round.
    pub rounds: Vec<BTreeMap<Contender, Sample>>,
    /// Peers that could not be measured.
    pub failed: BTreeMap<Contender, String>,
}

/// Measures each contender once a round.
pub fn measure(setting: &Setting, plan: &Plan, progress: &Progress) -> Result<Rate> {
    let mut rate = Rate {
        threads: setting.servers.threads(),
        ..Rate::default()
    };
    for round in 0..plan.rate_rounds {
        let mut samples = BTreeMap::new();
        for turn in 0..CONTENDERS.len() {
            let contender = CONTENDERS[(round + turn) % CONTENDERS.len()];
            let part = format!("connections per second, round {} of {}", round + 1, plan.rate_rounds);
            progress.step(&part, contender.label());
            if rate.failed.contains_key(&contender) {
                continue;
            }
            match sample(setting, plan, contender) {
                Ok(sample) => _ = samples.insert(contender, sample),
                Err(error) if contender.is_peer() => _ = rate.failed.insert(contender, format!("{error:#}")),
                Err(error) => return Err(error.context(contender.label())),
            }
        }
        rate.rounds.push(samples);
    }
    Ok(rate)
}

fn sample(setting: &Setting, plan: &Plan, contender: Contender) -> Result<Sample> {
    let load = || -> Result<Done> {
        let done = setting.servers.run(plan.rate_slice)?;
        let (tracked, limit) = isolation::tracked()?;
        if tracked > limit / 10 * 9 {
            bail!("the kernel's connection tracking is nearly full ({tracked} of {limit}), which would slow the load");
        }
        Ok(done)
    };
    let before = load()?;
    let mut running = setting.start(contender)?;
    let with = load()?;
    running.check()?;
    drop(running);
    let after = load()?;
    let per_second = |done: Done| done.connections as f64 / done.elapsed.as_secs_f64();
    let cpu = |done: Done| done.cpu.as_nanos() as f64 / done.connections as f64;
    Ok(Sample {
        with: per_second(with),
        without: f64::midpoint(per_second(before), per_second(after)),
        cpu_with: cpu(with),
        cpu_without: f64::midpoint(cpu(before), cpu(after)),
    })
}
