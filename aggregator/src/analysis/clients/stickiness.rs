//! Do clients that come back find the same place? The opens of each client in order enter; how often they did leaves, against
//! chance, with an interval.

use super::history::{History, Open, Places};
use super::interval::student;
use super::kappa::{Cell, Sums};
use crate::report::Stickiness;

/// The opens of clients over one tier: groups of slots among which a pick is made, nodes over pods, or one group of nodes.
pub(super) struct Tier {
    cells: Vec<Cell>,
    /// By client, and within one by cell.
    records: Vec<Record>,
    /// Votes of each record.
    votes: Vec<(u32, f64)>,
    /// Of each group: its records.
    by_group: Vec<Vec<u32>>,
    /// Every client that opened is in the records, not a sample.
    census: bool,
}

/// The slots of a group between two changes of them.
struct Group {
    changes_ms: Vec<u64>,
    slots: u32,
    /// Chance when too few clients came to tell, and all to one slot.
    alone: f64,
}

/// Where and when a flow opened.
struct Visit {
    client: u64,
    group: u32,
    slot: u32,
    at_ms: u64,
    ready_until_ms: u64,
}

struct Record {
    client: u64,
    cell: u32,
    votes: (u32, u32),
    squares: f64,
    pairs: u64,
    agree: u64,
}

impl Tier {
    /// Pods, picked on each node that has two ready ones or more. Of a client's consecutive opens on a node, those count whose
    /// first pod was ready still at the second.
    pub fn of_pods(history: &History, places: &Places, census: bool) -> Self {
        let groups = places.nodes.iter().map(|node| Group {
            changes_ms: node.changes_ms.clone(),
            slots: node.places,
            alone: 1.0 / f64::from(node.ready.max(1)),
        });
        let visit = |open: &Open| {
            let place = &places.all[open.place as usize];
            (places.nodes[place.node].ready > 1).then_some(Visit {
                client: open.client,
                group: place.node as u32,
                slot: place.slot,
                at_ms: open.at_ms,
                ready_until_ms: place.ready_until_ms,
            })
        };
        let visits = history.in_order(&history.by_node).filter_map(visit);
        Self::of(groups.collect(), visits, census)
    }

    /// Nodes, picked by the load balancer. Left out are pairs whose first node had no ready endpoint any more.
    pub fn of_nodes(history: &History, places: &Places, census: bool) -> Self {
        let mut changes_ms: Vec<u64> = places.nodes.iter().flat_map(|n| [n.since_ms, n.until_ms]).collect();
        changes_ms.retain(|change| *change > 0 && *change < u64::MAX);
        changes_ms.sort_unstable();
        changes_ms.dedup();
        let group = Group {
            changes_ms,
            slots: places.nodes.len() as u32,
            // All went to one node: nobody knows whether anything could have gone elsewhere.
            alone: 1.0,
        };
        let visit = |open: &Open| {
            let node = places.all[open.place as usize].node;
            Visit {
                client: open.client,
                group: 0,
                slot: node as u32,
                at_ms: open.at_ms,
                ready_until_ms: places.nodes[node].until_ms,
            }
        };
        Self::of(vec![group], history.in_order(&history.by_client).map(visit), census)
    }

    /// `visits` by client, for each by group, and for each in order of time.
    fn of(groups: Vec<Group>, visits: impl Iterator<Item = Visit>, census: bool) -> Self {
        let mut first_cell = Vec::with_capacity(groups.len());
        let mut cells = Vec::new();
        for group in &groups {
            first_cell.push(cells.len());
            let cell = Cell::new(group.alone, group.slots as usize);
            cells.extend(std::iter::repeat_n(cell, group.changes_ms.len() + 1));
        }
        let mut tier = Self {
            cells,
            records: Vec::new(),
            votes: Vec::new(),
            by_group: vec![Vec::new(); groups.len()],
            census,
        };
        let mut before: Option<Visit> = None;
        for visit in visits {
            let changes = &groups[visit.group as usize].changes_ms;
            let period = changes.partition_point(|change| *change <= visit.at_ms);
            let cell = (first_cell[visit.group as usize] + period) as u32;
            let record = tier.record(visit.client, visit.group, cell);
            let pair = before.filter(|first| first.client == visit.client && first.group == visit.group);
            if let Some(first) = pair.filter(|first| first.ready_until_ms > visit.at_ms) {
                record.pairs += 1;
                record.agree += u64::from(first.slot == visit.slot);
            }
            tier.vote(visit.slot);
            before = Some(visit);
        }
        tier.finish();
        tier
    }

