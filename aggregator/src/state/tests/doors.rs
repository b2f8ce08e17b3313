//! Front doors: which flows are of which Service, and which attempts reach none of its pods.

use super::*;
use crate::ledger::{DoorCounts, DoorKey, Unserved};
use crate::report::{DoorKind, UnservedReason};

const BALANCER: u16 = 0x101;
const NODE: u16 = 0x102;
const CLUSTER: u16 = 0x103;

fn door(n: u16, port: u16, opened: u64, established: u64) -> (DoorKey, DoorCounts) {
    let key = DoorKey {
        address: address(n),
        port,
        class: EXTERNAL,
    };
    let counts = DoorCounts {
        opened,
        established,
        closed: opened - established,
    };
    (key, counts)
}

/// Service s with a load balancer and node port 30443, and Service t with a cluster address only, of pod 1.
fn both() -> ClusterView {
    let mut view = view_of(&[("s", 443, vec![endpoint("a", 1)]), ("t", 80, vec![endpoint("a", 1)])]);
    view.node_addresses = [address(NODE)].into();
    view.nodes = [("a".to_owned(), view.node_addresses.clone())].into();
    let s = view.services.get_mut(&name("s")).unwrap();
    s.addresses.load_balancer = [address(BALANCER)].into();
    s.ports[0].node_port = Some(30443);
    view.services.get_mut(&name("t")).unwrap().addresses.cluster = [address(CLUSTER)].into();
    view
}

/// 100 flows: 40 by the balancer, 20 by the node port, 10 by the cluster address of t, 5 direct, 3 by an address that is
/// nobody's, and 22 unknown.
fn doors() -> Vec<(DoorKey, DoorCounts)> {
    vec![
        door(BALANCER, 443, 40, 30),
        door(NODE, 30443, 20, 10),
        door(CLUSTER, 80, 10, 5),
        door(1, 8883, 5, 5),
        door(0x999, 1, 3, 3),
    ]
}

async fn with_doors(view: ClusterView) -> (Owner, Admission) {
    let owner = Owner::start();
    owner.see(view).await;
    let admission = owner.connect("a", 1).await;
    let entry = Entry {
        doors: doors(),
        ..entry_of("uid-1", 1, 5, 100, 60)
    };
    let report = NodeReport {
        sequence: 1,
        entries: vec![entry],
        ..Default::default()
    };
    assert!(owner.send("a", 1, report).await);
    (owner, admission)
}

fn by_kind(tally: &Tally) -> Vec<(DoorKind, u64, u64)> {
    let known = tally.doors.iter();
    known
        .map(|(&(kind, ..), door)| (kind, door.opened[0], door.counts.established))
        .collect()
}

#[tokio::test]
async fn two_services_of_the_same_pods_get_their_own_flows() {
    let (owner, _a) = with_doors(both()).await;
    let s = owner.figures_of("s").await;
    let tally = &s.endpoints[0].tally;
    assert_eq!(s.shared_with[0].to_string(), "ns/t 80/TCP");
    assert_eq!(
        by_kind(tally),
        [(DoorKind::LoadBalancer, 40, 30), (DoorKind::NodePort, 20, 10)]
    );
    let counts = &tally.counts[EXTERNAL];
    assert_eq!(
        (tally.opened[0][EXTERNAL], counts.opened, counts.established),
        (60, 60, 40)
    );
    assert_eq!((counts.closed_total(), counts.seeded), (20, 0));
    // 22 that are not known, and 8 by doors that are no Service's.
    assert_eq!((tally.unattributed[0], tally.unattributed_established), (30, 15));

    let t = owner.figures_of("t").await;
    let tally = &t.endpoints[0].tally;
    assert_eq!(by_kind(tally), [(DoorKind::ClusterIp, 10, 5)]);
    assert_eq!((tally.opened[0][EXTERNAL], tally.unattributed[0]), (10, 30));
}

#[tokio::test]
async fn a_service_alone_has_all_flows() {
    let mut alone = both();
    alone.services.remove(&name("t"));
    let (owner, _a) = with_doors(alone).await;
    let s = owner.figures().await;
    let tally = &s.endpoints[0].tally;
    assert!(s.shared_with.is_empty());
    assert_eq!(tally.opened[0][EXTERNAL], 100);
    assert_eq!(
        by_kind(tally),
        [
            (DoorKind::LoadBalancer, 40, 30),
            (DoorKind::NodePort, 20, 10),
            (DoorKind::Direct, 5, 5),
            (DoorKind::Other, 10, 5),
            (DoorKind::Other, 3, 3),
        ]
    );
    assert_eq!((tally.unknown.opened[0], tally.unknown.counts.established), (22, 7));
    assert_eq!(tally.unattributed[0], 0);
}

#[tokio::test]
async fn a_headless_service_takes_nothing_from_others() {
    let mut view = both();
    view.services.get_mut(&name("t")).unwrap().addresses = Default::default();
    let (owner, _a) = with_doors(view).await;
    for service in ["s", "t"] {
        let figures = owner.figures_of(service).await;
        assert!(figures.shared_with.is_empty());
        assert_eq!(figures.endpoints[0].tally.opened[0][EXTERNAL], 100, "{service}");
    }
}

#[tokio::test]
async fn doors_go_with_their_node() {
    let owner = Owner::start();
    owner.see(both()).await;
    let admission = owner.connect("a", 1).await;
    let assignment = admission.assignments.borrow().clone().unwrap();
    let ports: Vec<(u16, u16)> = assignment
        .front_doors()
        .map(|door| (door.address.segments()[7], door.port))
        .collect();
    assert_eq!(ports, [(NODE, 30443), (BALANCER, 443), (CLUSTER, 80)]);
}

#[tokio::test]
async fn attempts_that_reach_no_pod_are_told_by_service() {
    let owner = Owner::start();
    owner.see(both()).await;
    let _b = owner.connect("b", 1).await;
    let at = |n, port, reason, attempts| Unserved {
        at: EndpointKey {
            address: address(n),
            port,
            protocol: Protocol::Tcp,
        },
        reason,
        attempts,
    };
    let unserved = vec![
        at(BALANCER, 443, UnservedReason::Dropped, 7),
        at(NODE, 30443, UnservedReason::Dropped, 5),
        at(1, 8883, UnservedReason::Refused, 3),
        at(0x999, 1, UnservedReason::Dropped, 50),
    ];
    for sequence in 1..=2 {
        let report = NodeReport {
            sequence,
            unserved: unserved.clone(),
            ..Default::default()
        };
        assert!(owner.send("b", 1, report).await);
    }
    let s = owner.figures().await;
    let told: Vec<_> = s
        .unserved
        .iter()
        .map(|row| (row.node.as_str(), row.reason, row.attempts[0], row.total))
        .collect();
    // The pod is on node a; b only forwards.
    assert_eq!(told, [("b", UnservedReason::Dropped, 12, 12)]);
    assert!(owner.figures_of("t").await.unserved.is_empty());

    let _a = owner.connect("a", 2).await;
    let report = NodeReport {
        sequence: 1,
        unserved,
        ..Default::default()
    };
    assert!(owner.send("a", 2, report).await);
    let t = owner.figures_of("t").await;
    let told: Vec<_> = t
        .unserved
        .iter()
        .map(|row| (row.node.as_str(), row.attempts[0]))
        .collect();
    assert_eq!(told, [("a", 3)]);
}
