//! Figures out of samples: in, one value a round; out, the median and an interval around it.

use serde::{Deserialize, Serialize};

/// A median. Where samples are noisy and some are far off, it is the figure to trust.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The middle of the samples.
    pub median: f64,
    /// With 95 % confidence the true median is not below; with fewer than six samples, the least of them.
    pub low: f64,
    /// And not above; with fewer than six samples, the largest of them.
    pub high: f64,
    /// Number of samples.
    pub samples: usize,
}

/// The figure of these samples; nothing without samples. Those that are no numbers are left out.
pub fn figure(values: impl IntoIterator<Item = f64>) -> Option<Figure> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let samples = values.len();
    let last = samples.checked_sub(1)?;
    let cut = outside(samples);
    Some(Figure {
        median: f64::midpoint(values[last / 2], values[samples / 2]),
        low: values[cut],
        high: values[last - cut],
        samples,
    })
}

/// How many of the sorted samples lie outside the interval at each end: the most for which the chance that the true median is
/// out there, too, is at most 2.5 %. Each sample is above the true median with chance 1/2, whatever its distribution.
fn outside(samples: usize) -> usize {
    // 2 to the power of minus samples, then the further terms of the binomial distribution.
    let mut term = 0.5_f64.powi(i32::try_from(samples).unwrap_or(i32::MAX));
    let mut tail = term;
    let mut cut = 0;
    while tail <= 0.025 {
        cut += 1;
        term *= (samples - cut + 1) as f64 / cut as f64;
        tail += term;
    }
    cut.saturating_sub(1)
}
