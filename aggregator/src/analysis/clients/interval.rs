//! 95 % intervals: counts and shares enter; the lower and the upper end leave.

use statrs::distribution::{ContinuousCDF, Gamma, StudentsT};
use std::sync::LazyLock;

/// The 0.975 quantile of the normal distribution.
pub(in crate::analysis) const NORMAL: f64 = 1.959_963_984_540_054;

/// From so many degrees of freedom on, Student's distribution is the normal one to two digits.
const MANY_DEGREES: usize = 200;

/// From so many events on, the approximation of [`poisson`] is right to five digits.
const MANY_EVENTS: u64 = 1000;

/// The 0.975 quantile of Student's t, rounded to fewer degrees. A sample of few clients does not know its own spread well.
pub(in crate::analysis) fn student(degrees: f64) -> f64 {
    // Found by iteration, which would take most of the time of a Service with many nodes.
    static QUANTILES: LazyLock<Vec<f64>> = LazyLock::new(|| {
        let of = |degrees| StudentsT::new(0.0, 1.0, degrees as f64).map_or(NORMAL, |t| t.inverse_cdf(0.975));
        (1..MANY_DEGREES).map(of).collect()
    });
    let at = degrees.max(1.0) as usize - 1;
    QUANTILES.get(at).copied().unwrap_or(NORMAL)
}

/// Interval of a share that was seen in `n` independent trials, which need not be whole; it does not collapse at 0 and 1.
/// `quantile` is that of the error, [`NORMAL`] or larger.
///
/// E. B. Wilson, Journal of the American Statistical Association 22, 1927.
pub(in crate::analysis) fn wilson(share: f64, n: f64, quantile: f64) -> (f64, f64) {
    if n <= 0.0 {
        return (0.0, 1.0);
    }
    let z = quantile * quantile / n;
    let centre = (share + z / 2.0) / (1.0 + z);
    let half = (share * (1.0 - share) * z + z * z / 4.0).max(0.0).sqrt() / (1.0 + z);
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

/// Interval of the mean of a Poisson count: exact, from quantiles of the gamma distribution (F. Garwood, Biometrika 28,
/// 1936); of many events by Byar's approximation (K. J. Rothman and J. D. Boice, Epidemiologic Analysis with a
/// Programmable Calculator, 1979).
///
/// None: the upper end is that below which one sees an event 19 times of 20, -ln 0.05, "the rule of three" (B. D. Jovanovic and
/// P. S. Levy, The American Statistician 51, 1997).
pub(in crate::analysis) fn poisson(events: u64) -> (f64, f64) {
    let n = events as f64;
    if events == 0 {
        return (0.0, -(0.05_f64.ln()));
    }
    if events >= MANY_EVENTS {
        let end = |n: f64, z: f64| n * (1.0 - 1.0 / (9.0 * n) + z / (3.0 * n.sqrt())).powi(3);
        return (end(n, -NORMAL), end(n + 1.0, NORMAL));
    }
    let quantile = |shape: f64, p: f64| Gamma::new(shape, 1.0).map_or(n, |gamma| gamma.inverse_cdf(p));
    (quantile(n, 0.025), quantile(n + 1.0, 0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: (f64, f64), expected: (f64, f64)) {
        let off = (found.0 - expected.0).abs().max((found.1 - expected.1).abs());
        assert!(off < 1e-3, "{found:?}, not {expected:?}");
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Garwood's table of 1936.
        near(poisson(1), (0.0253, 5.5716));
        near(poisson(10), (4.7954, 18.3904));
        near(poisson(0), (0.0, 2.9957));
        // Wilson: 10 of 10, and 5 of 10.
        near(wilson(1.0, 10.0, NORMAL), (0.7225, 1.0));
        near(wilson(0.5, 10.0, NORMAL), (0.2366, 0.7634));
        assert_eq!(wilson(0.5, 0.0, NORMAL), (0.0, 1.0));
    }

    #[test]
    fn approximations_meet_the_exact_values() {
        let (exact, near) = (poisson(MANY_EVENTS - 1), poisson(MANY_EVENTS));
        assert!((near.0 - exact.0 - 1.0).abs() < 0.05 && (near.1 - exact.1 - 1.0).abs() < 0.05);
        assert!((student(1e9) - NORMAL).abs() < 1e-9);
        assert!((student(4.0) - 2.776).abs() < 1e-3);
    }
}
