//! What a report knows of clients and of the age of flows enters; lines for people leave: the causes of the skew and their
//! parts, the windows, who the clients are, whether they keep their pod, how long established flows stay uneven.

use super::number::{count, decimal, percent, plural, span};
use crate::report::{Cause, Clients, Estimate, FlowKind, HeavyClient, ServiceReport};

/// A cause that explains less is not worth a word.
const SMALL: f64 = 0.001;
/// Heavy clients that are named.
const NAMED: usize = 3;

/// "Causes: placement-skew 99.9 %, chance 0.1 %". Nothing when there is no skew to explain.
pub(super) fn causes(report: &ServiceReport, kind: FlowKind) -> Option<String> {
    let causes = match kind {
        FlowKind::New => &report.causes,
        FlowKind::Established => &report.established_causes,
    };
    let part = |cause: &Cause| {
        let share = cause.share.filter(|share| share.abs() >= SMALL)?;
        let name = cause.code.map_or("chance", |code| code.code());
        Some(format!("{name} {}", percent(Some(share))))
    };
    let parts: Vec<String> = causes.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("Causes: {}", parts.join(", ")))
}

/// "Peak ratio of new flows: 1.58 in 1m (800 flows), 1.57 in 5m (4,000 flows)". A window that is cut short is told with what it
/// covers; those that cover the same are told once.
pub(super) fn windows(report: &ServiceReport) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut from_ms = None;
    for row in &report.windows {
        if from_ms == Some(row.window.from_ms) {
            continue;
        }
        from_ms = Some(row.window.from_ms);
        let chance = if row.new.significant {
            ""
        } else {
            ", no more than chance"
        };
        parts.push(format!(
            "{} in {} ({}{chance})",
            decimal(row.new.peak_ratio, 2),
            span(row.window.to_ms.saturating_sub(row.window.from_ms)),
            plural(row.new.flows, "flow"),
        ));
    }
    (parts.len() > 1).then(|| format!("Peak ratio of new flows: {}", parts.join(", ")))
}

/// Who the clients are, whether they keep their pod, and how long established flows stay uneven: a line each.
pub(super) fn lines(report: &ServiceReport) -> Vec<String> {
    let clients = report.clients.as_ref().filter(|clients| clients.flows > 0);
    let affinity = report.affinity.as_ref();
    let persistence = report.persistence.as_ref().filter(|persistence| persistence.flows > 0);
    [
        clients.map(self::clients),
        affinity.map(|affinity| format!("Affinity: {}. {}", affinity.code.code(), affinity.sentence)),
        persistence.map(|persistence| format!("Age: {}", persistence.sentence)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// "Clients: 4,000, as concentrated as 3,950 equal ones; the ten heaviest open 0.4 % of the flows".
fn clients(clients: &Clients) -> String {
    let mut text = format!(
        "Clients: {}",
        figure(&clients.distinct, |value| count(value.round() as u64))
    );
    if let Some(effective) = &clients.effective {
        let number = |value: f64| {
            if value < 10.0 {
                format!("{value:.1}")
            } else {
                count(value.round() as u64)
            }
        };
        text.push_str(&format!(
            ", as concentrated as {} equal ones",
            figure(effective, number)
        ));
    }
    if let Some(share) = &clients.top_share {
        let ten = match clients.heaviest.len() {
            1 => "the only one opens".to_owned(),
            few @ 2..10 => format!("all {few} open"),
            _ => "the ten heaviest open".to_owned(),
        };
        let share = figure(share, |value| percent(Some(value)));
        text.push_str(&format!("; {ten} {share} of the flows"));
    }
    let heavy: Vec<String> = clients
        .heaviest
        .iter()
        .filter(|row| row.looks_shared)
        .take(NAMED)
        .map(shared)
        .collect();
    if !heavy.is_empty() {
        text.push_str(&format!("; {}", heavy.join(", ")));
    }
    if clients.sampling_shift > 0 {
        let part = 1_u64.checked_shl(clients.sampling_shift).unwrap_or(u64::MAX);
        text.push_str(&format!(" (from 1 of {} clients)", count(part)));
    }
    if clients.missing > 0 {
        text.push_str(&format!(
            "; {} were not told, so this may be off",
            plural(clients.missing, "event")
        ));
    }
    text
}

fn shared(client: &HeavyClient) -> String {
    format!(
        "{} looks like many clients behind one address ({})",
        client.client,
        figure(&client.share, |value| percent(Some(value)))
    )
}

/// "3,950", or "3,950 (3,800 to 4,100)" when it is an estimate.
fn figure(estimate: &Estimate, number: impl Fn(f64) -> String) -> String {
    let value = number(estimate.value);
    let (low, high) = (number(estimate.low), number(estimate.high));
    if low == value && high == value {
        value
    } else {
        format!("{value} ({low} to {high})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients_of(distinct: Estimate, effective: f64, top: f64, heaviest: usize) -> Clients {
        let row = |n: usize| HeavyClient {
            client: format!("{n:016x}"),
            share: Estimate::exact(top / heaviest as f64),
            nodes: None,
            pods: None,
            at_once: None,
            looks_shared: n == 0,
        };
        Clients {
            sampling_shift: 0,
            flows: 1000,
            seen: 10,
            missing: 0,
            distinct,
            effective: Some(Estimate::exact(effective)),
            top_share: Some(Estimate::exact(top)),
            heaviest: (0..heaviest).map(row).collect(),
            pinned_peak_ratio: None,
            shared_addresses: None,
        }
    }

    #[test]
    fn what_is_exact_has_no_interval() {
        let text = clients(&clients_of(Estimate::exact(4000.0), 3950.4, 0.004, 10));
        assert_eq!(
            text,
            "Clients: 4,000, as concentrated as 3,950 equal ones; the ten heaviest open 0.4 % of the flows; 0000000000000000 \
             looks like many clients behind one address (0.0 %)"
        );
    }

    #[test]
    fn what_is_estimated_says_how_well() {
        let estimate = Estimate {
            value: 4000.0,
            low: 3800.0,
            high: 4210.0,
        };
        let mut sampled = clients_of(estimate, 1.25, 1.0, 1);
        sampled.sampling_shift = 3;
        sampled.missing = 7;
        let text = clients(&sampled);
        for part in [
            "Clients: 4,000 (3,800 to 4,210), as concentrated as 1.2 equal ones; the only one opens 100.0 % of the flows",
            " (from 1 of 8 clients); 7 events were not told",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
