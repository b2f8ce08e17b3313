//! Everything that this node can tell, at one moment: in, the kernel's counters, whose pod each is, the doors that flows came by;
//! out, an [`Observation`], which becomes a report and what /metrics shows.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use flowskew_agent_ebpf::{AgentMemory, LedgerKey, LedgerValue, Settings, UnservedKey, WatchedKey};
use rustix::fs::stat;

use crate::{
    assignment::Assignment,
    clients::{self, Activity, Clients, ages::Ages},
    config::RunConfig,
    degradation::{Degradation, brief},
    doors::{self, Doors},
    forgetting::Forgetting,
    kernel::{
        Kernel, KernelError, Snapshot,
        requirements::{self, State},
    },
    pods::{Cgroups, Pod, PodDirectory, PodLoad, PodLoads},
};

/// What this node can tell at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// The kernel's counters.
    pub kernel: Snapshot,
    /// The pods of the counters' cgroups, as far as they are known.
    pub pods: HashMap<u64, Arc<Pod>>,
    /// How busy the pods of the assigned endpoints are.
    pub loads: Vec<PodLoad>,
    /// Flows by front door; `None`: not looked up.
    pub doors: Option<doors::Snapshot>,
    /// What single clients did since the observation before. Large: whoever has told it leaves it out.
    pub activity: Activity,
    /// How much of that was told so far.
    pub clients: clients::Totals,
    /// How old the open flows of the assigned endpoints are.
    pub ages: Arc<clients::ages::Reading>,
    /// What the agent cannot do here.
    pub degradations: Vec<Degradation>,
}

/// The kernel programs and all that explains their counters.
pub struct Observer {
    kernel: Kernel,
    pods: Option<(PodDirectory, PodLoads)>,
    doors: Option<Doors>,
    clients: Clients,
    ages: Ages,
    endpoints: HashSet<WatchedKey>,
    flows_over: Forgetting<LedgerKey, LedgerValue>,
    unserved_over: Forgetting<UnservedKey, u64>,
    /// What cannot change while the agent runs.
    standing: Vec<Degradation>,
    seeding: Option<Degradation>,
    expiry: Option<Degradation>,
    /// The kernel does not take programs that walk over maps.
    walks_refused: bool,
    /// Where Services can be dialled: attempts elsewhere are history.
    front_doors: HashSet<WatchedKey>,
}

impl Observer {
    /// Takes the programs, and finds what explains their counters; what is not there is a degradation. `unpinned`: why the programs
    /// end with the agent, though they should not.
    pub fn new(mut kernel: Kernel, config: &RunConfig, unpinned: Option<Degradation>) -> Result<Self, KernelError> {
        let mut standing = Vec::from_iter(unpinned);
        let pods = match Cgroups::find(config.cgroup_root.as_deref()) {
            Ok(cgroups) => {
                kernel.set_cgroup_root(cgroups.root().to_owned());
                let directory = PodDirectory::new(&cgroups);
                Some((directory, PodLoads::new(cgroups, &config.node_netns)))
            }
            Err(error) => {
                standing.push(error.degradation());
                None
            }
        };
        let node_netns = match stat(&config.node_netns) {
            // The number of a namespace fits 32 bits.
            Ok(found) => u32::try_from(found.st_ino).unwrap_or(0),
            Err(error) => {
                standing.push(Degradation {
                    code: "unserved",
                    sentence: format!(
                        "attempts that the node's rules drop are not counted: {}: {error}; name the node's network namespace \
                         with --node-netns",
                        config.node_netns.display()
                    ),
                });
                0
            }
        };
        kernel.set(Settings {
            udp_idle_ns: u64::try_from(config.udp_idle.as_nanos()).unwrap_or(u64::MAX),
            node_netns,
            padding: 0,
        })?;
        let doors = if config.no_front_doors {
            None
        } else {
            let settings = doors::Settings {
                node_netns: config.node_netns.clone(),
                look_ups: config.door_lookups,
                max_flows: config.maps.max_flows as usize,
            };
            match Doors::start(settings, kernel.take_door_memory()?) {
                Ok(doors) => Some(doors),
                Err(error) => {
                    standing.push(Degradation {
                        code: doors::DEGRADATION,
                        sentence: error.to_string(),
                    });
                    None
                }
            }
        };
        for degradation in standing.iter().chain(kernel.degradations()) {
            tracing::warn!("{}", degradation.sentence);
        }
        let mut observer = Self {
            kernel,
            pods,
            doors,
            clients: Clients::new(config.client_events as usize, config.client_addresses),
            ages: Ages::default(),
            endpoints: HashSet::new(),
            flows_over: Forgetting::default(),
            unserved_over: Forgetting::default(),
            standing,
            seeding: seeding_is_partial(),
            expiry: None,
            walks_refused: false,
            front_doors: HashSet::new(),
        };
        if observer.kernel.memory()?.seeded == SEEDING_FAILED {
            observer.seeding = Some(seeding_failed("it failed when counting began"));
        }
        // Pods that were counted while no agent ran may end soon.
        let counted = observer.kernel.snapshot()?;
        observer.resolve(counted.entries.iter().map(|(key, _)| key.cgroup_id));
        Ok(observer)
    }

