//! Clients that came back to a node within the timeout of the session affinity. The opens of each client in order enter; how
//! often they found another pod leaves, and whether a list of bounded length explains it.
//!
//! kube-proxy in iptables mode remembers the clients of a pod in a list (xt_recent) in which the client that opened longest ago
//! makes room for a new one. So a client is forgotten when as many others as the list holds have opened at its pod since: its
//! distance in the stack of least recent use (R. L. Mattson, J. Gecsei, D. R. Slutz and I. L. Traiger, IBM Systems Journal 9,
//! 1970), counted with a Fenwick tree over the opens of the pod (P. M. Fenwick, Software: Practice and Experience 24, 1994).

use super::history::{History, Places};
use super::interval::{NORMAL, wilson};
use crate::report::{AffinityBreaks, Rank};

/// Addresses that xt_recent keeps in a list unless it is told otherwise (ip_list_tot).
pub(super) const LIST: f64 = 100.0;

/// Fewer breaks do not show a limit.
const LIMIT_BREAKS: u64 = 10;

/// Of the breaks, and of the pairs within the list, at most this part may not fit a limit: opens that are under way at one moment
/// blur the order near its end. More in a sample, where the number of others is estimated.
const MISFIT: (f64, f64) = (0.05, 0.25);
const WITHIN_BREAKS: (f64, f64) = (0.05, 0.15);

/// Two consecutive opens of one client on one node, as indexes into [`History::opens`].
struct Pair {
    first: u32,
    second: u32,
}

/// What happened to clients that came back within `timeout_ms`. A client of the sample stands for `scale`; `chance` is how
/// often independent picks agree.
pub(super) fn breaks(
    history: &History,
    places: &Places,
    timeout_ms: u64,
    scale: f64,
    chance: Option<f64>,
) -> AffinityBreaks {
    let pairs = pairs(history, places, timeout_ms);
    let others = others_between(history, places, &pairs);
    let mut found = AffinityBreaks {
        pairs: pairs.len() as u64,
        broken: 0,
        gone: 0,
        median_gap_seconds: None,
        within_list: Rank::default(),
        beyond_list: Rank::default(),
        list_limit: false,
    };
    let mut gaps = Vec::new();
    for (pair, others) in pairs.iter().zip(others) {
        let (first, second) = (
            &history.opens[pair.first as usize],
            &history.opens[pair.second as usize],
        );
        let moved = first.place != second.place;
        if places.all[first.place as usize].ready_until_ms <= second.at_ms {
            found.gone += u64::from(moved);
            continue;
        }
        let list = if f64::from(others) * scale < LIST {
            &mut found.within_list
        } else {
            &mut found.beyond_list
        };
        list.pairs += 1;
        if moved {
            list.broken += 1;
            found.broken += 1;
            gaps.push(second.at_ms - first.at_ms);
        }
    }
    gaps.sort_unstable();
    found.median_gap_seconds = gaps.get(gaps.len() / 2).map(|gap| *gap as f64 / 1000.0);
    found.list_limit = list_limit(&found, scale > 1.0, chance);
    found
}

/// Pairs on nodes where a client could land elsewhere, no more than the timeout apart.
fn pairs(history: &History, places: &Places, timeout_ms: u64) -> Vec<Pair> {
    let node = |place: u32| places.all[place as usize].node;
    let pair = |both: &[u32]| {
        let (first, second) = (&history.opens[both[0] as usize], &history.opens[both[1] as usize]);
        let same = first.client == second.client && node(first.place) == node(second.place);
        let soon = second.at_ms - first.at_ms.min(second.at_ms) <= timeout_ms;
        let choice = places.nodes[node(first.place)].places > 1;
        (same && soon && choice).then_some(Pair {
            first: both[0],
            second: both[1],
        })
    };
    history.by_node.windows(2).filter_map(pair).collect()
}

