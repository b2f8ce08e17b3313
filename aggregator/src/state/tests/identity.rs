//! Which pod are the flows at an address of? By id where the agent knows it, else by who had the address first.

use super::*;

/// (new, established) of a tally, external.
fn flows(tally: &Tally) -> (u64, u64) {
    (tally.opened[0][EXTERNAL], tally.counts[EXTERNAL].established)
}

/// Flows of each ready pod, and of each other one with its state.
async fn shown(owner: &Owner) -> (Vec<(u64, u64)>, Vec<(String, GoneState, u64, u64)>) {
    let figures = owner.figures().await;
    let ready = figures.endpoints.iter().map(|endpoint| flows(&endpoint.tally));
    let others = figures.gone.iter().map(|gone| {
        let (new, established) = flows(&gone.tally);
        (gone.pod.clone(), gone.state, new, established)
    });
    (
        ready.collect(),
        others.filter(|(_, _, new, open)| new + open > 0).collect(),
    )
}

/// An owner that sees one pod, and the agent of its node.
async fn started(endpoints: Vec<Endpoint>) -> (Owner, Admission) {
    let owner = Owner::start();
    owner.see(view_of(&[("s", 443, endpoints)])).await;
    let admission = owner.connect("a", 1).await;
    (owner, admission)
}

async fn report(owner: &Owner, sequence: u64, entries: Vec<Entry>) {
    let report = NodeReport {
        sequence,
        entries,
        ..Default::default()
    };
    assert!(owner.send("a", 1, report).await);
}

/// Another pod at the address of pod 1.
fn successor() -> Endpoint {
    Endpoint {
        pod: "next".to_owned(),
        pod_uid: "uid-next".into(),
        ..endpoint("a", 1)
    }
}

#[tokio::test]
async fn a_reused_address_mixes_nothing_when_ids_are_known() {
    let (owner, _a) = started(vec![endpoint("a", 1)]).await;
    report(&owner, 1, vec![entry_of("uid-1", 1, 5, 10, 4)]).await;
    owner.see(view_of(&[("s", 443, vec![successor()])])).await;
    report(
        &owner,
        2,
        vec![entry_of("uid-1", 1, 5, 11, 3), entry_of("uid-next", 1, 6, 7, 7)],
    )
    .await;
    // What the old one's clients still hold open is shown as its own.
    let gone = ("pod-1".to_owned(), GoneState::Gone, 11, 3);
    assert_eq!(shown(&owner).await, (vec![(7, 7)], vec![gone]));
}

#[tokio::test]
async fn a_reused_address_mixes_nothing_when_only_cgroups_are_known() {
    let (owner, _a) = started(vec![endpoint("a", 1)]).await;
    report(&owner, 1, vec![entry(1, 5, 10, 4)]).await;
    owner.see(view_of(&[("s", 443, vec![])])).await;
    owner.see(view_of(&[("s", 443, vec![successor()])])).await;
    report(&owner, 2, vec![entry(1, 5, 11, 3), entry(1, 6, 7, 7)]).await;
    let gone = ("pod-1".to_owned(), GoneState::Gone, 11, 3);
    assert_eq!(shown(&owner).await, (vec![(7, 7)], vec![gone]));
}

#[tokio::test]
async fn a_key_seen_before_its_pod_is_the_pods_after_all() {
    let (owner, _a) = started(vec![endpoint("a", 1)]).await;
    report(&owner, 1, vec![entry(1, 5, 10, 0)]).await;
    // The next pod serves before the API server has told that it is there.
    report(&owner, 2, vec![entry(1, 5, 10, 0), entry(1, 6, 1, 1)]).await;
    owner.see(view_of(&[("s", 443, vec![successor()])])).await;
    report(&owner, 3, vec![entry(1, 5, 10, 0), entry(1, 6, 2, 2)]).await;
    report(&owner, 4, vec![entry(1, 5, 10, 0), entry(1, 6, 9, 9)]).await;
    let gone = ("pod-1".to_owned(), GoneState::Gone, 10, 0);
    assert_eq!(shown(&owner).await, (vec![(9, 9)], vec![gone]));
}

#[tokio::test]
async fn a_reused_address_is_parted_in_time_when_nothing_is_known() {
    let (owner, _a) = started(vec![endpoint("a", 1)]).await;
    report(&owner, 1, vec![entry(1, 0, 10, 4)]).await;
    owner.see(view_of(&[("s", 443, vec![successor()])])).await;
    report(&owner, 2, vec![entry(1, 0, 17, 9)]).await;
    let gone = ("pod-1".to_owned(), GoneState::Gone, 10, 0);
    assert_eq!(shown(&owner).await, (vec![(7, 9)], vec![gone]));
}

