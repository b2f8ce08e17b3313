//! Single flows on their way to a door: in, flows that open and close, walks over all open flows, and what look-ups
//! found; out, the flows to look up next, and counts.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Instant,
};

use fastrand::Rng;
use flowskew_agent_ebpf::{DoorKey, Flow, WatchedKey};

use super::{
    counts::Counts,
    message::{Answer, FrontDoor},
    sample::{Allowance, Sample},
};

/// The flows that are open, as far as they are known.
#[derive(Debug)]
pub struct Flows {
    /// What they add up to.
    pub counts: Counts,
    tracked: HashMap<Flow, Tracked>,
    most: usize,
    /// Flows that opened in this round.
    sample: Sample<Flow>,
    /// Flows that were open already. Those that have meanwhile closed or were seen to open are passed over.
    backlog: VecDeque<Flow>,
    allowance: Allowance,
    /// Look-ups that the backlog must leave to flows that open.
    reserve: usize,
    walks: u32,
    /// While a walk goes on: flows that closed since it began, of which it may yet tell.
    closed_in_walk: Option<HashSet<Flow>>,
    /// Endpoints whose open flows were all told by the last walk.
    taken_up: HashSet<WatchedKey>,
}

#[derive(Debug)]
struct Tracked {
    state: State,
    /// The walk that told it last, or went on or was the last when it came.
    walk: u32,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Opened; to be looked up.
    Opening,
    /// Opened and closed; to be looked up.
    Ended,
    /// Open already; to be looked up.
    TakingUp,
    /// Counted at a door, as opened or as open already.
    Through { door: FrontDoor, opened: bool },
    /// Looked up in vain.
    Unknown,
}

fn key(flow: &Flow, door: FrontDoor) -> DoorKey {
    DoorKey {
        key: flow.key,
        address: door.address,
        port: door.port,
        source_class: flow.source_class,
        padding: 0,
        padding_word: 0,
    }
}

impl Flows {
    /// None yet. At most `most` are known at once, and at most `look_ups` drawn a second.
    pub fn new(counts: Counts, most: usize, look_ups: u32, now: Instant) -> Self {
        Self {
            counts,
            tracked: HashMap::new(),
            most,
            sample: Sample::new(look_ups as usize, Rng::new()),
            backlog: VecDeque::new(),
            allowance: Allowance::new(look_ups, now),
            reserve: look_ups as usize / 2,
            walks: 0,
            closed_in_walk: None,
            taken_up: HashSet::new(),
        }
    }

    /// A flow became established.
    pub fn opened(&mut self, flow: &Flow) {
        let full = self.tracked.len() >= self.most;
        match self.tracked.get_mut(flow).map(|tracked| &mut tracked.state) {
            Some(state @ State::TakingUp) => *state = State::Opening,
            Some(State::Through { door, opened }) if !*opened => {
                *opened = true;
                return self.counts.has_opened_after_all(&key(flow, *door));
            }
            Some(State::Unknown) => return self.counts.coverage.not_found += 1,
            Some(_) => return,
            None if full => return self.counts.coverage.skipped += 1,
            None => self.track(flow, State::Opening),
        }
        if let Some(surplus) = self.sample.offer(*flow) {
            self.skip(&surplus);
        }
    }

    /// A flow left ESTABLISHED.
    pub fn closed(&mut self, flow: &Flow) {
        if let Some(closed) = &mut self.closed_in_walk
            && closed.len() < self.most
        {
            closed.insert(*flow);
        }
        let Some(tracked) = self.tracked.get_mut(flow) else {
            return;
        };
        match tracked.state {
            State::Opening | State::Ended => tracked.state = State::Ended,
            State::Through { door, .. } => {
                self.counts.closed(&key(flow, door));
                self.tracked.remove(flow);
            }
            State::TakingUp | State::Unknown => drop(self.tracked.remove(flow)),
        }
    }

