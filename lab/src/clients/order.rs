//! Which source address the next flow of a request takes. The number of the flow enters; an index leaves.

use fastrand::Rng;

use super::protocol::Pick;

/// The sources of one request, in the order of [`Pick`].
#[derive(Debug)]
pub struct Order {
    pick: Pick,
    sources: usize,
    /// For random picks.
    random: Rng,
    /// The round that is shuffled below; none before the first flow.
    round: Option<u64>,
    shuffled: Vec<usize>,
}

impl Order {
    /// Of so many sources, at least one.
    pub fn new(pick: Pick, sources: usize, random: Rng) -> Self {
        Self {
            pick,
            sources: sources.max(1),
            random,
            round: None,
            shuffled: Vec::new(),
        }
    }

    /// The source of flow `number` of the request as a whole; numbers grow from call to call.
    pub fn source(&mut self, number: u64) -> usize {
        let sources = self.sources as u64;
        let (round, place) = (number / sources, (number % sources) as usize);
        match self.pick {
            Pick::RoundRobin => place,
            Pick::Random => self.random.usize(..self.sources),
            Pick::Shuffled { seed } => {
                if self.round != Some(round) {
                    self.round = Some(round);
                    self.shuffled = (0..self.sources).collect();
                    // Far apart, so that no request has the rounds of the one before it.
                    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(round);
                    Rng::with_seed(seed).shuffle(&mut self.shuffled);
                }
                self.shuffled[place]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(pick: Pick, numbers: impl Iterator<Item = u64>) -> Vec<usize> {
        let mut order = Order::new(pick, 10, Rng::with_seed(1));
        numbers.map(|number| order.source(number)).collect()
    }

    #[test]
    fn in_turn_all_come_again_and_again() {
        assert_eq!(first(Pick::RoundRobin, 8..12), [8, 9, 0, 1]);
    }

    #[test]
    fn shuffled_each_comes_once_in_a_round_and_rounds_differ() {
        let all = first(Pick::Shuffled { seed: 3 }, 0..30);
        for round in all.chunks(10) {
            let mut sorted = round.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        }
        assert!(all[..10] != all[10..20] && all[10..20] != all[20..]);
        assert_ne!(all, first(Pick::Shuffled { seed: 4 }, 0..30));
    }

    #[test]
    fn processes_that_share_a_request_share_its_order() {
        let pick = Pick::Shuffled { seed: 3 };
        let all = first(pick, 0..30);
        let part = |first_number: u64| first(pick, (0..15).map(move |n| first_number + 2 * n));
        let together: Vec<usize> = part(0)
            .into_iter()
            .zip(part(1))
            .flat_map(|(even, odd)| [even, odd])
            .collect();
        assert_eq!(together, all);
    }
}
