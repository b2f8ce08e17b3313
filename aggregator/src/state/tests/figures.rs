//! Figures over windows: where these begin, who was ready since when, what closed and was open, and what clients did. With a
//! clock of their own: moments are seconds.

use super::*;
use crate::clients::{Batch, ClientKey, ClientKeys, Column, Moment};
use crate::ledger::{DoorCounts, DoorKey, FlowAges};
use crate::report::Window;

/// Epochs begin here, in milliseconds.
const START_MS: u64 = 1_000_000_000;

struct World {
    state: State,
}

impl World {
    /// Buckets and reports of a second; agents of nodes a and b.
    fn new() -> Self {
        let mut client_keys = ClientKeys::default();
        let key = || Ok::<_, ()>(ClientKey { id: 7, key: [7; 16] });
        client_keys
            .advance(START_MS, SETTINGS.client_key_rotation, key)
            .unwrap();
        let mut state = State {
            settings: SETTINGS,
            view: None,
            plan: None,
            nodes: Nodes::new(SETTINGS),
            index: Index::default(),
            changes: Changes::default(),
            client_keys,
        };
        for node in ["a", "b"] {
            let hello = Hello {
                node: node.to_owned(),
                ..Default::default()
            };
            let _admission = state.nodes.connect(hello, 1, None, &[]).unwrap();
        }
        Self { state }
    }

    fn see(&mut self, at: u64, view: ClusterView) {
        if let Some(before) = &self.state.view {
            self.state.changes.compare(before, &view, ms(at));
        }
        self.state.index = Index::of(&view);
        self.state.nodes.bind(&self.state.index);
        self.state.view = Some(view);
    }

    /// Of an epoch that began at `started`.
    fn report_of(&mut self, node: &str, (epoch, started): (u64, u64), at: u64, report: NodeReport) {
        let report = NodeReport {
            epoch,
            epoch_started_at_ms: ms(started),
            taken_at_ms: ms(at),
            sent_at_ms: ms(at),
            ..report
        };
        assert!(self.state.nodes.take(node, 1, report, ms(at), &self.state.index));
    }

    /// Entries as (endpoint, opened, established), each time with another sequence; what is not open has closed.
    fn report(&mut self, node: &str, at: u64, entries: &[(u16, u64, u64)]) {
        self.report_of(node, (1, 0), at, counts(at + 1, entries));
    }

    fn figures(&self, asked: &[WindowStart], at: u64) -> PortFigures {
        self.all(asked, at).ports.remove(0)
    }

    fn all(&self, asked: &[WindowStart], at: u64) -> Figures {
        let view = self.state.view.as_ref().unwrap();
        build::figures(&self.state, view, &Scope::Service(name("s")), asked, ms(at))
    }
}

fn ms(at: u64) -> u64 {
    START_MS + at * 1000
}

fn since(at: u64) -> WindowStart {
    WindowStart::At(ms(at))
}

fn counts(sequence: u64, entries: &[(u16, u64, u64)]) -> NodeReport {
    let entry = |&(n, opened, established): &(u16, u64, u64)| {
        let mut entry = entry(n, n.into(), opened, established);
        entry.classes[EXTERNAL].closed[0] = opened - established;
        entry
    };
    NodeReport {
        sequence,
        entries: entries.iter().map(entry).collect(),
        ..Default::default()
    }
}

/// (opened, closed, flow-seconds) of the first window, by ready endpoint.
fn flows(figures: &PortFigures) -> Vec<(u64, u64, u128)> {
    let tallies = figures.endpoints.iter().map(|endpoint| &endpoint.tally);
    tallies
        .map(|tally| (tally.opened[0][EXTERNAL], tally.closed[0], tally.open_ms[0] / 1000))
        .collect()
}

/// Where the windows begin, in seconds.
fn begin(figures: &PortFigures) -> Vec<u64> {
    figures
        .windows
        .iter()
        .map(|window| (window.from_ms - START_MS) / 1000)
        .collect()
}

