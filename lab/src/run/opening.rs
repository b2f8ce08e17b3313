//! Opens the flows of one step. A step enters; flows that are open or have failed leave, after agents have been killed
//! meanwhile where the step says so.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::console::Console;
use super::kills::kill_agents;
use super::observers::Observers;
use super::requests;
use crate::clients::{Clients, OpenFlows, OpenSummary};
use crate::net::Family;
use crate::scenario::open::Open;
use crate::scenario::value::Span;

/// With a time, flows are asked for in parts of so long: then the time counts, not the number.
const PART: Duration = Duration::from_secs(2);

/// Who opens.
pub struct Opening<'a> {
    /// Those who do it.
    pub clients: Clients,
    /// Family of their addresses.
    pub family: Family,
    /// Requests so far: the seed of the next.
    pub number: &'a mut u64,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Opened {
    /// Flows that opened.
    pub opened: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// From the first attempt to the end of the last.
    pub took: Duration,
}

impl Opening<'_> {
    /// Plays the step.
    ///
    /// # Errors
    /// Clients have ended, or an agent does not start again.
    pub async fn run(self, open: &Open, observers: &mut Observers, console: &mut Console) -> Result<Opened> {
        let (Some(kills), Some(time)) = (&open.kill_agents, &open.time) else {
            return self.open(open, console).await;
        };
        let time = time.value.get();
        let seed = kills.value.seed.map_or_else(|| fastrand::u64(..), |seed| seed.get());
        console.step(&format!(
            "Agents are killed by chance; with `seed: {seed}` it happens at the same moments again."
        ));
        let (opened, ()) = tokio::try_join!(
            self.open(open, console),
            kill_agents(observers, &kills.value, time, seed)
        )?;
        Ok(opened)
    }

    async fn open(self, open: &Open, console: &mut Console) -> Result<Opened> {
        let Self {
            clients,
            family,
            number,
        } = self;
        let started = Instant::now();
        let mut sum = Opened::default();
        let before: u64 = clients.counts().await?.opened.values().sum();
        loop {
            let flows = match &open.time {
                None => open.number(),
                Some(time) => part(open, time.value, started.elapsed()),
            };
            if flows == 0 {
                break;
            }
            *number += 1;
            let [own, shared] = requests::open(open, flows, family, *number);
            let mut progress = clients.progress();
            let both = async { tokio::try_join!(open_some(&clients, own), open_some(&clients, shared)) };
            tokio::pin!(both);
            let summaries = loop {
                tokio::select! {
                    result = &mut both => break result?,
                    Ok(()) = progress.changed() => {
                        let opened = progress.borrow_and_update().opened.values().sum::<u64>().saturating_sub(before);
                        console.progress(&format!("{opened} of {} open", open.number()));
                    }
                }
            };
            for summary in [summaries.0, summaries.1] {
                sum.opened += summary.opened.values().sum::<u64>();
                sum.failed += summary.failed.values().sum::<u64>();
            }
            if open.time.is_none() {
                break;
            }
        }
        sum.took = started.elapsed();
        Ok(sum)
    }
}

/// The flows of the next part; 0 when the time is over.
fn part(open: &Open, time: Span, elapsed: Duration) -> u64 {
    // A part that is shorter than a moment would only round the rate up.
    const MOMENT: Duration = Duration::from_millis(50);
    let left = time.get().saturating_sub(elapsed);
    if left < MOMENT {
        return 0;
    }
    // `for` needs a rate. Both are bounded.
    let rate = open.rate.map_or(0, |rate| rate.get());
    (rate as f64 * left.min(PART).as_secs_f64()).ceil() as u64
}

async fn open_some(clients: &Clients, request: OpenFlows) -> Result<OpenSummary> {
    if request.flows == 0 {
        return Ok(OpenSummary::default());
    }
    clients.open(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_with_the_time() {
        let open: Open = serde_saphyr::from_str("{for: 12s, rate: 1000, lifetime: 1s}").unwrap();
        let parts = |elapsed| part(&open, open.time.as_ref().unwrap().value, Duration::from_millis(elapsed));
        assert_eq!(
            [0, 5_000, 11_000, 11_970, 13_000].map(parts),
            [2_000, 2_000, 1_000, 0, 0]
        );
    }
}
