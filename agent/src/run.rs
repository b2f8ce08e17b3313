//! `flowskew-agent run`: one task owns the kernel programs, the queue of reports and the stream's state. In, ticks, what
//! happens upstream, and signals; out, reports and what is published for /metrics.

use std::time::Duration;

use anyhow::Context;
use flowskew_agent_ebpf::AgentMemory;
use flowskew_proto::v1::{AgentMessage, Hello, agent_message, aggregator_message::Message};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, sleep_until},
};

use crate::{
    config::RunConfig,
    convert,
    degradation::Degradation,
    events::{self, EventMetrics},
    http,
    kernel::{
        Kernel, KernelError, Origin, now_ms,
        pins::{self, PinError, Pins},
        requirements,
    },
    metrics::Published,
    observer::Observer,
    report::ReportQueue,
    upstream::{self, Event},
};

/// Time between two looks for flows whose end was not seen.
const RECONCILE: Duration = Duration::from_secs(60);
/// Bounds of the time between two looks for silent UDP flows.
const SHORTEST_EXPIRE: Duration = Duration::from_millis(250);
const LONGEST_EXPIRE: Duration = Duration::from_secs(10);

/// Reports' worth of what clients did that wait for the aggregator, when each is full.
const WAITING_REPORTS: usize = 10;

/// Runs until SIGTERM or SIGINT.
pub async fn run(config: RunConfig) -> anyhow::Result<()> {
    let endpoint = config.aggregator.as_deref().map(upstream::endpoint).transpose()?;
    let listener = http::bind(config.http_listen).await?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;

    let (pins, unpinned) = hold_pins(&config)?;
    let mut kernel = Kernel::start(&config.maps, pins.as_ref())?;
    if config.maps.kernel_log {
        kernel.forward_log()?;
    }
    let event_metrics = EventMetrics::default();
    let ring = kernel.take_events()?;
    let memory = kernel.memory()?;
    let origin = kernel.origin();
    let observer = Observer::new(kernel, &config, unpinned)?;
    let (cgroup_sink, mut cgroups) = events::cgroups();
    let sinks: Vec<_> = observer.sinks().chain([cgroup_sink]).collect();
    tracing::info!(
        node = config.node,
        origin = origin.label(),
        "counting; kernel {}",
        requirements::kernel_release()
    );

    let (events, mut upstream_events) = mpsc::channel(upstream::IN_FLIGHT * 2);
    let has_aggregator = endpoint.is_some();
    if let Some(endpoint) = endpoint {
        tokio::spawn(upstream::run(endpoint, hello(&config, memory.epoch, origin), events));
    } else {
        tracing::warn!(
            "no --aggregator: nothing is reported, only /metrics on {}",
            config.http_listen
        );
    }
    let (publisher, published) = watch::channel(Published {
        origin: Some(origin),
        ..Published::default()
    });
    let mut http = tokio::spawn(http::serve(listener, published, event_metrics.clone()));
    tokio::spawn(events::drain(ring, event_metrics, sinks));

    let mut agent = Agent {
        queue: ReportQueue::new(
            memory.epoch,
            memory.epoch_started_at_ms,
            memory.sequence,
            config.report_queue as usize,
            WAITING_REPORTS * config.client_events as usize,
        ),
        ticker: ticker(config.report_interval),
        observer,
        stream: None,
        publisher,
        config,
    };
    let mut ready_at = Instant::now();
    if memory.seeded == 0 {
        if has_aggregator {
            ready_at += agent.config.assignment_wait;
        } else {
            agent.seed()?;
        }
    }
    let mut reconcile = ticker(RECONCILE);
    let mut expire = ticker((agent.config.udp_idle / 4).clamp(SHORTEST_EXPIRE, LONGEST_EXPIRE));
    loop {
        let resolve_at = agent.observer.resolve_due().map(Instant::from_std);
        tokio::select! {
            () = sleep_until(ready_at), if !agent.ready() => agent.become_ready()?,
            _ = agent.ticker.tick(), if agent.ready() => agent.report()?,
            Some(event) = upstream_events.recv() => agent.upstream(event)?,
            Some(cgroup) = cgroups.recv() => agent.observer.resolve([cgroup]),
            () = sleep_until(resolve_at.unwrap_or_else(Instant::now)), if resolve_at.is_some() => agent.observer.resolve([]),
            _ = expire.tick() => agent.observer.expire(),
            _ = reconcile.tick(), if agent.ready() => agent.tend(),
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            stopped = &mut http => stopped?.context("the HTTP port stopped")?,
        }
    }
    agent.shut_down(&mut upstream_events).await
}

/// The pins of this node; without, where nothing can be pinned though it should.
fn hold_pins(config: &RunConfig) -> Result<(Option<Pins>, Option<Degradation>), PinError> {
    if config.no_pin {
        match pins::clean_up(&config.pins.pin_dir) {
            Ok(0) => {}
            Ok(removed) => tracing::info!("ended what an agent before has left counting: {removed} pins removed"),
            Err(error @ PinError::Held(_)) => return Err(error),
            // What cannot hold pins has none.
            Err(error) => tracing::debug!("nothing to clean up: {error}"),
        }
        return Ok((None, None));
    }
    match Pins::hold(&config.pins.pin_dir) {
        Ok(pins) => Ok((Some(pins), None)),
        Err(error @ PinError::Held(_)) => Err(error),
        Err(error) => Ok((
            None,
            Some(Degradation {
                code: "pins",
                sentence: format!("flows that open and close while no agent runs will be missing: {error}"),
            }),
        )),
    }
}