#[test]
fn what_opened_closed_and_was_open_within_a_window() {
    let mut world = World::new();
    world.see(0, view(&[("a", 1, true), ("b", 2, true)]));
    world.report("a", 0, &[]);
    world.report("b", 0, &[]);
    world.report("a", 1, &[(1, 10, 10)]);
    world.report("a", 4, &[(1, 14, 9)]);
    world.report("a", 6, &[(1, 14, 6)]);
    world.report("b", 6, &[(2, 3, 0)]);
    let check = |from, a, b| assert_eq!(flows(&world.figures(&[since(from)], 8)), [a, b], "from {from}");
    // On a, 6 are open from 6 s to 8 s; 9 from 4 s to 6 s; 10 from 1 s to 4 s; none before.
    check(8, (0, 0, 0), (0, 0, 0));
    check(6, (0, 3, 12), (3, 3, 0));
    check(5, (0, 3, 21), (3, 3, 0));
    check(4, (4, 8, 30), (3, 3, 0));
    check(3, (4, 8, 40), (3, 3, 0));
    check(1, (14, 8, 60), (3, 3, 0));
    check(0, (14, 8, 60), (3, 3, 0));
}

#[test]
fn what_was_open_before_anybody_counted_neither_opens_nor_closes() {
    let mut world = World::new();
    world.see(0, view(&[("a", 1, true)]));
    // Found open at the start, and an epoch that is half over when it is first heard of.
    let mut seeded = counts(1, &[(1, 0, 0)]);
    seeded.entries[0].classes[EXTERNAL] = Counts {
        established: 5,
        seeded: 5,
        ..Default::default()
    };
    world.report_of("a", (1, 0), 1, seeded);
    assert_eq!(flows(&world.figures(&[since(0)], 11)), [(0, 0, 55)]);
    world.report_of("a", (2, 0), 20, counts(50, &[(1, 1_000, 40)]));
    let figures = world.figures(&[since(10)], 24);
    assert_eq!(begin(&figures)[0], 21, "a second after the first report");
    assert_eq!(flows(&figures), [(0, 0, 120)]);
    world.report_of("a", (2, 0), 24, counts(51, &[(1, 1_002, 39)]));
    // 39 from 24 s on, and 39 - 2 + 3 before.
    assert_eq!(flows(&world.figures(&[since(10)], 25)), [(2, 3, 39 + 3 * 40)]);
}

#[test]
fn windows_begin_after_changes_and_after_agents() {
    let mut world = World::new();
    let (two, three) = (
        [("a", 1, true), ("b", 2, true)],
        [("a", 1, true), ("b", 2, true), ("b", 3, true)],
    );
    world.see(0, view(&two));
    world.report("a", 0, &[(1, 100, 1)]);
    world.report("b", 0, &[(2, 100, 1)]);
    assert_eq!(begin(&world.figures(&[since(0)], 1))[0], 0);
    // Nothing changes: exactly as asked.
    assert_eq!(
        begin(&world.figures(&[since(0), since(30)], 4_000)),
        [0, 30, 3_940, 3_700, 3_100, 400]
    );
    world.see(40, view(&three));
    let figures = world.figures(&[since(0), since(40), since(50)], 4_000);
    assert_eq!(begin(&figures), [41, 40, 50, 3_940, 3_700, 3_100, 400]);
    assert_eq!(
        figures.windows[0],
        Window {
            from_ms: ms(41),
            to_ms: ms(4_000)
        }
    );
    // That of another node counts anew; it matters while it reports.
    world.report_of("b", (2, 60), 62, counts(1, &[(2, 5, 1), (3, 5, 1)]));
    let begins = |world: &World, at| begin(&world.figures(&[since(0), since(59), since(60)], at))[..3].to_vec();
    assert_eq!(begins(&world, 63), [61, 61, 60]);
    assert_eq!(begins(&world, 100), [41, 59, 60], "b is silent");
    // An epoch that nobody knows counts from the first report.
    world.report_of("b", (3, 60), 102, counts(9, &[(2, 5, 1)]));
    assert_eq!(begins(&world, 103), [103, 103, 103]);
    // One pod comes and goes.
    for at in 104..120 {
        world.see(at, view(if at % 2 == 0 { &two } else { &three }));
    }
    let figures = world.figures(&[since(0)], 119);
    assert_eq!(
        figures.windows[0],
        Window {
            from_ms: ms(119),
            to_ms: ms(119)
        }
    );
    assert_eq!(flows(&figures)[0], (0, 0, 0), "nothing of now, which is of before too");
}