    /// The kernel programs.
    pub fn kernel(&mut self) -> &mut Kernel {
        &mut self.kernel
    }

    /// What takes the records of the ring to those who explain the counters.
    pub fn sinks(&self) -> impl Iterator<Item = crate::events::Sink> {
        let doors = self.doors.as_ref().map(Doors::sink);
        doors.into_iter().chain([self.clients.sink()])
    }

    /// Makes the programs follow an assignment.
    pub fn assign(&mut self, assignment: &Assignment) -> Result<(), KernelError> {
        self.clients.set_keys(&assignment.client_keys);
        assignment.apply(&mut self.kernel)?;
        let changed = self.endpoints != assignment.endpoints;
        self.endpoints.clone_from(&assignment.endpoints);
        self.front_doors.clone_from(&assignment.front_doors);
        // Flows that are open at an endpoint that was not watched until now have to be looked up.
        if changed { self.reconcile_doors() } else { Ok(()) }
    }

    /// Takes up the flows that are open already. Why it could not, if so.
    pub fn seed(&mut self) -> Result<Option<String>, KernelError> {
        let failed = self.kernel.seed().err().map(|error| brief(&error));
        if let Some(error) = &failed {
            let degradation = seeding_failed(error);
            tracing::warn!("{}", degradation.sentence);
            self.seeding = Some(degradation);
        }
        let memory = self.kernel.memory()?;
        self.kernel.remember(AgentMemory {
            seeded: if failed.is_some() { SEEDING_FAILED } else { SEEDED },
            ..memory
        })?;
        self.reconcile_doors()?;
        Ok(failed)
    }

    /// Looks for flows whose end was not seen, in the kernel's table and among the doors.
    pub fn reconcile(&mut self) -> Result<(), KernelError> {
        if !self.walks_refused {
            let reconciled = self.kernel.reconcile();
            self.note_expiry(reconciled, "flows whose end was not seen stay in 'established'");
        }
        self.reconcile_doors()
    }

    /// Closes UDP flows that are silent.
    pub fn expire(&mut self) {
        if self.walks_refused {
            return;
        }
        let expired = self.kernel.expire();
        self.note_expiry(
            expired,
            "UDP flows that are silent are closed only when their client speaks again",
        );
    }

    fn note_expiry(&mut self, result: Result<(), KernelError>, meaning: &str) {
        // A program that was refused once is refused again, at the price of its verification.
        self.walks_refused = matches!(result, Err(KernelError::Program { .. }));
        let degradation = result.err().map(|error| Degradation {
            code: "expiry",
            sentence: format!(
                "{meaning}; programs can walk over maps since Linux 5.13: {}",
                brief(&error)
            ),
        });
        if let (Some(new), None) = (&degradation, &self.expiry) {
            tracing::warn!("{}", new.sentence);
        }
        self.expiry = degradation;
    }

