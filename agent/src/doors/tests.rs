//! What flows add up to by door, without a kernel: flows that open, close and are found open, look-ups that find or do
//! not, and agents that come after one another.

use std::time::{Duration, Instant};

use aya::maps::MapError;
use flowskew_agent_ebpf::{DoorKey, DoorValue, MAX_DOORS, PROTOCOL_TCP};

use super::*;

const LOOK_UPS: u32 = 1_000;
const PLENTY: usize = 1_000;

/// What an agent leaves to the next.
#[derive(Default)]
struct Kept {
    doors: HashMap<DoorKey, DoorValue>,
    coverage: DoorCoverage,
}

impl Memory for Kept {
    fn load(&self) -> Result<(Vec<(DoorKey, DoorValue)>, DoorCoverage), MapError> {
        Ok((
            self.doors.iter().map(|(key, value)| (*key, *value)).collect(),
            self.coverage,
        ))
    }

    fn write(&mut self, key: &DoorKey, value: &DoorValue) -> Result<(), MapError> {
        self.doors.insert(*key, *value);
        Ok(())
    }

    fn remove(&mut self, key: &DoorKey) -> Result<(), MapError> {
        self.doors.remove(key).map(drop).ok_or(MapError::KeyNotFound)
    }

    fn write_coverage(&mut self, coverage: &DoorCoverage) -> Result<(), MapError> {
        self.coverage = *coverage;
        Ok(())
    }
}

fn agent(kept: &Kept, most: usize, look_ups: u32) -> Flows {
    Flows::new(Counts::load(kept).expect("readable"), most, look_ups, Instant::now())
}

fn flow(number: u16) -> Flow {
    Flow {
        key: LedgerKey {
            address: [1; 16],
            cgroup_id: 5,
            port: 8_080,
            protocol: PROTOCOL_TCP,
            padding: 0,
            padding_word: 0,
        },
        client: [2; 16],
        opened_at_ns: 1_000 + u64::from(number),
        client_port: number,
        source_class: 1,
        padding: 0,
        padding_word: 0,
    }
}

fn door(number: u16) -> Option<Answer> {
    Some(Answer::Door(FrontDoor {
        address: [9; 16],
        port: number,
    }))
}

/// Looks up all that is drawn.
fn look_up(flows: &mut Flows, answer: impl Fn(&Flow) -> Option<Answer>) -> usize {
    let drawn = flows.draw(Instant::now());
    for flow in &drawn {
        flows.looked_up(flow, answer(flow));
    }
    drawn.len()
}

/// The endpoint of all flows here.
fn watched() -> HashSet<WatchedKey> {
    HashSet::from([flow(0).key.endpoint()])
}

/// Tells all open flows, of which all are watched.
fn walk(flows: &mut Flows, open: impl IntoIterator<Item = u16>) {
    flows.begin_walk();
    for number in open {
        flows.visit(&flow(number), true);
    }
    flows.end_walk(true, &watched());
}

/// Opened, established and closed of a door.
fn counts(flows: &Flows, port: u16) -> (u64, u64, u64) {
    let all = flows.counts.by_ledger_key();
    let doors = all.values().flatten();
    let found: Vec<_> = doors.filter(|door| door.port == port).collect();
    assert!(found.len() <= 1, "a door is counted once: {found:?}");
    found
        .first()
        .map_or((0, 0, 0), |door| (door.opened, door.established, door.closed))
}

fn coverage(flows: &Flows) -> (u64, u64, u64) {
    let DoorCoverage {
        found,
        not_found,
        skipped,
    } = flows.counts.coverage;
    (found, not_found, skipped)
}

#[test]
fn a_flow_is_counted_at_its_door_until_it_closes() {
    let mut flows = agent(&Kept::default(), PLENTY, LOOK_UPS);
    for number in 0..6 {
        flows.opened(&flow(number));
    }
    assert_eq!(look_up(&mut flows, |flow| door(80 + flow.client_port % 2)), 6);
    flows.closed(&flow(0));
    flows.closed(&flow(0));
    flows.closed(&flow(99));
    assert_eq!(counts(&flows, 80), (3, 2, 1));
    assert_eq!(counts(&flows, 81), (3, 3, 0));
    assert_eq!(coverage(&flows), (6, 0, 0));
}

#[test]
fn a_flow_that_closes_before_it_is_looked_up_is_counted_all_the_same() {
    let mut flows = agent(&Kept::default(), PLENTY, LOOK_UPS);
    flows.opened(&flow(1));
    flows.opened(&flow(2));
    flows.closed(&flow(1));
    let drawn = flows.draw(Instant::now());
    flows.closed(&flow(2));
    for flow in &drawn {
        flows.looked_up(flow, door(80));
    }
    assert_eq!(counts(&flows, 80), (2, 0, 2));
}

