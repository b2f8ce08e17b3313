//! What a population of clients, known in full or by a sample, says of all: how many they are, how concentrated, how heavy the
//! heaviest.

use super::interval::{poisson, student};
use super::population::{Client, Population};
use crate::report::Estimate;

/// sum c^2 over clients, c the flows of each, with its interval, and X.
#[derive(Debug, Clone, Copy)]
pub(super) struct Squares {
    pub sum: Estimate,
    pub flows: f64,
}

impl Population {
    /// Distinct clients, from those of the sample.
    pub fn distinct(&self, seen: u64) -> Estimate {
        if self.scale <= 1.0 {
            return Estimate::exact(seen as f64);
        }
        // Each is in the sample with probability 1 / scale: nearly a Poisson count.
        let (low, high) = poisson(seen);
        Estimate {
            value: seen as f64 * self.scale,
            low: (low * self.scale).max(seen as f64),
            high: high * self.scale,
        }
    }

    /// sum c^2 over clients; `None` without flows.
    pub fn squares(&self) -> Option<Squares> {
        self.squares_of(|client| client.flows)
    }

    /// Sum over clients and nodes of the squares of a client's flows on a node.
    pub fn squares_by_node(&self, node_of: impl Fn(u32) -> usize) -> Option<Squares> {
        // The square root of the sum over nodes, so that its square is that.
        let on_nodes = |client: &Client| {
            let mut nodes: Vec<(usize, f64)> = Vec::new();
            for (place, flows) in self.cells(client) {
                let node = node_of(*place);
                match nodes.iter_mut().find(|(of, _)| *of == node) {
                    Some((_, sum)) => *sum += flows,
                    None => nodes.push((node, *flows)),
                }
            }
            Estimate::exact(nodes.iter().map(|(_, flows)| flows * flows).sum::<f64>().sqrt())
        };
        self.squares_of(on_nodes)
    }

    /// Those of heavy clients are added up; for the others, whose flows are known in sum, the ratio of squares to flows is that of
    /// the sample (W. G. Cochran, Sampling Techniques, 1977, chapter 6).
    fn squares_of(&self, size: impl Fn(&Client) -> Estimate) -> Option<Squares> {
        if self.flows <= 0.0 {
            return None;
        }
        let (mut heavy, mut heavy_flows) = (Estimate::exact(0.0), 0.0);
        let mut light: Vec<(f64, f64)> = Vec::new();
        for client in &self.clients {
            let size = size(client);
            if client.weight > 1.0 {
                light.push((size.value * size.value, client.flows.value));
            } else {
                heavy.value += size.value * size.value;
                heavy.low += size.low * size.low;
                heavy.high += size.high * size.high;
                heavy_flows += client.flows.value;
            }
        }
        let rest = (self.flows - heavy_flows).max(0.0);
        let rest = if self.scale > 1.0 { rest } else { 0.0 };
        let ratio = self.ratio(&light);
        Some(Squares {
            sum: Estimate {
                value: heavy.value + rest * ratio.value,
                low: heavy.low + rest * ratio.low,
                high: heavy.high + rest * ratio.high,
            },
            flows: self.flows,
        })
    }

    /// Sum of squares over sum of flows of the clients that are not heavy, from (square, flows) of those in the sample.
    fn ratio(&self, light: &[(f64, f64)]) -> Estimate {
        let n = light.len() as f64;
        let flows: f64 = light.iter().map(|(_, flows)| flows).sum();
        let most = self.unknown_most.max(1.0);
        if n < 2.0 || flows <= 0.0 {
            // Somewhere between clients of one flow and those of the most that goes unlisted.
            return Estimate {
                value: most.sqrt(),
                low: 1.0,
                high: most,
            };
        }
        let ratio = light.iter().map(|(square, _)| square).sum::<f64>() / flows;
        let residuals: f64 = light
            .iter()
            .map(|(square, flows)| (square - ratio * flows).powi(2))
            .sum();
        // One client more as heavy as the heaviest may have been missed: without it, alike clients would leave no error.
        let largest = light.iter().map(|(square, _)| square.sqrt()).fold(0.0, f64::max);
        let missed = (largest * largest - ratio * largest).powi(2);
        let left_out = 1.0 - 1.0 / self.scale;
        let error = (left_out * (residuals + missed) * n / (n - 1.0)).sqrt() / flows;
        // Ends by a factor: a sum of squares is skewed.
        let factor = (student(n - 1.0) * error / ratio).exp();
        Estimate {
            value: ratio,
            low: ratio / factor,
            high: (ratio * factor).min(most.max(ratio)),
        }
    }

    /// Share of the `n` heaviest clients; `None` without flows.
    pub fn top_share(&self, n: usize) -> Option<Estimate> {
        if self.flows <= 0.0 {
            return None;
        }
        let share = |flows: f64| (flows / self.flows).min(1.0);
        let sum = |sizes: Vec<f64>| {
            let mut sizes = sizes;
            sizes.sort_unstable_by(|a, b| b.total_cmp(a));
            sizes.iter().take(n).sum::<f64>()
        };
        // Any clients that are known have no more flows than the heaviest.
        let low = share(sum(self.clients.iter().map(|client| client.flows.low).collect()));
        if self.scale <= 1.0 {
            return Some(Estimate::exact(low));
        }
        let mut largest: Vec<f64> = self.clients.iter().map(|client| client.flows.high).collect();
        largest.extend(std::iter::repeat_n(self.unknown_most, n));
        let high = share(sum(largest)).max(low);
        Some(Estimate {
            value: share(self.heaviest(n).sum()).clamp(low, high),
            low,
            high,
        })
    }

    /// Flows of the `n` heaviest clients, most first, those of the sample as often as they stand for.
    pub fn heaviest(&self, n: usize) -> impl Iterator<Item = f64> {
        let alike =
            move |client: &Client| std::iter::repeat_n(client.flows.value, client.weight.min(n as f64) as usize);
        self.clients.iter().flat_map(alike).take(n)
    }

    /// Flows of the client in the middle; 0 without clients.
    pub fn median(&self) -> f64 {
        let all: f64 = self.clients.iter().map(|client| client.weight).sum();
        let mut passed = 0.0;
        // From the least on, so that of two in the middle the lesser counts.
        for client in self.clients.iter().rev() {
            passed += client.weight;
            if passed >= all / 2.0 {
                return client.flows.value;
            }
        }
        0.0
    }
}

impl Squares {
    /// X^2 / sum c^2.
    pub fn effective(&self) -> Estimate {
        let of = |sum: f64| (self.flows * self.flows / sum).clamp(1.0, self.flows.max(1.0));
        Estimate {
            value: of(self.sum.value),
            low: of(self.sum.high),
            high: of(self.sum.low),
        }
    }

    /// Kish's design effect, 1 + kappa (sum c^2 / X - 1).
    pub fn design_effect(&self, kappa: f64) -> f64 {
        1.0 + kappa * (self.sum.value / self.flows - 1.0).max(0.0)
    }
}