#[test]
fn who_left_and_when_is_known() {
    let mut world = World::new();
    world.see(0, view(&[("a", 1, true), ("b", 2, true), ("b", 3, true)]));
    world.report("b", 0, &[(2, 20, 2), (3, 30, 3)]);
    world.see(
        10,
        view(&[("a", 1, true), ("a", 4, true), ("b", 2, false), ("b", 3, true)]),
    );
    world.report("b", 11, &[(2, 21, 2), (3, 31, 3)]);
    world.see(
        20,
        view(&[("a", 1, true), ("a", 4, true), ("b", 3, true), ("b", 5, false)]),
    );
    world.report("b", 22, &[(2, 23, 2), (3, 32, 3)]);
    let figures = world.figures(&[since(5)], 30);
    let ready: Vec<_> = figures
        .endpoints
        .iter()
        .map(|found| (found.pod.as_str(), found.ready_since_ms))
        .collect();
    assert_eq!(ready, [("pod-1", None), ("pod-4", Some(ms(10))), ("pod-3", None)]);
    let gone: Vec<_> = figures
        .gone
        .iter()
        .map(|gone| {
            (
                gone.pod.as_str(),
                gone.unready_since_ms,
                gone.gone_ms,
                gone.new_since_asked[0],
            )
        })
        .collect();
    // The first was never ready. Of the second, since 5 s, before its last change too.
    assert_eq!(
        gone,
        [("pod-5", None, None, 0), ("pod-2", Some(ms(10)), Some(ms(20)), 3)]
    );
    // The window begins at 11 s: no endpoint that is ready has changed since.
    assert_eq!(begin(&figures)[0], 11);
    assert_eq!(figures.gone[1].tally.opened[0][EXTERNAL], 3);
    assert_eq!(world.figures(&[since(12)], 30).gone[1].new_since_asked[0], 2);
    // It comes back.
    world.see(40, view(&[("a", 1, true), ("b", 2, true), ("b", 3, true)]));
    let figures = world.figures(&[since(12)], 50);
    assert_eq!(figures.endpoints[1].ready_since_ms, Some(ms(40)));
    assert_eq!(
        figures
            .gone
            .iter()
            .find(|gone| gone.pod == "pod-4")
            .unwrap()
            .unready_since_ms,
        Some(ms(40))
    );
    // Who is ready is known for as long as that lasts; who left, for an hour.
    world.state.changes.expire(ms(40) + RETENTION_MS);
    let figures = world.figures(&[since(12)], 5_000);
    assert_eq!(figures.endpoints[1].ready_since_ms, Some(ms(40)));
    assert!(figures.gone.is_empty());
}

#[test]
fn so_many_that_left_are_remembered() {
    let mut world = World::new();
    world.see(0, view(&[("a", 1, true)]));
    let many: Vec<(&str, u16, bool)> = (1..=3_000).map(|n| ("a", n, true)).collect();
    world.see(10, view(&many));
    world.see(20, view(&[("a", 1, true)]));
    assert_eq!(world.figures(&[], 30).gone.len(), 1024);
    assert_eq!(
        world
            .figures(&[], 30)
            .gone
            .iter()
            .filter(|gone| gone.unready_since_ms.is_some())
            .count(),
        1024
    );
}

