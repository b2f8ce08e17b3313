//! The one task that owns all that changes: the cluster view, the nodes' ledgers, the assignments. Events and commands
//! enter; answers leave through the reply channels, assignments through a watch channel for each agent.
//!
//! Events wait in a bounded queue, and a full queue makes the streams wait: no report is dropped. A report is
//! acknowledged after it has been counted, so an answer covers everything that was acknowledged before the question.

mod build;
mod changes;
mod claims;
mod figures;
mod index;
mod messages;
mod nodes;
mod tally;
mod unserved;
mod windows;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

pub use figures::{EndpointFigures, Figures, GoneFigures, NodeFigures, PortFigures};
pub use messages::{
    Admission, Command, Event, Handle, NodeSnapshot, Scope, Snapshot, Totals, Unavailable, WindowStart,
};
pub use tally::{DoorTally, Tally};
pub use unserved::UnservedFigures;
pub use windows::{AskedWindow, STANDARD_WINDOWS};

use crate::assignment::{self, Plan};
use crate::clients::{ClientKey, ClientKeys};
use crate::cluster::ClusterView;
use crate::now_ms;
use changes::Changes;
use index::Index;
use nodes::Nodes;

const EVENT_QUEUE: usize = 256;
const COMMAND_QUEUE: usize = 64;
const HOUSEKEEPING: Duration = Duration::from_secs(10);

/// What the owner needs to know.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Width of a time bucket.
    pub bucket: Duration,
    /// How often agents report.
    pub report_interval: Duration,
    /// Single flows of clients to keep.
    pub client_events: u32,
    /// How long clients are hashed under one key before another takes over.
    pub client_key_rotation: Duration,
}

struct State {
    settings: Settings,
    /// `None` until the API server has told everything once.
    view: Option<ClusterView>,
    plan: Option<Plan>,
    nodes: Nodes,
    /// Of the view.
    index: Index,
    changes: Changes,
    client_keys: ClientKeys,
}

/// The owner, as a future to spawn, and the ways to reach it. It ends when every sender of events is gone.
pub fn owner(settings: Settings) -> (mpsc::Sender<Event>, Handle, impl Future<Output = ()> + Send) {
    let (events, event_queue) = mpsc::channel(EVENT_QUEUE);
    let (commands, command_queue) = mpsc::channel(COMMAND_QUEUE);
    let running = State::new(settings).run(event_queue, command_queue);
    (events, Handle::new(commands), running)
}

impl State {
    fn new(settings: Settings) -> Self {
        Self {
            settings,
            view: None,
            plan: None,
            nodes: Nodes::new(settings),
            index: Index::default(),
            changes: Changes::default(),
            client_keys: ClientKeys::default(),
        }
    }

    async fn run(mut self, mut events: mpsc::Receiver<Event>, mut commands: mpsc::Receiver<Command>) {
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.rotate(now_ms());
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.apply(event),
                    None => break,
                },
                Some(command) = commands.recv() => self.answer(command),
                _tick = housekeeping.tick() => {
                    let now_ms = now_ms();
                    self.nodes.expire(now_ms, self.view.as_ref());
                    self.changes.expire(now_ms);
                    self.rotate(now_ms);
                }
            }
        }
    }

    fn apply(&mut self, event: Event) {
        // Replies fail when their stream has ended meanwhile, which its own Disconnected will tell.
        match event {
            Event::Cluster { view, reply } => {
                self.see(view);
                let _ended = reply.send(());
            }
            Event::Connected { hello, stream, reply } => {
                let _ended =
                    reply.send(
                        self.nodes
                            .connect(hello, stream, self.plan.as_ref(), self.client_keys.in_use()),
                    );
            }
            Event::Report {
                node,
                stream,
                report,
                received_ms,
                reply,
            } => {
                if self.nodes.take(&node, stream, *report, received_ms, &self.index) {
                    let _ended = reply.send(());
                }
            }
            Event::Disconnected { node, stream } => self.nodes.disconnect(&node, stream),
        }
    }

    /// Tells the agents when the keys of clients change.
    fn rotate(&mut self, now_ms: u64) {
        let rotation = self.settings.client_key_rotation;
        match self.client_keys.advance(now_ms, rotation, ClientKey::random) {
            Ok(false) => {}
            Ok(true) => {
                if let Some(plan) = &self.plan {
                    self.nodes.assign(plan, self.client_keys.in_use());
                }
            }
            Err(error) => {
                tracing::error!("no new key for hashing clients, trying again soon: no random numbers: {error}")
            }
        }
    }

    fn see(&mut self, view: ClusterView) {
        if self.view.as_ref() == Some(&view) {
            return;
        }
        if let Some(before) = &self.view {
            self.changes.compare(before, &view, now_ms());
        }
        self.index = Index::of(&view);
        self.nodes.bind(&self.index);
        let plan = assignment::plan(&view);
        if self.plan.as_ref() != Some(&plan) {
            if plan.endpoints_left_out + plan.prefixes_left_out + plan.front_doors_left_out > 0 {
                tracing::warn!(
                    endpoints = plan.endpoints_left_out,
                    prefixes = plan.prefixes_left_out,
                    front_doors = plan.front_doors_left_out,
                    "the cluster is too large for the assignments: these were left out"
                );
            }
            self.nodes.assign(&plan, self.client_keys.in_use());
            self.plan = Some(plan);
        }
        self.view = Some(view);
    }

    fn answer(&self, command: Command) {
        // Nobody waits any more when sending a reply fails.
        match command {
            Command::Figures { scope, windows, reply } => {
                let now_ms = now_ms();
                let figures = self
                    .view
                    .as_ref()
                    .map(|view| build::figures(self, view, &scope, &windows, now_ms));
                let _ended = reply.send(figures);
            }
            Command::Nodes { reply } => {
                let _ended = reply.send(self.nodes.snapshots(now_ms(), self.view.as_ref()));
            }
            Command::Metrics { windows, reply } => {
                let now_ms = now_ms();
                let _ended = reply.send(Snapshot {
                    figures: self
                        .view
                        .as_ref()
                        .map(|view| build::figures(self, view, &Scope::All, &windows, now_ms)),
                    nodes: self.nodes.snapshots(now_ms, self.view.as_ref()),
                    totals: Totals {
                        endpoints_left_out: self.plan.as_ref().map_or(0, |plan| plan.endpoints_left_out),
                        prefixes_left_out: self.plan.as_ref().map_or(0, |plan| plan.prefixes_left_out),
                        front_doors_left_out: self.plan.as_ref().map_or(0, |plan| plan.front_doors_left_out),
                        ..self.nodes.totals()
                    },
                });
            }
        }
    }
}
