//! Numbers and lists for sentences. Values enter; short text leaves.

use super::subject::Subject;
use crate::report::FlowKind;

/// Lists name this many things before "and 7 more".
const NAMED: usize = 5;

/// A span of time: "5 min", "90 s", "1 h".
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        s if s >= 3600 && s.is_multiple_of(3600) => format!("{} h", s / 3600),
        s if s >= 60 && s.is_multiple_of(60) => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// A span of time, to about two digits: "45 s", "12 min", "3.2 h", "4.5 days".
pub(super) fn about(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5_400.0 => format!("{:.0} min", s / 60.0),
        s if s < 36_000.0 => format!("{:.1} h", s / 3_600.0),
        s if s < 129_600.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// A p-value: "p = 0.02", "p = 3e-7", "p < 1e-15".
pub(super) fn chance(p_value: f64) -> String {
    match p_value {
        p if p < 1e-15 => "p < 1e-15".to_owned(),
        p if p < 0.001 => format!("p = {p:.0e}"),
        p => format!("p = {p:.3}"),
    }
}

/// "20,000".
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 node", "2 nodes".
pub(super) fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// "14.3 %".
pub(super) fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.0005 {
        "under 0.1 %".to_owned()
    } else {
        format!("{:.1} %", share * 100.0)
    }
}

/// A part of the skew: "98 %".
pub(super) fn portion(share: f64) -> String {
    if (0.995..1.0 - 1e-9).contains(&share) {
        "over 99 %".to_owned()
    } else {
        format!("{:.0} %", share * 100.0)
    }
}

/// "1.57".
pub(super) fn ratio(value: Option<f64>) -> String {
    value.map_or("unknown".to_owned(), |v| format!("{v:.2}"))
}

/// How many flows, of which kind, and for new ones over how long: "20,000 new flows in 5 min".
pub(super) fn sample(subject: &Subject) -> String {
    let flows = plural(subject.split.flows, &format!("{} flow", subject.kind()));
    match subject.split.kind {
        FlowKind::New => format!("{flows} in {}", window(subject)),
        FlowKind::Established => flows,
    }
}

/// Length of the window of new flows.
pub(super) fn window(subject: &Subject) -> String {
    let window = subject.input.window;
    span(window.to_ms.saturating_sub(window.from_ms) / 1000)
}

/// "14.0 % to 14.6 %", or "14.3 % each".
pub(super) fn range(shares: &[f64]) -> String {
    let low = percent(shares.iter().copied().fold(f64::INFINITY, f64::min));
    let high = percent(shares.iter().copied().fold(0.0, f64::max));
    if low == high {
        format!("{low} each")
    } else {
        format!("{low} to {high}")
    }
}

/// A Bayes factor from its logarithm: "3.2 times", "over a million times".
pub(super) fn odds(log: f64) -> String {
    match log.exp() {
        odds if odds > 1e6 => "over a million times".to_owned(),
        odds if odds < 10.0 => format!("{odds:.1} times"),
        odds => format!("{} times", count(odds as u64)),
    }
}

/// "node a", "nodes a and b", "nodes a, b, c, d, e and 7 more".
pub(super) fn list(noun: &str, names: &[&str]) -> String {
    match names {
        [] => format!("no {noun}"),
        [one] => format!("{noun} {one}"),
        [all @ .., last] if names.len() <= NAMED => format!("{noun}s {} and {last}", all.join(", ")),
        _ => format!("{noun}s {} and {} more", names[..NAMED].join(", "), names.len() - NAMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lists_read_well() {
        assert_eq!(
            [count(0), count(999), count(1_000), count(12_345_678)],
            ["0", "999", "1,000", "12,345,678"]
        );
        assert_eq!(
            [span(45), span(90), span(300), span(5_400), span(7_200)],
            ["45 s", "90 s", "5 min", "90 min", "2 h"]
        );
        assert_eq!(
            [about(45.2), about(730.0), about(11_520.0), about(400_000.0)],
            ["45 s", "12 min", "3.2 h", "4.6 days"]
        );
        assert_eq!(
            [chance(0.0), chance(3.4e-7), chance(0.0234)],
            ["p < 1e-15", "p = 3e-7", "p = 0.023"]
        );
        assert_eq!(
            [percent(0.0), percent(1e-5), percent(1.0 / 7.0)],
            ["0.0 %", "under 0.1 %", "14.3 %"]
        );
        assert_eq!(
            [portion(0.98), portion(0.9999), portion(1.0)],
            ["98 %", "over 99 %", "100 %"]
        );
        assert_eq!(
            [odds(1.0), odds(5.0), odds(50.0)],
            ["2.7 times", "148 times", "over a million times"]
        );
        assert_eq!(
            [list("node", &["a"]), list("node", &["a", "b"])],
            ["node a", "nodes a and b"]
        );
        assert_eq!(
            list("node", &["a", "b", "c", "d", "e", "f", "g"]),
            "nodes a, b, c, d, e and 2 more"
        );
    }
}
