//! Agents that die at random moments and start again. A plan and a seed enter; how many were killed leaves.

use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use super::observers::Observers;
use crate::scenario::open::KillAgents;

/// When an agent dies, counted from the start, and how long its node then has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kill {
    at: Duration,
    pause: Duration,
}

/// The plan of a seed. Moments are spread evenly over `time`, in order.
fn plan(kills: &KillAgents, time: Duration, random: &mut Rng) -> Vec<Kill> {
    let mut moments: Vec<Duration> = (0..kills.times.get()).map(|_| time.mul_f64(random.f64())).collect();
    moments.sort_unstable();
    let mut pause = || Duration::from_millis(random.u64(kills.min.as_millis()..=kills.max.as_millis()));
    moments.into_iter().map(|at| Kill { at, pause: pause() }).collect()
}

/// Kills agents during `time`; all run again when this returns. An agent can be killed while it still starts. Where a
/// node has no agent yet when the next one is to die, that one lives until then.
///
/// # Errors
/// An agent has ended by itself, or does not start.
pub async fn kill_agents(observers: &mut Observers, kills: &KillAgents, time: Duration, seed: u64) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let started = Instant::now();
    for kill in plan(kills, time, &mut random) {
        sleep_until(started + kill.at).await;
        let nodes = observers.nodes();
        let node = random.choice(nodes).context("no agent runs")?;
        observers.kill_agent(&node).await?;
        sleep(kill.pause).await;
        observers.restart_agent(&node)?;
    }
    observers.ready().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan() {
        let kills = serde_saphyr::from_str("{times: 20, min: 100ms, max: 2s}").unwrap();
        let of = |seed| plan(&kills, Duration::from_secs(40), &mut Rng::with_seed(seed));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let plan = of(3);
        assert_eq!(plan.len(), 20);
        assert!(plan.is_sorted_by_key(|kill| kill.at) && plan[19].at <= Duration::from_secs(40));
        let pauses = Duration::from_millis(100)..=Duration::from_secs(2);
        assert!(plan.iter().all(|kill| pauses.contains(&kill.pause)));
    }
}