    /// Forgets counters that can never change again: of cgroups that are gone, when all has been reported for a while.
    pub fn forget(&mut self) -> Result<(), KernelError> {
        let Some((directory, _)) = &mut self.pods else {
            return Ok(());
        };
        let Snapshot { entries, unserved, .. } = self.kernel.snapshot()?;
        let gone = directory.gone(entries.iter().map(|(key, _)| key.cgroup_id));
        let now = Instant::now();
        let is_over = |(key, value): &(LedgerKey, LedgerValue)| {
            gone.contains(&key.cgroup_id) && value.classes.iter().all(|counts| counts.established == 0)
        };
        for key in self.flows_over.due(entries.into_iter().filter(is_over), now) {
            self.kernel.forget(&key)?;
        }
        let is_history = |(key, _): &(UnservedKey, u64)| {
            !self.endpoints.contains(&key.dialled) && !self.front_doors.contains(&key.dialled)
        };
        for key in self.unserved_over.due(unserved.into_iter().filter(is_history), now) {
            self.kernel.forget_unserved(&key)?;
        }
        Ok(())
    }

    fn reconcile_doors(&mut self) -> Result<(), KernelError> {
        match &self.doors {
            Some(doors) => doors.reconcile(&self.endpoints, |visit| self.kernel.visit_flows(visit)),
            None => Ok(()),
        }
    }

    /// Learns whose pod a cgroup is, while it is there.
    pub fn resolve(&mut self, cgroup: impl IntoIterator<Item = u64>) {
        if let Some((directory, _)) = &mut self.pods {
            directory.resolve(cgroup);
        }
    }

    /// When to call [`Observer::resolve`] without a cgroup.
    pub fn resolve_due(&self) -> Option<Instant> {
        self.pods.as_ref().and_then(|(directory, _)| directory.due())
    }

    /// Reads everything.
    pub fn observe(&mut self) -> Result<Observation, KernelError> {
        // Before the kernel's counters, so that no door and no client has more flows than its endpoint.
        let activity = self.clients.take();
        let doors = self.doors.as_ref().map(Doors::snapshot);
        self.kernel.note_skipped()?;
        let kernel = self.kernel.snapshot()?;
        let mut observation = Observation {
            degradations: self.degradations(doors.as_ref()),
            kernel,
            doors,
            activity,
            clients: self.clients.totals(),
            ages: self.read_ages(),
            ..Observation::default()
        };
        if let Some((directory, loads)) = &mut self.pods {
            let entries = &observation.kernel.entries;
            directory.resolve(entries.iter().map(|(key, _)| key.cgroup_id));
            observation.pods = entries
                .iter()
                .filter_map(|(key, _)| Some((key.cgroup_id, Arc::clone(directory.pod(key.cgroup_id)?))))
                .collect();
            let of_endpoints = entries.iter().filter_map(|(key, _)| {
                self.endpoints.contains(&key.endpoint()).then_some(())?;
                observation.pods.get(&key.cgroup_id).map(Arc::as_ref)
            });
            let read = loads.read(of_endpoints);
            observation.loads = read.pods;
            observation.degradations.extend(read.degradations);
            observation.degradations.extend(directory.degradation());
        }
        Ok(observation)
    }

    fn read_ages(&mut self) -> Arc<clients::ages::Reading> {
        let kernel = &self.kernel;
        let read = self.ages.read(&self.endpoints, |visit| kernel.visit_flows(visit));
        read.unwrap_or_else(|error| {
            tracing::warn!("the ages of open flows are not known: {error}");
            Arc::default()
        })
    }

    fn degradations(&self, doors: Option<&doors::Snapshot>) -> Vec<Degradation> {
        let doors = doors
            .and_then(|doors| doors.degraded.clone())
            .map(|sentence| Degradation {
                code: doors::DEGRADATION,
                sentence,
            });
        self.standing
            .iter()
            .chain(self.kernel.degradations())
            .chain(&self.seeding)
            .chain(&self.expiry)
            .cloned()
            .chain(doors)
            .collect()
    }
}

/// [`AgentMemory::seeded`] when open flows have been taken up, and when that failed.
const SEEDED: u32 = 1;
const SEEDING_FAILED: u32 = 2;

fn seeding_failed(why: &str) -> Degradation {
    Degradation {
        code: "seeding",
        sentence: format!("flows that were open when the agent began to count are not in 'established': {why}"),
    }
}

/// Open flows of other processes are found from the host's pid namespace only.
fn seeding_is_partial() -> Option<Degradation> {
    match requirements::pid_namespace() {
        State::Degraded(why) => Some(Degradation {
            code: "seeding",
            sentence: format!("flows that were open when the agent began to count are not all in 'established': {why}"),
        }),
        State::Met(_) | State::Missing(_) => None,
    }
}
