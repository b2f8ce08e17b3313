//! How much more often than by chance do clients find the same place? Picks enter; kappa and its interval leave.
//!
//! kappa = (observed - chance) / (1 - chance), after J. Cohen, Educational and Psychological Measurement 20, 1960. Chance is
//! sum p^2, the probability that two independent picks agree, estimated without bias by how often two different clients do
//! (E. H. Simpson, Nature 163, 1949): clients that keep their place would else raise the chance level that they are held
//! against. Each client has one vote, split over its flows.
//!
//! The interval: pairs of one client are not independent, so the variance comes from leaving out one client at a time (the
//! jackknife over clusters: B. Efron and C. Stein, Annals of Statistics 9, 1981); it gives an effective number of pairs, and that
//! Wilson's interval (E. L. Korn and B. I. Graubard, Survey Methodology 24, 1998), which does not collapse when all agree.

use super::interval::{NORMAL, wilson};
use crate::report::Estimate;

/// Fewer clients than this do not tell how picks are spread.
const FEW_CLIENTS: f64 = 10.0;

/// When 1 - chance is below this, nobody could have landed elsewhere.
const CERTAIN: f64 = 1e-9;

/// The picks of one group of slots between two changes of them.
#[derive(Clone)]
pub(super) struct Cell {
    /// Chance when too few clients came to tell, and all to one slot.
    alone: f64,
    /// Clients.
    pub clients: f64,
    /// Sum of votes, by slot.
    pub votes: Vec<f64>,
    /// Sum over clients and slots of the squares of votes.
    pub squares: f64,
    /// Consecutive opens of one client, the second of them here.
    pub pairs: f64,
    /// sum p^2.
    pub chance: f64,
}

impl Cell {
    pub fn new(alone: f64, slots: usize) -> Self {
        Self {
            alone,
            clients: 0.0,
            votes: vec![0.0; slots],
            squares: 0.0,
            pairs: 0.0,
            chance: 0.0,
        }
    }

    /// Takes the chance level from the votes.
    pub fn finish(&mut self) {
        self.chance = self.chance_of_votes();
    }

    /// The chance level without the votes of one client.
    pub fn chance_without(&self, cast: &[(u32, f64)], squares: f64) -> f64 {
        if self.clients < FEW_CLIENTS {
            return self.chance;
        }
        let common: f64 = cast.iter().map(|(slot, vote)| vote * self.votes[*slot as usize]).sum();
        let all: f64 = self.agreement() - 2.0 * common + 2.0 * squares;
        let clients = self.clients - 1.0;
        (all / (clients * (clients - 1.0))).clamp(0.0, 1.0)
    }

    /// Sum over ordered pairs of different clients of how often they agree.
    fn agreement(&self) -> f64 {
        self.votes.iter().map(|votes| votes * votes).sum::<f64>() - self.squares
    }

    /// How often two different clients agree. Of few clients this says little: then not less than if each slot that they
    /// were seen at were as likely.
    fn chance_of_votes(&self) -> f64 {
        let agree = if self.clients > 1.0 {
            (self.agreement() / (self.clients * (self.clients - 1.0))).clamp(0.0, 1.0)
        } else {
            0.0
        };
        if self.clients >= FEW_CLIENTS {
            return agree;
        }
        match self.votes.iter().filter(|votes| **votes > 0.0).count() {
            0 | 1 => self.alone,
            used => agree.max(1.0 / used as f64),
        }
    }
}

/// Sums over pairs.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub pairs: f64,
    pub agree: f64,
    pub chance: f64,
}

impl Sums {
    pub fn add(&mut self, pairs: f64, agree: f64, chance: f64) {
        self.pairs += pairs;
        self.agree += agree;
        self.chance += chance;
    }

    pub fn kappa(&self) -> Option<f64> {
        let room = self.pairs - self.chance;
        (self.pairs > 0.0 && room > CERTAIN * self.pairs).then(|| (self.agree - self.chance) / room)
    }

    /// `trials`: pairs that count as independent when none differs from the others. When each client is known, that is each
    /// pair; of a sample, each client.
    pub fn interval(&self, kappa: f64, left_out: &[Sums], quantile: f64, trials: f64) -> Estimate {
        let n = left_out.len() as f64;
        let without = || left_out.iter().map(|sums| sums.kappa().unwrap_or(kappa));
        let mean = without().sum::<f64>() / n;
        let variance = (n - 1.0) / n * without().map(|other| (other - mean).powi(2)).sum::<f64>();
        let (observed, chance) = (self.agree / self.pairs, self.chance / self.pairs);
        // Of the observed share, with the chance level held.
        let variance = variance * (1.0 - chance).powi(2);
        let spread = observed * (1.0 - observed);
        let (low, high) = if variance > 0.0 && spread > 0.0 {
            wilson(observed, (spread / variance).min(self.pairs), quantile)
        } else {
            wilson(observed, trials, NORMAL)
        };
        let kappa_of = |share: f64| (share - chance) / (1.0 - chance);
        Estimate {
            value: kappa,
            low: kappa_of(low).min(kappa),
            high: kappa_of(high).max(kappa),
        }
    }
}