fn batch(at: u64) -> Batch {
    Batch {
        at_ms: ms(at),
        moments: [Moment {
            lifetime_plus_1: 0,
            before_ms: 0,
            closed: None,
        }]
        .into(),
        columns: vec![Column {
            key_id: 7,
            clients: [at].into(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A report with what clients did, and with ages read half a second before.
fn with_clients(sequence: u64, at: u64, entries: &[(u16, u64, u64)]) -> NodeReport {
    let mut report = counts(sequence, entries);
    report.activity = report.entries.iter().map(|entry| (entry.key, batch(at))).collect();
    for entry in &mut report.entries {
        entry.ages = Some(FlowAges {
            read_at_ms: ms(at) - 500,
            buckets: vec![(40, entry.classes[EXTERNAL].established)],
            unknown: at,
        });
    }
    report
}

#[test]
fn what_clients_did_and_how_old_flows_are_goes_with_the_pod() {
    let mut world = World::new();
    world.see(0, view(&[("a", 1, true), ("b", 2, true), ("b", 3, true)]));
    world.report_of("a", (1, 0), 10, with_clients(1, 10, &[(1, 1, 1)]));
    world.report_of("b", (1, 0), 10, with_clients(1, 10, &[(2, 2, 2), (3, 3, 3)]));
    world.see(15, view(&[("a", 1, true), ("b", 2, true), ("b", 3, false)]));
    world.report_of("b", (1, 0), 20, with_clients(2, 20, &[(2, 4, 4), (3, 3, 3)]));
    let all = world.all(&[since(5)], 30);
    assert_eq!(all.client_key, Some(7));
    let figures = &all.ports[0];
    let told = |batches: &[std::sync::Arc<Batch>]| -> Vec<u64> {
        batches.iter().map(|batch| (batch.at_ms - START_MS) / 1000).collect()
    };
    assert_eq!(told(&figures.endpoints[0].activity), [10]);
    assert_eq!(told(&figures.endpoints[1].activity), [10, 20]);
    assert_eq!(told(&figures.gone[0].activity), [10, 20]);
    let ages = &figures.endpoints[1].ages;
    assert_eq!(
        (ages.len(), ages[0].read_at_ms, ages[0].unknown),
        (1, ms(20) - 500, 20),
        "the newest reading"
    );
    // From where the first window was asked to begin, whatever has changed since.
    assert_eq!(
        told(&world.figures(&[since(25), since(12)], 30).endpoints[1].activity),
        [20]
    );
    assert_eq!(begin(&world.figures(&[since(12)], 30))[0], 16);
    assert!(world.figures(&[], 30).endpoints[1].activity.is_empty(), "nobody asks");
    // A reading stays until there is another, or nothing is open.
    world.report_of("b", (1, 0), 30, counts(3, &[(2, 5, 3), (3, 3, 0)]));
    let figures = world.figures(&[since(25)], 30);
    assert_eq!(figures.endpoints[1].ages[0].read_at_ms, ms(20) - 500);
    world.report_of("b", (1, 0), 40, counts(4, &[(2, 5, 0)]));
    assert!(world.figures(&[since(25)], 40).endpoints[1].ages.is_empty());
}

#[test]
fn where_services_share_pods_flows_are_told_by_door() {
    let mut both = view_of(&[("s", 443, vec![endpoint("a", 1)]), ("t", 80, vec![endpoint("a", 1)])]);
    both.node_addresses = [address(0x102)].into();
    both.services.get_mut(&name("s")).unwrap().ports[0].node_port = Some(30443);
    both.services.get_mut(&name("t")).unwrap().ports[0].node_port = Some(30080);
    let mut world = World::new();
    world.see(0, both);
    let report = |sequence, at, (opened, closed): (u64, u64)| {
        let mut report = with_clients(sequence, at, &[(1, 100 * sequence, 50)]);
        let door = DoorKey {
            address: address(0x102),
            port: 30443,
            class: EXTERNAL,
        };
        let counts = DoorCounts {
            opened,
            established: opened - closed,
            closed,
        };
        report.entries[0].doors = vec![(door, counts)];
        report
    };
    world.report_of("a", (1, 0), 2, report(1, 2, (8, 2)));
    world.report_of("a", (1, 0), 4, report(2, 4, (9, 5)));
    let figures = world.figures(&[since(0)], 5);
    assert_eq!(figures.shared_with.len(), 1);
    // Through its own door: 6 open from 2 s to 4 s, then 4.
    assert_eq!(flows(&figures), [(9, 5, 2 * 6 + 4)]);
    assert_eq!(flows(&world.figures(&[since(4)], 5)), [(1, 3, 4)]);
    // Whose a client is, or an old flow, nobody knows.
    assert!(figures.endpoints[0].activity.is_empty() && figures.endpoints[0].ages.is_empty());
}