#[tokio::test]
async fn flows_of_a_pod_that_vanished_stay_established() {
    for pod in [Some("uid-1"), None] {
        let (owner, _a) = started(vec![endpoint("a", 1), endpoint("a", 2)]).await;
        let of = |opened, established| Entry {
            pod_uid: pod.map(Into::into),
            ..entry(1, 5, opened, established)
        };
        report(&owner, 1, vec![of(10, 10)]).await;
        owner.see(view_of(&[("s", 443, vec![endpoint("a", 2)])])).await;
        report(&owner, 2, vec![of(10, 6)]).await;
        let gone = ("pod-1".to_owned(), GoneState::Gone, 10, 6);
        assert_eq!(shown(&owner).await, (vec![(0, 0)], vec![gone]));
    }
}

#[tokio::test]
async fn pods_on_one_node_address_are_told_apart() {
    // Of the host network: the second takes over the port of the first, and something else of the node has it too.
    let (owner, _a) = started(vec![endpoint("a", 1)]).await;
    let entries = vec![
        entry_of("uid-1", 1, 5, 10, 4),
        entry_of("uid-unknown", 1, 6, 20, 5),
        entry(1, 7, 40, 6),
        entry(1, 0, 3, 1),
    ];
    report(&owner, 1, entries).await;
    // The pod's own, and those whose cgroup the kernel does not tell.
    let stranger = ("uid-unknown".to_owned(), GoneState::OtherPod, 20, 5);
    assert_eq!(shown(&owner).await, (vec![(13, 5)], vec![stranger]));
    assert_eq!(owner.figures().await.of_no_pod[0], 40);
}

#[tokio::test]
async fn pods_of_others_are_not_told() {
    let owner = Owner::start();
    let mut other = endpoint("a", 1);
    (other.pod, other.pod_uid) = ("other".to_owned(), "uid-other".into());
    let mut both = view_of(&[("s", 443, vec![endpoint("a", 1)]), ("t", 443, vec![other])]);
    both.pods = [("uid-daemon".into(), name("daemon"))].into();
    owner.see(both.clone()).await;
    let _a = owner.connect("a", 1).await;
    let entries = vec![
        entry_of("uid-1", 1, 5, 10, 4),
        entry_of("uid-other", 1, 6, 20, 5),
        entry_of("uid-daemon", 1, 7, 40, 6),
    ];
    report(&owner, 1, entries).await;
    assert_eq!(shown(&owner).await, (vec![(10, 4)], vec![]));
    // Nor after the Service that knew the pod is gone.
    both.services.remove(&name("t"));
    owner.see(both).await;
    assert_eq!(shown(&owner).await, (vec![(10, 4)], vec![]));
}

#[tokio::test]
async fn an_endpoint_without_a_pod_has_all_that_comes() {
    let mut bare = endpoint("a", 1);
    bare.pod_uid = "".into();
    let (owner, _a) = started(vec![bare]).await;
    report(&owner, 1, vec![entry_of("uid-1", 1, 5, 10, 4), entry(1, 6, 20, 5)]).await;
    assert_eq!(shown(&owner).await, (vec![(30, 9)], vec![]));
}

#[tokio::test]
async fn a_service_that_is_deleted_and_made_anew_counts_once() {
    let (owner, _a) = started(vec![endpoint("a", 1)]).await;
    report(&owner, 1, vec![entry_of("uid-1", 1, 5, 10, 4)]).await;
    let not_ready = view(&[("a", 1, false)]);
    for view in [
        ClusterView::default(),
        not_ready.clone(),
        ClusterView::default(),
        not_ready,
    ] {
        owner.see(view).await;
    }
    let not_ready = ("pod-1".to_owned(), GoneState::NotReady, 10, 4);
    assert_eq!(shown(&owner).await, (vec![], vec![not_ready]));
}

#[tokio::test]
async fn when_ready_pods_changed_is_known() {
    let (owner, _a) = started(vec![endpoint("a", 1)]).await;
    assert_eq!(owner.figures().await.endpoints_changed_ms, None);
    let before = now_ms();
    owner.see(view_of(&[("s", 443, vec![successor()])])).await;
    let changed_ms = owner.figures().await.endpoints_changed_ms.unwrap();
    assert!((before..=now_ms()).contains(&changed_ms));
    // Not by what is not ready.
    let mut starting = endpoint("a", 9);
    starting.ready = false;
    owner.see(view_of(&[("s", 443, vec![successor(), starting])])).await;
    assert_eq!(owner.figures().await.endpoints_changed_ms, Some(changed_ms));
}
