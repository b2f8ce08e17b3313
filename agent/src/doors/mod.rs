//! Front doors: the address and port that a flow's client dialled, before kube-proxy chose the endpoint. In, the flows
//! of watched endpoints as they open and close; out, flows by door.
//!
//! The node's connection tracking knows: the direction in which the endpoint answers, as the endpoint sees it, names
//! the entry, and the entry names what the client dialled. An endpoint that is its own front door was dialled directly.
//! The way of a flow: `flows` remembers it, `sample` says whether it is looked up, the thread of `worker` asks
//! [`conntrack`], `counts` counts it, and [`memory`] keeps the counts for the agent after this one.
//!
//! Who reads the ring never waits for a look-up: what opens is put into a bounded sample, and drawn from it ten times a
//! second. Entries in a zone of connection tracking other than the usual one are not found.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use aya::maps::MapError;
use flowskew_agent_ebpf::{Address, DoorCoverage, Flow, FlowEvent, LedgerKey, WatchedKey, event_kind};
use thiserror::Error;

use self::{counts::Counts, flows::Flows, memory::Memory};
use crate::events::Sink;

pub mod conntrack;
mod counts;
mod flows;
pub mod memory;
mod message;
mod sample;
#[cfg(test)]
mod tests;
mod worker;

pub use message::{Answer, FrontDoor, Tuple as Direction};

/// So many look-ups in vain, and none that found anything, are no accident.
const ALL_IN_VAIN: u64 = 100;

/// Code of the degradation when front doors are not looked up.
pub const DEGRADATION: &str = "front-door";

/// How front doors are looked up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// File of the node's network namespace, where kube-proxy's rules are.
    pub node_netns: PathBuf,
    /// Most look-ups a second.
    pub look_ups: u32,
    /// Most open flows to know the door of, about 90 bytes each.
    pub max_flows: usize,
}

/// Why nothing can be looked up or kept.
#[derive(Debug, Error)]
pub enum DoorsError {
    /// What the agent before has left cannot be read.
    #[error("flows by front door that an agent before has counted cannot be read: {0}")]
    Memory(#[from] MapError),
    /// No thread.
    #[error("cannot start the thread that looks up front doors: {0}")]
    Thread(#[from] io::Error),
}

/// The flows of one ledger key and source class that came through one door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoorCounts {
    /// Address dialled.
    pub address: Address,
    /// Port dialled, host order.
    pub port: u16,
    /// [`flowskew_agent_ebpf::source_class`].
    pub source_class: u8,
    /// Flows that became established, cumulative in the epoch.
    pub opened: u64,
    /// Flows open now, with those that were open already when counting began.
    pub established: u64,
    /// Flows that ended, cumulative in the epoch; of those that were in `established`.
    pub closed: u64,
}

/// Flows by door at one moment. All of it is in memory: no agent after this one says less.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// By ledger key; the order of doors does not matter.
    pub doors: HashMap<LedgerKey, Vec<DoorCounts>>,
    /// What became of the flows that opened, cumulative in the epoch.
    pub coverage: DoorCoverage,
    /// Why doors are not known, with the remedy.
    pub degraded: Option<String>,
}

/// Looks up front doors until it is dropped, which ends the round that goes on and keeps its counts.
pub struct Doors {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
}

struct State {
    flows: Flows,
    memory: Box<dyn Memory>,
    conntrack_trouble: Option<String>,
    memory_trouble: Option<String>,
}

impl Doors {
    /// Goes on from what is in memory.
    pub fn start(settings: Settings, memory: impl Memory + 'static) -> Result<Self, DoorsError> {
        let counts = Counts::load(&memory)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                flows: Flows::new(counts, settings.max_flows, settings.look_ups, Instant::now()),
                memory: Box::new(memory),
                conntrack_trouble: None,
                memory_trouble: None,
            }),
            stop: AtomicBool::new(false),
        });
        let worker = thread::Builder::new().name("front-doors".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || worker::work(&shared, &settings)
        })?;
        Ok(Self {
            shared,
            worker: Some(worker),
        })
    }

    /// What takes the records of the ring. Never waits.
    pub fn sink(&self) -> Sink {
        let shared = Arc::clone(&self.shared);
        Box::new(move |event: &FlowEvent| {
            let mut state = shared.lock();
            match event.kind {
                event_kind::OPENED => state.flows.opened(&event.flow),
                event_kind::CLOSED => state.flows.closed(&event.flow),
                _ => {}
            }
        })
    }

    /// Puts right what the ring did not tell: flows that are not open any more are counted as closed, and open flows of
    /// watched endpoints that are not known are looked up, and counted as established but never as opened. For the
    /// start of an agent, as soon as it knows which endpoints are watched, and then from time to time.
    ///
    /// `walk` calls its argument once for each open flow, watched or not. After its error nothing is taken for closed.
    pub fn reconcile<E>(
        &self,
        watched: &HashSet<WatchedKey>,
        walk: impl FnOnce(&mut dyn FnMut(&Flow)) -> Result<(), E>,
    ) -> Result<(), E> {
        self.shared.lock().flows.begin_walk();
        let walked = walk(&mut |flow| {
            let watched = watched.contains(&flow.key.endpoint());
            self.shared.lock().flows.visit(flow, watched);
        });
        let state = &mut *self.shared.lock();
        state.flows.end_walk(walked.is_ok(), watched);
        if let Err(error) = state.flows.counts.make_room(&mut *state.memory, watched) {
            tracing::warn!("doors of endpoints that are gone keep their room: {error}");
        }
        walked
    }

    /// Flows by door now. Flows that opened in the last moments are not among them: take it before the ledger's
    /// counters, and no door has more than its ledger key.
    pub fn snapshot(&self) -> Snapshot {
        let mut state = self.shared.lock();
        state.save();
        let coverage = state.flows.counts.coverage;
        let in_vain = (coverage.found == 0 && coverage.not_found >= ALL_IN_VAIN).then(|| {
            "the node's connection tracking knows none of the flows: is --node-netns the namespace of the node, and is it \
             kube-proxy that forwards to pods?"
                .to_owned()
        });
        Snapshot {
            doors: state.flows.counts.by_ledger_key(),
            coverage,
            degraded: state
                .conntrack_trouble
                .clone()
                .or(in_vain)
                .or(state.memory_trouble.clone()),
        }
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            worker.thread().unpark();
            if worker.join().is_err() {
                tracing::error!("the thread that looks up front doors has failed");
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics; if it did, counts would be wrong by one flow.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn save(&mut self) {
        let trouble = self.flows.counts.save(&mut *self.memory).err();
        let trouble = trouble.map(|error| format!("flows by front door will be missing after a restart: {error}"));
        note(&mut self.memory_trouble, trouble);
    }
}

/// Replaces a trouble by another or none, and logs one that is new.
fn note(old: &mut Option<String>, new: Option<String>) {
    if let Some(new) = &new
        && old.as_ref() != Some(new)
    {
        tracing::warn!("{new}");
    }
    *old = new;
}
