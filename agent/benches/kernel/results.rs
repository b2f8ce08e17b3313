//! All that was measured, and what is asked of it: in, rounds; out, figures, and goals that are met or not.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    contender::Contender,
    cost::{self, Cost},
    footprint::Footprint,
    machine::Machine,
    plan::Plan,
    rate::{self, Rate},
    statistics::{Figure, figure},
};

/// Our cost is at most this part of the cheaper peer's.
const COST_GOAL: f64 = 0.5;
/// Connections per second with the agent are at least this part of those without.
const RATE_GOAL: f64 = 0.97;

/// One figure of a sample, nanoseconds or a number of runs.
type CostOf = fn(&cost::Sample) -> f64;

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// Where.
    pub machine: Machine,
    /// How much.
    pub plan: Plan,
    /// Cost of the programs.
    pub cost: Cost,
    /// Connections per second.
    pub rate: Rate,
    /// What the agent needs.
    pub agent: Footprint,
}

/// Something that is asked of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Goal {
    /// In words.
    pub what: String,
    /// What it must be.
    pub limit: f64,
    /// Whether it must not be above that; else, not below.
    pub at_most: bool,
    /// What it is; nothing if it could not be measured.
    pub figure: Option<Figure>,
    /// Whether the median is within the limit; nothing if it could not be measured, or too shortly.
    pub met: Option<bool>,
}

/// Figures of one contender's programs, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CostFigures {
    /// Per open.
    pub open: Figure,
    /// Per close.
    pub close: Figure,
    /// Per flow.
    pub flow: Figure,
    /// Per run of a program.
    pub event: Figure,
    /// Runs per flow.
    pub events: Figure,
}

/// Figures of the rate with one contender.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RateFigures {
    /// Connections per second.
    pub per_second: Figure,
    /// To those without it.
    pub ratio: Figure,
    /// Processor time per connection, to that without it.
    pub cpu_ratio: Figure,
}

impl Results {
    /// Cost of a contender; nothing if it was not measured.
    pub fn cost_of(&self, contender: Contender) -> Option<CostFigures> {
        let of = |value: CostOf| figure(self.costs(contender).map(value));
        Some(CostFigures {
            open: of(cost::Sample::open_ns)?,
            close: of(cost::Sample::close_ns)?,
            flow: of(cost::Sample::flow_ns)?,
            event: of(cost::Sample::event_ns)?,
            events: of(cost::Sample::events)?,
        })
    }

    /// Runs and time of each program of a contender, all rounds together, per flow: (name, runs, nanoseconds).
    pub fn programs_of(&self, contender: Contender) -> Vec<(String, f64, f64)> {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut flows = 0;
        for sample in self.costs(contender) {
            flows += sample.flows;
            for (name, runs) in &sample.programs {
                let sum = sums.entry(name).or_default();
                *sum = (sum.0 + runs.count, sum.1 + runs.ns);
            }
        }
        let per_flow = |number: u64| number as f64 / flows as f64;
        sums.into_iter()
            .map(|(name, (count, ns))| (name.to_owned(), per_flow(count), per_flow(ns)))
            .collect()
    }

    /// The rate with a contender; nothing if it was not measured.
    pub fn rate_of(&self, contender: Contender) -> Option<RateFigures> {
        let samples = || self.rate.rounds.iter().filter_map(move |round| round.get(&contender));
        Some(RateFigures {
            per_second: figure(samples().map(|sample| sample.with))?,
            ratio: figure(samples().map(rate::Sample::ratio))?,
            cpu_ratio: figure(samples().map(rate::Sample::cpu_ratio))?,
        })
    }

    /// What is asked of the figures.
    pub fn goals(&self) -> Vec<Goal> {
        let phases: [(&str, CostOf); 3] = [
            ("an open", cost::Sample::open_ns),
            ("a close", cost::Sample::close_ns),
            ("a flow", cost::Sample::flow_ns),
        ];
        let mut goals: Vec<Goal> = phases
            .into_iter()
            .map(|(name, value)| {
                let figure = self.to_the_cheaper_peer(value);
                Goal {
                    what: format!("time of {name} in the agent's programs, to that in the cheaper peer's"),
                    limit: COST_GOAL,
                    at_most: true,
                    figure,
                    met: self.judge(figure, |median| median <= COST_GOAL),
                }
            })
            .collect();
        let figure = self.rate_of(Contender::Agent).map(|rate| rate.ratio);
        goals.push(Goal {
            what: "connections per second with the agent, to those without".into(),
            limit: RATE_GOAL,
            at_most: false,
            figure,
            met: self.judge(figure, |median| median >= RATE_GOAL),
        });
        goals
    }

    /// Rounds, figures and goals.
    pub fn to_json(&self, goals: &[Goal]) -> Result<Value> {
        let cost: BTreeMap<_, _> = cost::CONTENDERS
            .map(|contender| (contender, self.cost_of(contender)))
            .into();
        let rate: BTreeMap<_, _> = rate::CONTENDERS
            .map(|contender| (contender, self.rate_of(contender)))
            .into();
        Ok(json!({
            "goals": goals,
            "figures": { "cost_ns": cost, "rate": rate, "agent": self.agent },
            "machine": self.machine,
            "plan": self.plan,
            "rounds": { "cost": self.cost, "rate": self.rate },
        }))
    }

    fn costs(&self, contender: Contender) -> impl Iterator<Item = &cost::Sample> {
        self.cost.rounds.iter().filter_map(move |round| round.get(&contender))
    }

    /// The agent's cost to that of the cheaper peer of the same round; nothing if a peer is missing, as it may be the cheaper.
    fn to_the_cheaper_peer(&self, value: CostOf) -> Option<Figure> {
        figure(self.cost.rounds.iter().filter_map(|round| {
            let of = |contender| round.get(&contender).map(value);
            let cheaper = of(Contender::Tcplife)?.min(of(Contender::Bpftrace)?);
            Some(of(Contender::Agent)? / cheaper)
        }))
    }

    fn judge(&self, figure: Option<Figure>, within: impl Fn(f64) -> bool) -> Option<bool> {
        figure.filter(|_| !self.plan.quick).map(|figure| within(figure.median))
    }
}