    /// The flows to look up in the round that ends now: first those that opened, then, with what they leave, those that
    /// were open already.
    pub fn draw(&mut self, now: Instant) -> Vec<Flow> {
        let left = self.allowance.left(now);
        let (mut drawn, surplus) = self.sample.draw(left);
        for flow in &surplus {
            self.skip(flow);
        }
        let most = drawn.len().max(left.saturating_sub(self.reserve));
        while drawn.len() < most
            && let Some(flow) = self.backlog.pop_front()
        {
            if self
                .tracked
                .get(&flow)
                .is_some_and(|tracked| matches!(tracked.state, State::TakingUp))
            {
                drawn.push(flow);
            }
        }
        self.allowance.take(drawn.len());
        drawn
    }

    /// A flow that was drawn was looked up, or could not be.
    pub fn looked_up(&mut self, flow: &Flow, answer: Option<Answer>) {
        let Some(tracked) = self.tracked.get_mut(flow) else {
            return;
        };
        let (opens, ended) = match tracked.state {
            State::Opening => (true, false),
            State::Ended => (true, true),
            State::TakingUp => (false, false),
            State::Through { .. } | State::Unknown => return,
        };
        let state = match answer {
            Some(Answer::Door(door)) if self.counts.has_room(&key(flow, door)) => {
                let key = key(flow, door);
                if opens {
                    self.counts.opened(&key);
                } else {
                    self.counts.taken_up(&key);
                }
                if ended {
                    self.counts.closed(&key);
                }
                Some(State::Through { door, opened: opens })
            }
            Some(Answer::Unknown) => {
                self.counts.coverage.not_found += u64::from(opens);
                Some(State::Unknown)
            }
            Some(Answer::Door(_)) => {
                self.counts.coverage.skipped += u64::from(opens);
                Some(State::Unknown)
            }
            None => {
                self.counts.coverage.skipped += u64::from(opens);
                None
            }
        };
        match state {
            Some(state) if !ended => tracked.state = state,
            _ => drop(self.tracked.remove(flow)),
        }
    }

    /// All open flows are about to be told, each by [`Flows::visit`].
    pub fn begin_walk(&mut self) {
        let waiting = |tracked: &Tracked| matches!(tracked.state, State::TakingUp);
        if !self.tracked.values().any(waiting) {
            self.counts.settle(&self.taken_up);
        }
        self.walks = self.walks.wrapping_add(1);
        self.closed_in_walk = Some(HashSet::new());
    }

    /// A flow is open. One that is not known is taken up if its endpoint is watched: then its end will be told.
    pub fn visit(&mut self, flow: &Flow, watched: bool) {
        if let Some(tracked) = self.tracked.get_mut(flow) {
            tracked.walk = self.walks;
            return;
        }
        let closed = self.closed_in_walk.as_ref().is_some_and(|closed| closed.contains(flow));
        let room = self.tracked.len() < self.most && self.backlog.len() < self.most;
        if watched && !closed && room {
            self.track(flow, State::TakingUp);
            self.backlog.push_back(*flow);
        }
    }

    /// The walk is over. If it was `complete`, flows that it did not tell have ended; so have flows of the agent before
    /// at `watched` endpoints that are not known once all are looked up.
    pub fn end_walk(&mut self, complete: bool, watched: &HashSet<WatchedKey>) {
        self.closed_in_walk = None;
        if !complete {
            return;
        }
        self.taken_up.clone_from(watched);
        let Self {
            tracked, counts, walks, ..
        } = self;
        tracked.retain(|flow, tracked| {
            if tracked.walk == *walks {
                return true;
            }
            match tracked.state {
                State::Opening | State::Ended => {
                    tracked.state = State::Ended;
                    return true;
                }
                State::Through { door, .. } => counts.closed(&key(flow, door)),
                State::TakingUp | State::Unknown => {}
            }
            false
        });
    }

    fn track(&mut self, flow: &Flow, state: State) {
        let walk = self.walks;
        self.tracked.insert(*flow, Tracked { state, walk });
    }

    /// A flow that opened is not looked up.
    fn skip(&mut self, flow: &Flow) {
        let waits = |tracked: &Tracked| matches!(tracked.state, State::Opening | State::Ended);
        if self.tracked.get(flow).is_some_and(waits) {
            self.tracked.remove(flow);
            self.counts.coverage.skipped += 1;
        }
    }
}
