//! When are established flows even? Both kinds of flows and the rate at which flows close enter; a time leaves, or why there is
//! none.

use super::super::ServiceInput;
use super::super::floor::noise_floor;
use super::super::models::expected_shares;
use super::super::shares::Split;
use super::super::significance::{REJECT, flows_needed, g_test};
use super::HOUR_MS;
use super::projection::Projection;
use super::rate::Rate;
use crate::report::{BalancerModel, FlowKind};

/// Why it is so, or when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// No flow is open.
    Empty,
    /// The flows of a node are not known.
    Silent,
    /// Below the target now.
    Even,
    /// Above it, but not above chance.
    Chance,
    /// New flows go on; the time is known.
    Waning,
    /// None closed: the time has a lower end at most.
    Held,
    /// No flow opened.
    Still,
    /// New flows are uneven too.
    Renewed,
}

/// Which shares of new flows the time rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    Measured,
    /// As good as even.
    Ideal,
    /// Too few to measure.
    Expected,
}

pub(super) struct Outlook {
    pub course: Course,
    pub basis: Basis,
    /// Peak ratio now; `None` without flows.
    pub peak: Option<f64>,
    /// Hours until it is below the target, with its interval; `None` as in the report.
    pub hours: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl Outlook {
    pub fn of(input: &ServiceInput, new: &Split, rate: &Rate, target: f64) -> Self {
        let established = Split::of(input, FlowKind::Established);
        let (basis, shares) = new_shares(new);
        let peak = established.peak_ratio();
        let mut outlook = Self {
            course: Course::Empty,
            basis,
            peak,
            hours: None,
            low: None,
            high: None,
        };
        let Some(peak) = peak else {
            return outlook;
        };
        if input.nodes.iter().any(|node| !node.reporting) {
            outlook.course = Course::Silent;
            return outlook;
        }
        if peak < target {
            outlook.course = Course::Even;
            (outlook.hours, outlook.low, outlook.high) = (Some(0.0), Some(0.0), Some(0.0));
            return outlook;
        }
        let floor = noise_floor(established.flows as f64, established.endpoint_count());
        if floor.is_some_and(|floor| peak <= floor) {
            outlook.course = Course::Chance;
            return outlook;
        }
        let window_hours = input.window.to_ms.saturating_sub(input.window.from_ms) as f64 / HOUR_MS;
        if new.flows == 0 || window_hours <= 0.0 {
            outlook.course = Course::Still;
            return outlook;
        }
        let projection = Projection {
            open: &established.counts,
            shares: &shares,
            opened_per_hour: new.flows as f64 / window_hours,
        };
        let Some(hazard) = rate.hazard else {
            outlook.course = Course::Held;
            return outlook;
        };
        let hours = |h: f64| projection.hours_to_even(h, target);
        outlook.low = hours(hazard.high);
        outlook.course = match (outlook.low, rate.closes) {
            (None, _) => Course::Renewed,
            (Some(_), 0) => Course::Held,
            (Some(_), _) => {
                outlook.hours = hours(hazard.value);
                outlook.high = hours(hazard.low);
                Course::Waning
            }
        };
        outlook
    }
}

/// Shares of new flows to reckon with. Those of few flows are mostly chance, and what is no more than chance would look as if it
/// lasted: measured ones where they differ from the ideal ones by more than chance; else ideal ones; with too few flows to tell, those
/// of a balancer that treats nodes alike.
fn new_shares(new: &Split) -> (Basis, Vec<f64>) {
    let p = new.endpoint_count();
    let ideal = vec![1.0 / p as f64; p];
    if new.flows < flows_needed(p) {
        (Basis::Expected, expected_shares(BalancerModel::EqualPerNode, new))
    } else if p > 1 && g_test(&new.counts, &ideal, 1.0).p_value < REJECT {
        (Basis::Measured, new.shares.clone())
    } else {
        (Basis::Ideal, ideal)
    }
}
