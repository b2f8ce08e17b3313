//! Samples from a known truth. Seeded, hence repeatable.

use super::*;
use crate::analysis::{ClientEvent, ClientEventKind, ClientsInput};

/// Marsaglia's xorshift64*: a few lines, repeatable on any machine.
pub(super) struct Draws(pub u64);

/// How a balancer treats the clients of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binds {
    /// Each flow is picked anew.
    Nothing,
    /// Each client keeps its node; there, each flow is picked anew.
    Nodes,
    /// Each flow is sent to any node; there, each client keeps its pod.
    Pods,
}

impl Draws {
    pub fn below_one(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.below_one() * n as f64) as usize
    }

    fn node(&mut self, node_shares: &[f64]) -> usize {
        let mut at = self.below_one();
        let mut node = 0;
        while node + 1 < node_shares.len() && at >= node_shares[node] {
            at -= node_shares[node];
            node += 1;
        }
        node
    }

    /// One flow after the other: a node by `node_shares`, then one of its pods, each alike.
    pub fn sample(&mut self, pods: &[usize], node_shares: &[f64], flows: u64) -> Vec<Vec<u64>> {
        let mut counts: Vec<Vec<u64>> = pods.iter().map(|n| vec![0; *n]).collect();
        for _ in 0..flows {
            let node = self.node(node_shares);
            let pod = self.below(pods[node]);
            counts[node][pod] += 1;
        }
        counts
    }

    pub fn analysis(&mut self, pods: &[usize], node_shares: &[f64], flows: u64) -> Analysis {
        let counts = self.sample(pods, node_shares, flows);
        analysis(&new_flows(&counts.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    }

    /// How many of `runs` samples give an analysis for which `hit` holds.
    pub fn hits(
        &mut self,
        runs: u64,
        (pods, node_shares, flows): (&[usize], &[f64], u64),
        hit: impl Fn(&Analysis) -> bool,
    ) -> u64 {
        (0..runs)
            .filter(|_| hit(&self.analysis(pods, node_shares, flows)))
            .count() as u64
    }

    /// The same, with flows of `clients` clients, each drawn alike, told one by one over 5 minutes.
    pub fn with_clients(
        &mut self,
        (pods, node_shares, flows): (&[usize], &[f64], u64),
        clients: u64,
        binds: Binds,
    ) -> ServiceInput {
        let first: Vec<usize> = pods
            .iter()
            .scan(0, |sum, n| Some(std::mem::replace(sum, *sum + n)))
            .collect();
        let mut node_of = vec![None; clients as usize];
        let mut pod_of = vec![None; clients as usize * pods.len()];
        let mut counts: Vec<Vec<u64>> = pods.iter().map(|n| vec![0; *n]).collect();
        let mut events = Vec::with_capacity(flows as usize);
        for i in 0..flows {
            let client = self.below(clients as usize);
            let node = match binds {
                Binds::Nodes => *node_of[client].get_or_insert_with(|| self.node(node_shares)),
                _ => self.node(node_shares),
            };
            let pod = match binds {
                Binds::Pods => *pod_of[client * pods.len() + node].get_or_insert_with(|| self.below(pods[node])),
                _ => self.below(pods[node]),
            };
            counts[node][pod] += 1;
            events.push(ClientEvent {
                at_ms: 1 + i * 299_998 / flows,
                client: (client as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                place: (first[node] + pod) as u32,
                what: ClientEventKind::Opened,
            });
        }
        let mut input = new_flows(&counts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        input.clients = Some(ClientsInput {
            events,
            ..ClientsInput::default()
        });
        input
    }
}
