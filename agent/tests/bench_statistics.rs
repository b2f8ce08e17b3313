//! The statistics of `cargo xtask bench kernel`, which has no test harness of its own.

#[path = "../benches/kernel/statistics.rs"]
mod statistics;

use statistics::figure;

#[test]
fn the_median_and_its_interval() {
    // Tables of the sign test: with 15 samples the 4th and the 12th, with 10 the 2nd and the 9th, with 6 the first and last.
    for (samples, median, low, high) in [
        (1, 1.0, 1.0, 1.0),
        (2, 1.5, 1.0, 2.0),
        (5, 3.0, 1.0, 5.0),
        (6, 3.5, 1.0, 6.0),
        (10, 5.5, 2.0, 9.0),
        (15, 8.0, 4.0, 12.0),
        (20, 10.5, 6.0, 15.0),
    ] {
        let shuffled = (0..samples).map(|turn| f64::from((turn * 7919) % samples + 1));
        let figure = figure(shuffled).expect("there are samples");
        assert_eq!(
            (figure.median, figure.low, figure.high),
            (median, low, high),
            "{samples}"
        );
    }
}

#[test]
fn what_is_no_number_is_no_sample() {
    assert_eq!(figure([f64::NAN, f64::INFINITY]), None);
    assert_eq!(figure([f64::NAN, 2.0]).map(|figure| figure.samples), Some(1));
}
