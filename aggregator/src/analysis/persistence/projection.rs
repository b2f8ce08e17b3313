//! When will established flows be even? The open flows of each endpoint, the shares of new ones, and the rates at which flows
//! open and close enter; a time leaves.

/// Open flows and what happens to them.
pub(super) struct Projection<'a> {
    /// E_e, flows open now.
    pub open: &'a [u64],
    /// s_e, shares of new flows; they add up to 1.
    pub shares: &'a [f64],
    /// r, flows that open in an hour.
    pub opened_per_hour: f64,
}

impl Projection<'_> {
    /// The first time in hours at which max E_e(t) / sum E(t) * P is below `target`, if flows close at random with rate `h` an
    /// hour: E_e(t) = E_e exp(-h t) + r s_e / h (1 - exp(-h t)), the mean of an immigration-death process (D. G. Kendall, Journal
    /// of the Royal Statistical Society B 11, 1949). 0: it is so already. `None`: never.
    ///
    /// The share of an endpoint is then w E_e / E + (1 - w) s_e, w the part of the flows that are of now, which falls from 1 to 0. So
    /// each endpoint allows a range of w, and the largest w that all allow is the first time.
    pub fn hours_to_even(&self, h: f64, target: f64) -> Option<f64> {
        let open: f64 = self.open.iter().map(|open| *open as f64).sum();
        if open <= 0.0 {
            return None;
        }
        let limit = target / self.open.len() as f64;
        let (mut least, mut most) = (0.0_f64, 1.0_f64);
        for (open_here, new) in self.open.iter().zip(self.shares) {
            // new + w (now - new) < limit.
            let now = *open_here as f64 / open;
            let slope = now - new;
            if slope > 0.0 {
                most = most.min((limit - new) / slope);
            } else if slope < 0.0 {
                least = least.max((limit - new) / slope);
            } else if now >= limit {
                return None;
            }
        }
        if most >= 1.0 && least < 1.0 {
            return Some(0.0);
        }
        if most <= least || most <= 0.0 || self.opened_per_hour <= 0.0 {
            return None;
        }
        // w = E u / (E u + r / h (1 - u)) with u = exp(-h t), solved for t; in the limit h = 0 old flows are only outnumbered.
        let grown = open * (1.0 - most) / (most * self.opened_per_hour);
        Some(if h > 0.0 { (h * grown).ln_1p() / h } else { grown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(open: &[u64], shares: &[f64], opened_per_hour: f64, h: f64, target: f64) -> Option<f64> {
        Projection {
            open,
            shares,
            opened_per_hour,
        }
        .hours_to_even(h, target)
    }

    #[test]
    fn the_peak_at_that_time_is_the_target() {
        for (h, rate) in [(0.1, 50.0), (0.5, 500.0), (2.0, 3.0), (1e-9, 100.0)] {
            let (open, shares) = ([900_u64, 100, 0], [0.3, 0.3, 0.4]);
            let t = hours(&open, &shares, rate, h, 1.5).unwrap();
            let at = |e: usize| {
                let left = (-h * t).exp();
                open[e] as f64 * left + rate * shares[e] / h * -(-h * t).exp_m1()
            };
            let all: Vec<f64> = (0..3).map(at).collect();
            let peak = all.iter().copied().fold(0.0, f64::max) * 3.0 / all.iter().sum::<f64>();
            assert!((peak - 1.5).abs() < 1e-6, "rate {rate}, hazard {h}: {peak} after {t}");
        }
    }

    #[test]
    fn two_pods_by_hand() {
        // 100 and 0 open, 100 an hour come and all live an hour: shares are 1/2 + w/2, and below 0.6 at w = 0.2. Flows stay
        // 100, so w = exp(-t): t = ln 5.
        let t = hours(&[100, 0], &[0.5, 0.5], 100.0, 1.0, 1.2).unwrap();
        assert!((t - 5.0_f64.ln()).abs() < 1e-12, "{t}");
        // None closes: 100 w = 20 when 400 have come.
        assert_eq!(
            hours(&[100, 0], &[0.5, 0.5], 100.0, 0.0, 1.2).map(f64::round),
            Some(4.0)
        );
    }

    #[test]
    fn never_and_already() {
        assert_eq!(
            hours(&[100, 0], &[0.7, 0.3], 100.0, 1.0, 1.2),
            None,
            "new flows are uneven"
        );
        assert_eq!(hours(&[100, 0], &[0.5, 0.5], 0.0, 1.0, 1.2), None, "nothing comes");
        assert_eq!(hours(&[55, 45], &[0.9, 0.1], 10.0, 1.0, 1.2), Some(0.0));
        assert_eq!(hours(&[0, 0], &[0.5, 0.5], 10.0, 1.0, 1.2), None);
        assert_eq!(hours(&[100], &[1.0], 10.0, 1.0, 1.0), None);
        // Old and new flows lean to different pods: even in between, if not for good.
        assert!(hours(&[90, 10], &[0.1, 0.9], 10.0, 1.0, 1.2).is_some());
    }
}
