//! The lab's clients: in, calls; out, their results, and progress while they run. Every request is shared out evenly
//! among the processes.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    time::Instant,
};

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use tokio::sync::watch;

use super::{
    Target,
    connection::PORTS,
    process::Process,
    protocol::{CloseFlows, Command, Counts, Lifetime, OpenFlows, OpenSummary, PerPod, Reply, merge},
};
use crate::net::child::{Place, raise_open_files};

/// Flows that the processes together should be able to hold.
const WANTED: u64 = 1 << 16;
const MOST_PROCESSES: u64 = 16;
/// Files of a process that are not flows.
const OTHER_FILES: u64 = 64;

/// Clients of one lab that have the same source addresses should not begin with the same ports: a UDP flow of the one
/// would go on as a flow of the other.
static NEXT_START: AtomicU16 = AtomicU16::new(0);
/// Between two starts; odd and no divisor of the number of ports, so that many are far apart.
const BETWEEN_STARTS: u16 = 12_289;

/// Running clients processes. They end, and close their flows, when the last clone is dropped. Calls may run at the
/// same time.
#[derive(Clone, Debug)]
pub struct Clients {
    target: SocketAddr,
    processes: Arc<[Process]>,
    progress: watch::Receiver<Counts>,
}

impl Clients {
    /// Starts the processes, and waits until they are where they belong.
    ///
    /// # Errors
    /// The program cannot be run, or a process ends at once.
    pub(crate) async fn start(program: &PathBuf, target: Target, place: &Place) -> Result<Self> {
        let each = raise_open_files()?.saturating_sub(OTHER_FILES).max(1);
        let number = WANTED.div_ceil(each).min(MOST_PROCESSES) as usize;
        let shown = Arc::new((
            Mutex::new(vec![Counts::default(); number]),
            watch::Sender::new(Counts::default()),
        ));
        let progress = shown.1.subscribe();
        let start = NEXT_START.fetch_add(BETWEEN_STARTS, Ordering::Relaxed);
        let processes = (0..number)
            .map(|index| {
                let shown = Arc::clone(&shown);
                let start = port_start(start, index, number);
                Process::start(program, target, start, place, move |counts| {
                    let mut all = shown.0.lock().unwrap_or_else(PoisonError::into_inner);
                    all[index] = counts;
                    shown.1.send_replace(sum(all.iter().cloned()));
                })
            })
            .collect::<Result<_>>()?;
        let clients = Self {
            target: target.address,
            processes,
            progress,
        };
        clients.counts().await?;
        Ok(clients)
    }

    /// Opens flows, and returns when every attempt has ended, well or not.
    ///
    /// # Errors
    /// The request makes no sense, or a process has ended.
    pub async fn open(&self, flows: OpenFlows) -> Result<OpenSummary> {
        check(&flows, self.target)?;
        let since = Instant::now();
        let step = self.processes.len() as u64;
        let part = |first: u64| {
            let share = OpenFlows {
                flows: share(flows.flows, first, step),
                rate: flows.rate.map(|rate| rate / step as f64),
                concurrency: flows.concurrency.div_ceil(step as usize),
                seed: flows.seed.wrapping_mul(step).wrapping_add(first),
                ..flows.clone()
            };
            Command::Open {
                flows: share,
                first,
                step,
            }
        };
        let mut summary = OpenSummary::default();
        for reply in self.call_all((0..step).map(part)).await? {
            let Reply::Opened { opened, failed } = reply else {
                return unexpected(&reply);
            };
            merge(&mut summary.opened, opened);
            merge(&mut summary.failed, failed);
        }
        summary.elapsed_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(summary)
    }

    /// Closes flows, and returns how many, when they are closed on this side.
    ///
    /// # Errors
    /// A process has ended.
    pub async fn close(&self, which: CloseFlows) -> Result<u64> {
        let step = self.processes.len() as u64;
        let mut closed = 0;
        loop {
            let left = which.limit.map(|limit| limit - closed);
            let part = |first: u64| {
                let limit = left.map(|left| share(left, first, step));
                Command::Close(CloseFlows {
                    limit,
                    seed: which.seed.wrapping_add(first),
                    ..which.clone()
                })
            };
            let mut now = 0;
            for reply in self.call_all((0..step).map(part)).await? {
                let Reply::Closed(number) = reply else {
                    return unexpected(&reply);
                };
                now += number;
            }
            closed += now;
            // A process that has too few flows leaves some of its share to the others.
            if now == 0 || which.limit.is_none_or(|limit| closed >= limit) {
                return Ok(closed);
            }
        }
    }