#[test]
fn what_is_not_found_or_fails_is_covered_once() {
    let mut flows = agent(&Kept::default(), PLENTY, LOOK_UPS);
    for number in 0..9 {
        flows.opened(&flow(number));
    }
    look_up(&mut flows, |flow| match flow.client_port % 3 {
        0 => door(80),
        1 => Some(Answer::Unknown),
        _ => None,
    });
    assert_eq!(coverage(&flows), (3, 3, 3));
    // Not asked again: of those not found it is known, and those that failed are taken up by the next walk, not opened.
    walk(&mut flows, 0..9);
    assert_eq!(look_up(&mut flows, |_| door(80)), 3);
    assert_eq!(counts(&flows, 80), (3, 6, 0));
    assert_eq!(coverage(&flows), (3, 3, 3));
}

#[test]
fn above_the_limit_flows_are_skipped_and_counted() {
    let mut flows = agent(&Kept::default(), PLENTY, 10);
    for number in 0..100 {
        flows.opened(&flow(number));
    }
    assert_eq!(look_up(&mut flows, |_| door(80)), 10);
    assert_eq!(coverage(&flows), (10, 0, 90));
    for number in 0..100 {
        flows.closed(&flow(number));
    }
    assert_eq!(counts(&flows, 80), (10, 0, 10), "skipped flows close at no door");
    // Half a second on, half of the limit is left.
    for number in 100..200 {
        flows.opened(&flow(number));
    }
    assert_eq!(flows.draw(Instant::now() + Duration::from_millis(520)).len(), 5);
}

#[test]
fn no_more_flows_are_known_than_allowed() {
    let mut flows = agent(&Kept::default(), 5, LOOK_UPS);
    for number in 0..8 {
        flows.opened(&flow(number));
    }
    look_up(&mut flows, |_| door(80));
    assert_eq!(coverage(&flows), (5, 0, 3));
    walk(&mut flows, 0..8);
    assert_eq!(look_up(&mut flows, |_| door(80)), 0);
    assert_eq!(counts(&flows, 80), (5, 5, 0));
}

#[test]
fn no_more_doors_are_counted_than_allowed() {
    let most = u16::try_from(MAX_DOORS).expect("fits");
    let mut flows = agent(&Kept::default(), 10_000, 10_000);
    for number in 0..most + 10 {
        flows.opened(&flow(number));
    }
    look_up(&mut flows, |flow| door(flow.client_port));
    assert_eq!(coverage(&flows), (u64::from(most), 0, 10));
    for number in 0..most + 10 {
        flows.closed(&flow(number));
    }
    let mut kept = Kept::default();
    flows.counts.save(&mut kept).expect("written");
    assert_eq!(kept.doors.len(), usize::from(most));
    flows.counts.make_room(&mut kept, &watched()).expect("no need");
    assert_eq!(kept.doors.len(), usize::from(most), "doors of watched endpoints stay");
    flows.opened(&flow(0));
    look_up(&mut flows, |flow| door(flow.client_port));
    flows.counts.make_room(&mut kept, &HashSet::new()).expect("removed");
    assert_eq!(kept.doors.len(), 1, "doors with open flows stay");
    assert_eq!(counts(&flows, 0), (2, 1, 1));
}

#[test]
fn doors_stay_while_there_is_room() {
    let mut kept = Kept::default();
    let mut flows = agent(&kept, PLENTY, LOOK_UPS);
    flows.opened(&flow(1));
    look_up(&mut flows, |_| door(80));
    flows.closed(&flow(1));
    flows.counts.make_room(&mut kept, &HashSet::new()).expect("no need");
    assert_eq!(counts(&flows, 80), (1, 0, 1));
}

#[test]
fn flows_that_are_open_already_are_established_but_never_opened() {
    let mut flows = agent(&Kept::default(), PLENTY, LOOK_UPS);
    flows.begin_walk();
    for number in 0..4 {
        flows.visit(&flow(number), number < 3);
    }
    flows.end_walk(true, &watched());
    flows.closed(&flow(0));
    assert_eq!(look_up(&mut flows, |_| door(80)), 2);
    assert_eq!(counts(&flows, 80), (0, 2, 0));
    flows.closed(&flow(1));
    assert_eq!(counts(&flows, 80), (0, 1, 1));
    assert_eq!(coverage(&flows), (0, 0, 0));
}

#[test]
fn a_flow_whose_end_was_not_told_is_closed_by_a_walk() {
    let mut flows = agent(&Kept::default(), PLENTY, LOOK_UPS);
    for number in 0..3 {
        flows.opened(&flow(number));
    }
    look_up(&mut flows, |_| door(80));
    flows.begin_walk();
    flows.visit(&flow(1), true);
    flows.opened(&flow(7));
    flows.end_walk(false, &watched());
    assert_eq!(counts(&flows, 80), (3, 3, 0), "a walk that failed says nothing");

    flows.begin_walk();
    flows.visit(&flow(1), false);
    flows.visit(&flow(7), true);
    flows.opened(&flow(8));
    flows.end_walk(true, &watched());
    look_up(&mut flows, |_| door(80));
    assert_eq!(
        counts(&flows, 80),
        (5, 3, 2),
        "one that opened meanwhile is not taken for closed"
    );
    flows.closed(&flow(0));
    assert_eq!(counts(&flows, 80), (5, 3, 2));
}

