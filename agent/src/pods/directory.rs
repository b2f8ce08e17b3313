//! Whose pod a cgroup is: in, the ids of the sockets' cgroups as they are seen; out, pods.
//!
//! An id that is not known is looked for by a walk through the tree of cgroups, so it must be asked for while its cgroup is
//! there. What was found is remembered afterwards: the flows of a pod that is gone keep its name.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Cgroups, Pod, identity_degraded, place::Place, walk::walk};
use crate::degradation::Degradation;

/// How long an id that was not found is not looked for again. Ids are never used twice, so it will hardly be found later.
const MISSING_FOR: Duration = Duration::from_secs(60);
/// Ids that are looked for, and ids that were not found, at most.
const MAX_UNKNOWN: usize = 16_384;
/// Walks take at most one part in so many of the time, however many ids are new.
const REST: u32 = 20;

/// Bounds of what is looked through and kept.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Cgroups on the node.
    cgroups: usize,
    /// Cgroups that are gone and still remembered.
    gone: usize,
}

/// The pods of cgroups, by the cgroups' ids.
#[derive(Debug)]
pub struct PodDirectory {
    root: PathBuf,
    /// Whether `root` is the root of the whole hierarchy.
    whole_tree: bool,
    bounds: Bounds,
    known: HashMap<u64, Entry>,
    wanted: HashSet<u64>,
    /// When ids that were not found may be looked for again.
    missing: HashMap<u64, Instant>,
    /// Grows with each call: what is old and what is new.
    turn: u64,
    next_walk: Option<Instant>,
    last_walk: Walk,
}

/// What is known of a cgroup.
#[derive(Debug)]
struct Entry {
    /// `None`: it is no pod's.
    pod: Option<Arc<Pod>>,
    /// The turn of the last walk that found it.
    found: u64,
    /// The last turn in which it was found or asked for.
    used: u64,
}

/// How a walk ended.
#[derive(Debug)]
enum Walk {
    /// None yet.
    Never,
    /// All was seen; whether a kubelet's folder for pods was there.
    Whole { kubepods: bool },
    /// There are more cgroups than the bound.
    Cut,
    /// Nothing could be read.
    Failed(io::Error),
}

impl PodDirectory {
    /// Knows nothing yet.
    pub fn new(cgroups: &Cgroups) -> Self {
        let bounds = Bounds {
            cgroups: 65_536,
            gone: 65_536,
        };
        Self {
            whole_tree: cgroups.is_whole(),
            ..Self::bounded(cgroups.root().to_owned(), bounds)
        }
    }

    fn bounded(root: PathBuf, bounds: Bounds) -> Self {
        Self {
            root,
            whole_tree: false,
            bounds,
            known: HashMap::new(),
            wanted: HashSet::new(),
            missing: HashMap::new(),
            turn: 0,
            next_walk: None,
            last_walk: Walk::Never,
        }
    }

    /// Learns of the pods of these cgroup ids, if they are not known yet. Call it as soon as an id is seen, and with no ids
    /// when [`PodDirectory::due`] says so.
    ///
    /// Reads the tree of cgroups when it must, which takes about 20 microseconds a cgroup, and no more than a twentieth of the
    /// time: ids that are new shortly after others are looked for by a later call.
    pub fn resolve(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.resolve_at(ids, Instant::now());
    }

    fn resolve_at(&mut self, ids: impl IntoIterator<Item = u64>, now: Instant) {
        self.turn += 1;
        for id in ids {
            if let Some(entry) = self.known.get_mut(&id) {
                entry.used = self.turn;
            } else if id != 0 && self.wanted.len() < MAX_UNKNOWN && self.missing.get(&id).is_none_or(|&at| at <= now) {
                self.wanted.insert(id);
            }
        }
        if !self.wanted.is_empty() && self.next_walk.is_none_or(|at| at <= now) {
            self.last_walk = self.walk();
            self.next_walk = Some(now + now.elapsed() * REST);
            if !matches!(self.last_walk, Walk::Failed(_)) {
                self.note_missing(now);
                self.forget();
            }
        }
    }

