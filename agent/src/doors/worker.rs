//! The thread that looks up: in, the flows that are drawn each round; out, the front doors that connection tracking
//! names.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use super::{Settings, Shared, conntrack::Conntrack, message::Tuple, note};

/// Time between two rounds of look-ups.
const ROUND: Duration = Duration::from_millis(100);

/// Time until connection tracking that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Looks up what is drawn, round by round.
pub fn work(shared: &Shared, settings: &Settings) {
    let mut conntrack = None;
    let mut retry_at = Instant::now();
    loop {
        if conntrack.is_none() && Instant::now() >= retry_at {
            let (opened, trouble) = match Conntrack::open(&settings.node_netns) {
                Ok(opened) => (Some(opened), None),
                Err(error) => (None, Some(format!("front doors are not looked up: {error}"))),
            };
            conntrack = opened;
            retry_at = Instant::now() + RETRY;
            note(&mut shared.lock().conntrack_trouble, trouble);
        }
        let stop = shared.stop.load(Ordering::Relaxed);
        if !stop {
            thread::park_timeout(ROUND);
        }
        let drawn = shared.lock().flows.draw(Instant::now());
        let mut answers = Vec::with_capacity(drawn.len());
        for flow in drawn {
            let answer = conntrack
                .as_mut()
                .map(|conntrack| conntrack.look_up(&Tuple::answering(&flow)));
            let answer = answer.transpose().unwrap_or_else(|error| {
                tracing::warn!("front doors of one round are not looked up: {error}");
                conntrack = None;
                retry_at = Instant::now();
                None
            });
            answers.push((flow, answer));
        }
        let mut state = shared.lock();
        for (flow, answer) in answers {
            state.flows.looked_up(&flow, answer);
        }
        state.save();
        if stop {
            return;
        }
    }
}
