//! The clients process: in, requests in lines of JSON; out, replies and progress in lines of JSON.
//!
//! One task owns the ledger. Each request to open has a task that starts clients at its rate; each client is a task.

use std::{
    io::{self, ErrorKind},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::unix::pipe::{Receiver, Sender},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    Target,
    connection::Ports,
    flow::{Client, Event},
    ledger::{Due, Ledger},
    order::Order,
    protocol::{CloseHow, Command, Counts, Message, OpenFlows, Reply, Request},
};

const PROGRESS: Duration = Duration::from_millis(200);
const QUEUE: usize = 1024;

/// A client that a request to open has come to: the ledger gives it a number and starts it.
struct Next {
    request: u64,
    source: IpAddr,
    random: Rng,
    flows: Arc<OpenFlows>,
    permit: OwnedSemaphorePermit,
}

/// See the module.
pub struct Worker {
    target: Target,
    ports: Arc<Ports>,
    lab: Sender,
    ledger: Ledger,
    clients: u64,
    attempting: Arc<AtomicU64>,
    shown: Counts,
}

impl Worker {
    /// Clients of `target`, with nothing open. Each source address begins with port number `start`.
    pub fn new(target: Target, start: u16, lab: Sender) -> Self {
        Self {
            target,
            ports: Arc::new(Ports::new(start)),
            lab,
            ledger: Ledger::default(),
            clients: 0,
            attempting: Arc::default(),
            shown: Counts::default(),
        }
    }

    /// Serves until the lab closes its end.
    ///
    /// # Errors
    /// The lab sends something that is not a request.
    pub async fn run(mut self, requests: Receiver) -> Result<()> {
        match self.serve(requests).await {
            Err(error) if lab_is_gone(&error) => Ok(()),
            result => result,
        }
    }

    async fn serve(&mut self, requests: Receiver) -> Result<()> {
        let mut requests = BufReader::new(requests).lines();
        let (starter, mut next) = mpsc::channel::<Next>(QUEUE);
        let (reporter, mut events) = mpsc::channel::<Event>(QUEUE);
        let mut progress = interval(PROGRESS);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                line = requests.next_line() => {
                    let Some(line) = line.context("cannot read from the lab")? else { return Ok(()) };
                    let request = serde_json::from_str(&line).with_context(|| format!("not a request: {line:.200}"))?;
                    let due = self.request(request, &starter);
                    self.reply(due).await?;
                }
                Some(next) = next.recv() => self.start(next, &reporter),
                Some(event) = events.recv() => {
                    let due = self.ledger.book(event);
                    self.reply(due).await?;
                }
                _ = progress.tick() => {
                    let counts = self.counts();
                    if counts != self.shown {
                        self.shown = counts.clone();
                        self.send(&Message::Progress(counts)).await?;
                    }
                }
            }
        }
    }

    fn request(&mut self, request: Request, starter: &mpsc::Sender<Next>) -> Due {
        let id = request.id;
        match request.command {
            Command::Open { flows, first, step } => {
                let due = self.ledger.open(id, flows.flows);
                tokio::spawn(pace(id, Arc::new(flows), first, step, starter.clone()));
                due
            }
            Command::Close(which) => self.ledger.close(id, &which),
            Command::Counts => Some((id, Reply::Counts(self.counts()))),
            Command::BySource => Some((id, Reply::BySource(self.ledger.by_source()))),
        }
    }

    fn start(&mut self, next: Next, events: &mpsc::Sender<Event>) {
        let Next {
            request,
            source,
            random,
            flows,
            permit,
        } = next;
        self.clients += 1;
        let order: oneshot::Receiver<CloseHow> = self.ledger.start(request, self.clients, &flows.group, source);
        let client = Client {
            flow: self.clients,
            source,
            target: self.target,
            ports: Arc::clone(&self.ports),
            lifetime: flows.lifetime,
            close: flows.close,
            reconnect: flows.reconnect,
            connect_timeout: Duration::from_millis(flows.connect_timeout_ms),
            datagram_every: flows.datagram_every_ms.map(Duration::from_millis),
            random,
            events: events.clone(),
            order,
            attempting: Arc::clone(&self.attempting),
        };
        tokio::spawn(client.run(permit));
    }

    fn counts(&self) -> Counts {
        self.ledger.counts(self.attempting.load(Ordering::Relaxed))
    }

    async fn reply(&mut self, due: Due) -> Result<()> {
        match due {
            Some((id, reply)) => self.send(&Message::Reply { id, reply }).await,
            None => Ok(()),
        }
    }

    async fn send(&mut self, message: &Message) -> Result<()> {
        let mut line = serde_json::to_vec(message).context("cannot write a message")?;
        line.push(b'\n');
        self.lab.write_all(&line).await.context("the lab does not read")
    }
}

/// There was something left to say when the lab had closed its end.
fn lab_is_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Hands over the clients of one request at its rate, and no more at once than it allows.
async fn pace(request: u64, flows: Arc<OpenFlows>, first: u64, step: u64, starter: mpsc::Sender<Next>) {
    let mut random = Rng::with_seed(flows.seed);
    let mut order = Order::new(flows.pick, flows.sources.len(), random.fork());
    let permits = Arc::new(Semaphore::new(flows.concurrency));
    let since = Instant::now();
    for number in 0..flows.flows {
        if let Some(rate) = flows.rate {
            // Above some thousand a second the sleeps end in bursts of the timer's granularity.
            sleep_until(since + Duration::from_secs_f64(number as f64 / rate)).await;
        }
        // The semaphore is never closed; the receiver is gone only when the process ends.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let next = Next {
            request,
            source: flows.sources[order.source(first + number * step)],
            random: random.fork(),
            flows: Arc::clone(&flows),
            permit,
        };
        if starter.send(next).await.is_err() {
            return;
        }
    }
}
