//! How fast do flows close? Open flows with their ages, and the closes of the window, enter; a rate leaves.

use super::super::clients::interval::poisson;
use super::super::input::{ClientEventKind, ClientsInput};
use super::super::{EndpointInput, ServiceInput};
use super::{HOUR_MS, ages};
use crate::report::Estimate;

/// How fast flows close.
pub(super) struct Rate {
    /// Closes that it rests on; of a sample, scaled to all clients.
    pub closes: u64,
    /// Time for which flows were open, summed.
    pub flow_hours: f64,
    /// Per flow and hour; `None` when no flow was open.
    pub hazard: Option<Estimate>,
    /// Of all flows, the short ones of the window with the long ones: what is known does not tell them apart.
    pub mixed: bool,
}

impl Rate {
    /// Closes over the time that flows were open, of the flows that were open when the window began: those that the skew rests on.
    /// Short flows that opened since would hide that none of the old ones closes. Of all flows when nobody tells how long those that
    /// closed were open, or when none was open then.
    ///
    /// The interval is that of a Poisson count (F. Garwood, Biometrika 28, 1936).
    pub fn of(input: &ServiceInput) -> Self {
        input
            .clients
            .as_ref()
            .filter(|clients| clients.missing == 0)
            .and_then(|clients| Self::of_old(input, clients))
            .unwrap_or_else(|| Self::of_all(input))
    }

    fn of_all(input: &ServiceInput) -> Self {
        let endpoints = || input.endpoints.iter();
        let closes = endpoints().fold(0_u64, |sum, e| sum.saturating_add(e.closed));
        let open_ms = endpoints().fold(0_u128, |sum, e| sum.saturating_add(e.open_ms));
        Self {
            mixed: true,
            ..Self::new(closes, 1.0, open_ms as f64)
        }
    }

    /// Those that are still open were open for the whole window; those that closed, until they did.
    fn of_old(input: &ServiceInput, clients: &ClientsInput) -> Option<Self> {
        let window = input.window;
        let open = |endpoint: &EndpointInput| match &endpoint.ages {
            Some(known) => Some(ages::before(known, window.from_ms).value),
            None => (endpoint.established == 0).then_some(0.0),
        };
        let still_open: f64 = input.endpoints.iter().map(open).sum::<Option<f64>>()?;
        let scale = f64::from(clients.sampling_shift).exp2();
        let (mut closes, mut open_ms) = (0_u64, still_open * window.to_ms.saturating_sub(window.from_ms) as f64);
        for event in &clients.events {
            let ClientEventKind::Closed { lifetime_ms, .. } = event.what else {
                continue;
            };
            // Of unknown age: open before counting began.
            let was_open = lifetime_ms.is_none_or(|lifetime| event.at_ms.saturating_sub(lifetime) < window.from_ms);
            let ready = (event.place as usize) < input.endpoints.len();
            if ready && was_open && event.at_ms >= window.from_ms && event.at_ms <= window.to_ms {
                closes += 1;
                open_ms += scale * (event.at_ms - window.from_ms) as f64;
            }
        }
        (open_ms > 0.0).then(|| Self::new(closes, scale, open_ms))
    }

    fn new(closes: u64, scale: f64, open_ms: f64) -> Self {
        let flow_hours = open_ms / HOUR_MS;
        let (low, high) = poisson(closes);
        let per_hour = |closes: f64| closes * scale / flow_hours;
        Self {
            closes: (closes as f64 * scale) as u64,
            flow_hours,
            hazard: (open_ms > 0.0).then(|| Estimate {
                value: per_hour(closes as f64),
                low: per_hour(low),
                high: per_hour(high),
            }),
            mixed: false,
        }
    }
}