#[test]
fn a_flow_that_closes_while_a_walk_tells_it_is_not_taken_up() {
    let mut flows = agent(&Kept::default(), PLENTY, LOOK_UPS);
    flows.begin_walk();
    flows.closed(&flow(1));
    flows.visit(&flow(1), true);
    flows.end_walk(true, &watched());
    assert_eq!(look_up(&mut flows, |_| door(80)), 0);
}

#[test]
fn a_flow_that_is_told_to_open_after_it_was_taken_up_is_opened_once() {
    let mut flows = agent(&Kept::default(), PLENTY, LOOK_UPS);
    walk(&mut flows, 0..4);
    flows.opened(&flow(0));
    let drawn = flows.draw(Instant::now());
    assert_eq!(drawn.len(), 4);
    flows.opened(&flow(1));
    for flow in &drawn {
        flows.looked_up(flow, door(80));
    }
    flows.opened(&flow(2));
    look_up(&mut flows, |_| door(80));
    assert_eq!(counts(&flows, 80), (3, 4, 0));
    assert_eq!(coverage(&flows), (3, 0, 0));
}

#[test]
fn flows_that_open_go_before_those_that_are_open_already() {
    let mut flows = agent(&Kept::default(), PLENTY, 100);
    walk(&mut flows, 0..500);
    let drawn = flows.draw(Instant::now());
    assert_eq!(
        drawn.len(),
        50,
        "half of a second's look-ups is kept for flows that open"
    );
    for number in 600..640 {
        flows.opened(&flow(number));
    }
    let drawn = flows.draw(Instant::now());
    assert!(drawn.iter().all(|flow| flow.client_port >= 600), "{}", drawn.len());
    assert_eq!(drawn.len(), 40);
}

#[test]
fn the_next_agent_goes_on() {
    let mut kept = Kept::default();
    let mut first = agent(&kept, PLENTY, LOOK_UPS);
    for number in 0..10 {
        first.opened(&flow(number));
    }
    look_up(&mut first, |_| door(80));
    first.closed(&flow(0));
    first.counts.save(&mut kept).expect("written");
    assert_eq!(counts(&first, 80), (10, 9, 1));
    drop(first);

    // Meanwhile flows 1 to 4 closed and 20 to 22 opened, of which the ring tells the opens.
    let mut second = agent(&kept, PLENTY, LOOK_UPS);
    assert_eq!(counts(&second, 80), (10, 0, 1));
    walk(&mut second, (5..10).chain(20..23));
    for number in 20..23 {
        second.opened(&flow(number));
    }
    look_up(&mut second, |_| door(80));
    assert_eq!(counts(&second, 80), (13, 8, 1));
    assert_eq!(coverage(&second), (13, 0, 0));
    second.counts.save(&mut kept).expect("written");

    // Another kill before the closes of the first are known.
    let mut third = agent(&kept, PLENTY, LOOK_UPS);
    walk(&mut third, (5..10).chain(20..23));
    look_up(&mut third, |_| door(80));
    assert_eq!(counts(&third, 80), (13, 8, 1));
    third.closed(&flow(5));
    walk(&mut third, (6..10).chain(20..23));
    assert_eq!(
        counts(&third, 80),
        (13, 7, 6),
        "the closes that no agent saw are counted"
    );
    walk(&mut third, (6..10).chain(20..23));
    assert_eq!(counts(&third, 80), (13, 7, 6));
}

#[test]
fn an_endpoint_that_is_not_watched_yet_has_not_lost_its_flows() {
    let mut kept = Kept::default();
    let mut first = agent(&kept, PLENTY, LOOK_UPS);
    for number in 0..3 {
        first.opened(&flow(number));
    }
    look_up(&mut first, |_| door(80));
    first.counts.save(&mut kept).expect("written");

    let mut second = agent(&kept, PLENTY, LOOK_UPS);
    for _ in 0..2 {
        second.begin_walk();
        for number in 0..2 {
            second.visit(&flow(number), false);
        }
        second.end_walk(true, &HashSet::new());
    }
    assert_eq!(counts(&second, 80), (3, 0, 0));
    walk(&mut second, 0..2);
    look_up(&mut second, |_| door(80));
    assert_eq!(counts(&second, 80), (3, 2, 0));
    walk(&mut second, 0..2);
    assert_eq!(counts(&second, 80), (3, 2, 1));
}
