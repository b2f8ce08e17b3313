//! How much is measured: in, the wish of the caller; out, numbers of rounds, flows and seconds. All are bounded here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Sample sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// One short sample of each figure.
    pub quick: bool,
    /// Rounds in which the programs' cost is measured; each contender once a round.
    pub cost_rounds: usize,
    /// In each: how often flows are opened together, held and closed together.
    pub cost_cycles: usize,
    /// Flows that are open at once. tcplife has room for 10,240 sockets, and on loopback each flow has two.
    pub cost_flows: usize,
    /// Rounds in which the rate of connections is measured.
    pub rate_rounds: usize,
    /// Length of one measurement of the rate.
    pub rate_slice: Duration,
    /// How long the agent's processor time is measured, idle and under load.
    pub agent_load: Duration,
    /// Entries put into FLOWS to measure memory.
    pub tracked: Vec<u32>,
}

impl Plan {
    /// The plan for a short or a full run. `rounds` replaces the number of rounds.
    pub fn new(quick: bool, rounds: Option<usize>) -> Self {
        let rounds = rounds.map(|rounds| rounds.clamp(1, 200));
        let tracked = vec![0, 100_000, 1_000_000];
        if quick {
            Self {
                quick,
                cost_rounds: rounds.unwrap_or(1),
                cost_cycles: 1,
                cost_flows: 500,
                rate_rounds: rounds.unwrap_or(1),
                rate_slice: Duration::from_millis(250),
                agent_load: Duration::from_secs(1),
                tracked,
            }
        } else {
            Self {
                quick,
                cost_rounds: rounds.unwrap_or(15),
                cost_cycles: 5,
                cost_flows: 4_000,
                rate_rounds: rounds.unwrap_or(15),
                rate_slice: Duration::from_secs(1),
                agent_load: Duration::from_secs(10),
                tracked,
            }
        }
    }

    /// Steps that are shown as progress.
    pub fn steps(&self) -> usize {
        use crate::{cost, footprint, rate};
        self.cost_rounds * cost::CONTENDERS.len()
            + self.rate_rounds * rate::CONTENDERS.len()
            + footprint::LOADS.len()
            + self.tracked.len()
    }
}