    /// When ids that wait are to be looked for; `None`: none waits.
    pub fn due(&self) -> Option<Instant> {
        self.next_walk.filter(|_| !self.wanted.is_empty())
    }

    /// The pod that a cgroup belongs to. `None`: it is no pod's, or [`PodDirectory::resolve`] did not find it.
    pub fn pod(&self, cgroup_id: u64) -> Option<&Arc<Pod>> {
        self.known.get(&cgroup_id)?.pod.as_ref()
    }

    /// Those of these cgroups that are not there any more. Looks through the whole tree; finds none when it cannot, nor one that
    /// may be elsewhere: the ids are those that sockets had before this call, and ids are never used twice.
    pub fn gone(&mut self, ids: impl IntoIterator<Item = u64>) -> HashSet<u64> {
        self.turn += 1;
        self.last_walk = self.walk();
        if !matches!(self.last_walk, Walk::Whole { kubepods: true }) {
            return HashSet::new();
        }
        let gone = ids
            .into_iter()
            .filter(|id| match self.known.get(id) {
                Some(entry) => entry.found < self.turn,
                None => *id != 0 && self.whole_tree,
            })
            .collect();
        self.forget();
        gone
    }

    /// Why pods may be missing, by the last look at the tree.
    pub fn degradation(&self) -> Option<Degradation> {
        let root = self.root.display();
        Some(identity_degraded(match &self.last_walk {
            Walk::Never | Walk::Whole { kubepods: true } => return None,
            Walk::Whole { kubepods: false } => format!(
                "no kubelet keeps pods below {root}; if that is not the node's cgroup v2 but the agent's own, mount the node's \
                 /sys/fs/cgroup into the agent's container; on a node that keeps pods in cgroup v1, switch it to v2"
            ),
            Walk::Cut => format!(
                "there are more than {} cgroups below {root}; name the folder that holds the pods with --cgroup-root",
                self.bounds.cgroups
            ),
            Walk::Failed(error) => {
                format!("cannot read {root}: {error}; mount the node's cgroup v2, or name it with --cgroup-root")
            }
        }))
    }

    fn walk(&mut self) -> Walk {
        let (known, turn) = (&mut self.known, self.turn);
        let mut kubepods = false;
        let above = self.root.parent().map_or(Place::Outside, Place::of);
        let whole = walk(&self.root, self.bounds.cgroups, &above, |above, path, id| {
            let mut place = above.below(path);
            kubepods |= place != Place::Outside;
            let entry = known.entry(id).or_insert_with(|| Entry {
                pod: place.pod().cloned(),
                found: turn,
                used: turn,
            });
            (entry.found, entry.used) = (turn, turn);
            if let Some(pod) = &entry.pod {
                // One copy of a pod serves all its cgroups, also those made later.
                place = Place::Pod(Arc::clone(pod));
            }
            place
        });
        match whole {
            Ok(true) => Walk::Whole { kubepods },
            Ok(false) => Walk::Cut,
            Err(error) => Walk::Failed(error),
        }
    }

    /// What was wanted and is still not known is not looked for again for a while.
    fn note_missing(&mut self, now: Instant) {
        self.missing.retain(|_, at| *at > now);
        for id in self.wanted.drain() {
            if !self.known.contains_key(&id) && self.missing.len() < MAX_UNKNOWN {
                self.missing.insert(id, now + MISSING_FOR);
            }
        }
    }

    /// Forgets cgroups that are gone when they are too many: first those that nobody has asked for, nor found, for longest.
    fn forget(&mut self) {
        let turn = self.turn;
        let gone = self.known.iter().filter(|(_, entry)| entry.found < turn);
        let mut gone: Vec<_> = gone.map(|(&id, entry)| (entry.used, id)).collect();
        if let Some(excess) = gone.len().checked_sub(self.bounds.gone) {
            gone.sort_unstable();
            for (_, id) in gone.into_iter().take(excess) {
                self.known.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