    /// The record of a client and cell: the last one, or a new one.
    fn record(&mut self, client: u64, group: u32, cell: u32) -> &mut Record {
        let at = match self.records.last() {
            Some(last) if last.client == client && last.cell == cell => self.records.len() - 1,
            _ => {
                self.by_group[group as usize].push(self.records.len() as u32);
                let votes = self.votes.len() as u32;
                self.records.push(Record {
                    client,
                    cell,
                    votes: (votes, votes),
                    squares: 0.0,
                    pairs: 0,
                    agree: 0,
                });
                self.records.len() - 1
            }
        };
        &mut self.records[at]
    }

    /// A flow of the last record.
    fn vote(&mut self, slot: u32) {
        let Some(record) = self.records.last_mut() else {
            return;
        };
        let mut cast = self.votes[record.votes.0 as usize..].iter_mut();
        match cast.find(|(of, _)| *of == slot) {
            Some((_, flows)) => *flows += 1.0,
            None => self.votes.push((slot, 1.0)),
        }
        record.votes.1 = self.votes.len() as u32;
    }

    fn votes_of(&self, record: &Record) -> &[(u32, f64)] {
        &self.votes[record.votes.0 as usize..record.votes.1 as usize]
    }

    /// Flows to votes, and the sums of each cell.
    fn finish(&mut self) {
        for record in &mut self.records {
            let cast = &mut self.votes[record.votes.0 as usize..record.votes.1 as usize];
            let flows: f64 = cast.iter().map(|(_, flows)| flows).sum();
            let cell = &mut self.cells[record.cell as usize];
            for (slot, vote) in cast {
                *vote /= flows;
                cell.votes[*slot as usize] += *vote;
                record.squares += *vote * *vote;
            }
            cell.clients += 1.0;
            cell.squares += record.squares;
            cell.pairs += record.pairs as f64;
        }
        self.cells.iter_mut().for_each(Cell::finish);
    }

    /// Over all groups; `None` without pairs.
    pub fn whole(&self) -> Option<Stickiness> {
        self.stickiness(self.records.iter())
    }

    /// Of one group.
    pub fn group(&self, group: usize) -> Option<Stickiness> {
        self.stickiness(self.by_group[group].iter().map(|at| &self.records[*at as usize]))
    }

    fn stickiness<'a>(&self, records: impl Iterator<Item = &'a Record> + Clone) -> Option<Stickiness> {
        let mut sum = Sums::default();
        for record in records.clone() {
            let chance = self.cells[record.cell as usize].chance;
            sum.add(record.pairs as f64, record.agree as f64, record.pairs as f64 * chance);
        }
        if sum.pairs == 0.0 {
            return None;
        }
        // The sums without each client in turn.
        let mut left_out: Vec<Sums> = Vec::new();
        let (mut last, mut clients, mut squares) = (None, 0, 0.0);
        let mut of_last = 0.0;
        for record in records {
            if last != Some(record.client) {
                left_out.push(sum);
                squares += of_last * of_last;
                of_last = 0.0;
                last = Some(record.client);
            }
            clients += u64::from(record.pairs > 0 && of_last == 0.0);
            of_last += record.pairs as f64;
            if let Some(without) = left_out.last_mut() {
                let cell = &self.cells[record.cell as usize];
                let pairs = record.pairs as f64;
                let chance = cell.pairs * cell.chance
                    - (cell.pairs - pairs) * cell.chance_without(self.votes_of(record), record.squares);
                without.add(-pairs, -(record.agree as f64), -chance);
            }
        }
        squares += of_last * of_last;
        let quantile = student(sum.pairs * sum.pairs / squares - 1.0);
        Some(Stickiness {
            pairs: sum.pairs as u64,
            clients,
            observed: sum.agree / sum.pairs,
            chance: sum.chance / sum.pairs,
            kappa: sum.kappa().map(|kappa| {
                let trials = if self.census { sum.pairs } else { clients as f64 };
                sum.interval(kappa, &left_out, quantile, trials)
            }),
        })
    }
}