fn hello(config: &RunConfig, epoch: u64, origin: Origin) -> Hello {
    Hello {
        node: config.node.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        abi_version: flowskew_agent_ebpf::ABI_VERSION,
        kernel_release: requirements::kernel_release(),
        epoch,
        origin: convert::origin(origin).into(),
    }
}

fn ticker(interval: Duration) -> Interval {
    let mut ticker = interval_at(Instant::now() + interval, interval);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticker
}

/// The agent's state, all of it.
struct Agent {
    config: RunConfig,
    observer: Observer,
    queue: ReportQueue,
    ticker: Interval,
    stream: Option<mpsc::Sender<AgentMessage>>,
    publisher: watch::Sender<Published>,
}

impl Agent {
    fn ready(&self) -> bool {
        self.publisher.borrow().ready
    }

    /// Takes up open flows. Not before the first assignment, when there is an aggregator: a flow keeps the source class that it
    /// is entered with. Without this the agent still counts what opens from now on.
    fn seed(&mut self) -> Result<(), KernelError> {
        let failed = self.observer.seed()?;
        self.publisher
            .send_modify(|published| published.seeding_failed = failed);
        Ok(())
    }

    fn become_ready(&mut self) -> Result<(), KernelError> {
        self.publisher.send_modify(|published| published.ready = true);
        self.report()
    }

    /// Reads the counters and queues a report.
    fn report(&mut self) -> Result<(), KernelError> {
        let mut observation = self.observer.observe()?;
        let activity = std::mem::take(&mut observation.activity);
        if self.config.aggregator.is_some() {
            self.queue.push(&observation, activity);
            // Before it can be sent: no sequence is ever given twice.
            let sequence = self.queue.last_sequence();
            let kernel = self.observer.kernel();
            let memory = kernel.memory()?;
            kernel.remember(AgentMemory { sequence, ..memory })?;
        }
        self.publisher
            .send_modify(|published| published.observation = observation);
        self.send_due();
        Ok(())
    }

    /// Does what counting does not depend on.
    fn tend(&mut self) {
        let mut tended = self.observer.reconcile();
        // What is forgotten must have arrived.
        if tended.is_ok() && self.queue.pending() == 0 {
            tended = self.observer.forget();
        }
        if let Err(error) = tended {
            tracing::warn!("looking for flows and counters that are gone: {error}");
        }
    }

    /// Sends as many reports as the stream takes.
    fn send_due(&mut self) {
        if let Some(stream) = &self.stream {
            while let Ok(slot) = stream.try_reserve() {
                let Some(report) = self.queue.next(now_ms()) else { break };
                slot.send(AgentMessage {
                    message: Some(agent_message::Message::Report(report)),
                });
            }
        }
        self.publisher.send_modify(|published| {
            published.connected = self.stream.is_some();
            published.reports_pending = self.queue.pending();
            published.reports_acknowledged = self.queue.acknowledgements();
            published.reports_dropped = self.queue.dropped();
            published.activity_dropped = self.queue.activity_dropped();
        });
    }

    fn upstream(&mut self, event: Event) -> Result<(), KernelError> {
        match event {
            Event::Connected(stream) => {
                tracing::info!("connected to the aggregator");
                self.queue.connected();
                self.stream = Some(stream);
            }
            Event::Disconnected(reason) => {
                // Once for each loss, not for each attempt.
                if self.stream.take().is_some() || !self.ready() {
                    tracing::warn!("no stream to the aggregator, reports are kept: {reason}");
                } else {
                    tracing::debug!("still no stream to the aggregator: {reason}");
                }
            }
            Event::Message(Message::Ack(ack)) => self.queue.acknowledge(ack.epoch, ack.sequence),
            Event::Message(Message::Assignment(assignment)) => {
                self.assign(convert::assignment(assignment))?;
                if self.observer.kernel().memory()?.seeded == 0 {
                    self.seed()?;
                }
                if !self.ready() {
                    return self.become_ready();
                }
            }
        }
        self.send_due();
        Ok(())
    }

    fn assign(&mut self, assignment: crate::assignment::Assignment) -> Result<(), KernelError> {
        if assignment.ignored > 0 {
            tracing::warn!(
                "{} items of the assignment were malformed or too many, and are ignored",
                assignment.ignored
            );
        }
        let failed = self.observer.assign(&assignment).err();
        if let Some(error) = &failed {
            tracing::error!("the assignment could not be set, the one before stays in part: {error}");
        }
        self.publisher
            .send_modify(|published| published.assignment_failed = failed.is_some());
        let interval = assignment
            .report_interval_ms
            .map_or(self.config.report_interval, Duration::from_millis);
        if interval != self.ticker.period() && interval >= Duration::from_millis(100) {
            self.ticker = ticker(interval);
        }
        tracing::info!(
            version = assignment.version,
            endpoints = assignment.endpoints.len(),
            prefixes = assignment.prefixes.len(),
            ?interval,
            "assignment"
        );
        self.publisher
            .send_modify(|published| published.endpoints = Some(assignment.endpoints));
        Ok(())
    }

    /// A last report, and time for the aggregator to take it.
    async fn shut_down(mut self, events: &mut mpsc::Receiver<Event>) -> anyhow::Result<()> {
        if self.ready() {
            // What happened until now is in the ring.
            sleep(2 * events::POLL).await;
            self.report()?;
        }
        let deadline = Instant::now() + self.config.drain_timeout;
        while self.queue.pending() > 0 && self.stream.is_some() {
            tokio::select! {
                Some(event) = events.recv() => self.upstream(event)?,
                () = sleep_until(deadline) => break,
            }
        }
        match self.queue.pending() {
            0 => tracing::info!("stopped"),
            left => tracing::warn!("stopped; {left} reports were not taken by the aggregator"),
        }
        Ok(())
    }
}
