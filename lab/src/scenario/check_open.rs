//! What an `open` step of a scenario file must be to what exists when it is played. Part of `check`.

use serde_saphyr::{Location, Spanned};

use super::check::{Player, one_of};
use super::open::{KillAgents, MAX_FLOWS, MAX_FLOWS_IN_ALL, MAX_FLOWS_PER_CLIENT, Open, Order};
use crate::net::Protocol;

impl Player {
    pub(super) fn open(&mut self, at: Location, open: &Open) {
        self.groups.insert(open.group.clone());
        self.number(at, open);
        if let Some(to) = &open.to
            && !self.services.contains(&to.value)
            && !self.processes.contains_key(&to.value)
        {
            let known = one_of(self.services.iter().chain(self.processes.keys()));
            let message = format!("open.to: there is no Service and no process '{}'; {known}", to.value);
            self.problem(to.referenced, message);
        }
        if let Some(every) = &open.datagram_every
            && self.protocol != Protocol::Udp
        {
            self.problem(
                every.referenced,
                "open.datagram_every: needs a Service with `protocol: UDP`",
            );
        }
        if let Some(seed) = &open.seed
            && open.order == Order::InTurn
        {
            self.problem(seed.referenced, "open.seed: needs `order: shuffled` or `order: random`");
        }
        if let Some(reconnect) = &open.reconnect
            && reconnect.value.min > reconnect.value.max
        {
            self.problem(reconnect.referenced, "open.reconnect: min must not be longer than max");
        }
        if let Some(kills) = &open.kill_agents {
            self.kill_agents(open, kills);
        }
    }

    fn number(&mut self, at: Location, open: &Open) {
        match (open.flows, &open.time) {
            (Some(_), None) => {}
            (None, Some(time)) => {
                if open.rate.is_none() || open.lifetime.is_none() {
                    self.problem(time.referenced, "open.for: needs `rate` and `lifetime`");
                    return;
                }
            }
            _ => {
                self.problem(at, "open: either `flows` or `for` is needed");
                return;
            }
        }
        let held = open.held();
        if held > MAX_FLOWS {
            let message = format!("open: {held} flows would be open at one time, more than {MAX_FLOWS}");
            self.problem(at, message);
        }
        self.flows += held;
        if self.flows > MAX_FLOWS_IN_ALL {
            self.problem(
                at,
                format!("open: the flows of all together are more than {MAX_FLOWS_IN_ALL}"),
            );
        }
        let busiest = held.div_ceil(open.clients.get());
        let shared = open
            .nat
            .map_or(0, |nat| (held * nat.percent.get() / 100).div_ceil(nat.addresses.get()));
        if busiest.max(shared) > MAX_FLOWS_PER_CLIENT {
            let message = format!("open: one address can hold {MAX_FLOWS_PER_CLIENT} flows; use more addresses");
            self.problem(at, message);
        }
    }

    fn kill_agents(&mut self, open: &Open, kills: &Spanned<KillAgents>) {
        let at = kills.referenced;
        if open.time.is_none() {
            self.problem(at, "open.kill_agents: needs `for`");
        }
        if kills.value.min > kills.value.max {
            self.problem(at, "open.kill_agents: min must not be longer than max");
        }
        if self.agents.len() < self.nodes.len() {
            self.problem(
                at,
                "open.kill_agents: an agent does not run at this step; start it first",
            );
        }
    }
}