/// For each pair: distinct other clients that opened at the first pod in between.
fn others_between(history: &History, places: &Places, pairs: &[Pair]) -> Vec<u32> {
    // For each open: its number among those of its pod; the open before it of the same client there.
    let mut at_place = vec![0_u32; places.all.len()];
    let mut number = Vec::with_capacity(history.opens.len());
    for open in &history.opens {
        number.push(at_place[open.place as usize]);
        at_place[open.place as usize] += 1;
    }
    let mut before = vec![None; history.opens.len()];
    let mut last: Vec<Option<u32>> = vec![None; places.all.len()];
    for &i in &history.by_node {
        let open = &history.opens[i as usize];
        let last = &mut last[open.place as usize];
        before[i as usize] = last.filter(|j| history.opens[*j as usize].client == open.client);
        *last = Some(i);
    }
    let mut pair_of = vec![None; history.opens.len()];
    for (at, pair) in pairs.iter().enumerate() {
        pair_of[pair.second as usize] = Some(at);
    }
    let mut marks: Vec<Fenwick> = at_place.iter().map(|opens| Fenwick::new(*opens as usize)).collect();
    let mut others = vec![0; pairs.len()];
    for (i, open) in history.opens.iter().enumerate() {
        if let Some(at) = pair_of[i] {
            let first = pairs[at].first as usize;
            let tree = &marks[history.opens[first].place as usize];
            others[at] = tree.marked() - tree.up_to(number[first]);
        }
        // Only the last open of each client at a pod is marked.
        let tree = &mut marks[open.place as usize];
        if let Some(j) = before[i] {
            tree.change(number[j as usize], -1);
        }
        tree.change(number[i], 1);
    }
    others
}

/// Are the breaks those of a list that is full? Either nearly all of them are beyond it and clients within it keep their pod, or
/// none comes back that early and those that do are spread as independent picks are.
fn list_limit(found: &AffinityBreaks, sampled: bool, chance: Option<f64>) -> bool {
    let (within, beyond) = (found.within_list, found.beyond_list);
    if beyond.broken < LIMIT_BREAKS {
        return false;
    }
    if within.pairs > 0 {
        let allowed = |(all, part): (f64, f64)| if sampled { part } else { all };
        let few = |part: u64, of: u64, allowed: f64| part as f64 <= of as f64 * allowed;
        return few(within.broken, found.broken, allowed(MISFIT))
            && few(within.broken, within.pairs, allowed(WITHIN_BREAKS));
    }
    let broken = beyond.broken as f64 / beyond.pairs as f64;
    let (low, high) = wilson(broken, beyond.pairs as f64, 2.0 * NORMAL);
    chance.is_some_and(|chance| (low..=high).contains(&(1.0 - chance)))
}

/// Sums over prefixes of a row of marks.
struct Fenwick {
    tree: Vec<i32>,
    marked: i32,
}

impl Fenwick {
    fn new(length: usize) -> Self {
        Self {
            tree: vec![0; length + 1],
            marked: 0,
        }
    }

    fn change(&mut self, at: u32, by: i32) {
        self.marked += by;
        let mut i = at as usize + 1;
        while let Some(sum) = self.tree.get_mut(i) {
            *sum += by;
            i += i & i.wrapping_neg();
        }
    }

    /// Marks at `at` and before.
    fn up_to(&self, at: u32) -> u32 {
        let (mut sum, mut i) = (0, at as usize + 1);
        while i > 0 {
            sum += self.tree[i];
            i &= i - 1;
        }
        sum.unsigned_abs()
    }

    fn marked(&self) -> u32 {
        self.marked.unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_summed() {
        let mut marks = Fenwick::new(10);
        for at in [0, 3, 3, 9] {
            marks.change(at, 1);
        }
        marks.change(3, -1);
        let sums: Vec<u32> = (0..10).map(|at| marks.up_to(at)).collect();
        assert_eq!(sums, [1, 1, 1, 2, 2, 2, 2, 2, 2, 3]);
        assert_eq!(marks.marked(), 3);
    }
}