    /// The counts now.
    ///
    /// # Errors
    /// A process has ended.
    pub async fn counts(&self) -> Result<Counts> {
        let mut all = vec![];
        for reply in self.call_all(self.processes.iter().map(|_| Command::Counts)).await? {
            let Reply::Counts(counts) = reply else {
                return unexpected(&reply);
            };
            all.push(counts);
        }
        Ok(sum(all))
    }

    /// Flows opened so far, by source address and pod.
    ///
    /// # Errors
    /// A process has ended.
    pub async fn by_source(&self) -> Result<BTreeMap<IpAddr, PerPod>> {
        let mut all: BTreeMap<IpAddr, PerPod> = BTreeMap::new();
        for reply in self.call_all(self.processes.iter().map(|_| Command::BySource)).await? {
            let Reply::BySource(sources) = reply else {
                return unexpected(&reply);
            };
            sources
                .into_iter()
                .for_each(|(source, pods)| merge(all.entry(source).or_default(), pods));
        }
        Ok(all)
    }

    /// The counts, some times a second while they change.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Counts> {
        self.progress.clone()
    }

    /// One command for each process, and their replies.
    async fn call_all(&self, commands: impl Iterator<Item = Command>) -> Result<Vec<Reply>> {
        try_join_all(
            self.processes
                .iter()
                .zip(commands)
                .map(|(process, command)| process.call(command)),
        )
        .await
    }
}

/// The share of process `first` when `number` things are dealt out to `step` processes in turn.
fn share(number: u64, first: u64, step: u64) -> u64 {
    number / step + u64::from(first < number % step)
}

/// Where process `index` of `number` begins with its ports: far from the others.
fn port_start(start: u16, index: usize, number: usize) -> u16 {
    let own = usize::from(PORTS) / number * index;
    ((usize::from(start) + own) % usize::from(PORTS)) as u16
}

fn sum(all: impl IntoIterator<Item = Counts>) -> Counts {
    let mut sum = Counts::default();
    all.into_iter().for_each(|counts| sum.add(counts));
    sum
}

fn unexpected<T>(reply: &Reply) -> Result<T> {
    bail!("the clients process answered something else: {reply:?}")
}

/// Refuses a request that could never end or makes no sense.
fn check(flows: &OpenFlows, target: SocketAddr) -> Result<()> {
    ensure!(!flows.sources.is_empty(), "no source addresses to open flows from");
    if let Some(other) = flows.sources.iter().find(|source| source.is_ipv4() != target.is_ipv4()) {
        bail!(
            "source address {other} is of another family than the Service's {}",
            target.ip()
        );
    }
    ensure!(flows.concurrency > 0, "a concurrency of 0 opens nothing");
    if let Some(rate) = flows.rate {
        ensure!(
            rate.is_finite() && rate > 0.0,
            "{rate} is not a rate of flows per second"
        );
    }
    if let Lifetime::Exponential { mean_ms } = flows.lifetime {
        ensure!(
            mean_ms.is_finite() && mean_ms >= 0.0,
            "{mean_ms} ms is not a mean lifetime"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        for (number, step) in [(0, 3), (1, 3), (7, 3), (20_000, 4), (5, 1)] {
            let shares: Vec<_> = (0..step).map(|first| share(number, first, step)).collect();
            assert_eq!(shares.iter().sum::<u64>(), number);
            assert!(
                shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1,
                "{shares:?}"
            );
        }
    }

    #[test]
    fn requests_without_sense_are_refused() {
        let target = "203.0.113.10:8883".parse().unwrap();
        let sources = vec!["198.18.0.1".parse().unwrap()];
        let good = OpenFlows {
            flows: 1,
            sources,
            ..OpenFlows::default()
        };
        assert!(check(&good, target).is_ok());
        let refused = |flows: OpenFlows, says: &str| {
            let error = check(&flows, target).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        };
        refused(
            OpenFlows {
                sources: vec![],
                ..good.clone()
            },
            "no source addresses",
        );
        refused(
            OpenFlows {
                sources: vec!["fd00::1".parse().unwrap()],
                ..good.clone()
            },
            "another family",
        );
        refused(
            OpenFlows {
                concurrency: 0,
                ..good.clone()
            },
            "concurrency of 0",
        );
        refused(
            OpenFlows {
                rate: Some(0.0),
                ..good.clone()
            },
            "not a rate",
        );
        refused(
            OpenFlows {
                rate: Some(f64::INFINITY),
                ..good.clone()
            },
            "not a rate",
        );
        refused(
            OpenFlows {
                lifetime: Lifetime::Exponential { mean_ms: f64::NAN },
                ..good
            },
            "not a mean lifetime",
        );
    }
}
