//! How a network comes and goes, also when its process is killed.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use flowskew_lab::net::{Family, Network, ProxyMode, StopPod, clean_stale};
use tokio::time::sleep;

use crate::support::*;

#[tokio::test]
async fn network_leaves_nothing_behind() {
    let Some(_turn) = turn() else { return };
    let (mut network, clients) = start(plan(ProxyMode::Iptables, Family::V4)).await;
    open(&clients, request(Family::V4, 500, 10)).await;
    let id = network.id().to_owned();
    assert!(traces(&id).len() > 10, "{:?}", traces(&id));
    network.destroy().await.unwrap();
    network.destroy().await.unwrap();
    assert_eq!(traces(&id), Vec::<String>::new());

    let (network, _clients) = start(plan(ProxyMode::Nftables, Family::V6)).await;
    let id = network.id().to_owned();
    drop(network);
    assert_eq!(traces(&id), Vec::<String>::new(), "dropped without destroy");
}

#[tokio::test]
async fn network_errors_name_the_thing() {
    let Some(_turn) = turn() else { return };
    let mut network = Network::create(plan(ProxyMode::Nftables, Family::V4)).await.unwrap();
    let says = |error: anyhow::Error, words: &str| assert!(format!("{error:#}").contains(words), "{error:#}");
    says(
        network.start_pod("a", "node-9").await.unwrap_err(),
        "no node node-9: the nodes are node-0, node-1, node-2",
    );
    says(network.start_pod("A", "node-0").await.unwrap_err(), "pod name \"A\"");
    says(network.set_endpoints(&names(&["a"])).await.unwrap_err(), "no pod a");
    says(network.stop_pod("a", StopPod::Kill).await.unwrap_err(), "no pod a");
    network.start_pod("a", "node-0").await.unwrap();
    says(
        network.start_pod("a", "node-1").await.unwrap_err(),
        "pod a runs already",
    );
    let clients = network.clients().await.unwrap();
    says(
        clients.open(request(Family::V4, 1, 0)).await.unwrap_err(),
        "no source addresses",
    );
    network.destroy().await.unwrap();
    says(clients.open(request(Family::V4, 1, 1)).await.unwrap_err(), "has ended");
}

/// Not a test: the victim of the next one.
#[tokio::test]
#[ignore = "runs until it is killed"]
async fn victim() {
    let (network, clients) = start(plan(ProxyMode::Nftables, Family::V4)).await;
    open(&clients, request(Family::V4, 100, 10)).await;
    println!("\nvictim {}", network.id());
    sleep(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn network_of_a_killed_run_is_cleaned_and_live_ones_are_not() {
    let Some(_turn) = turn() else { return };
    let mut live = Network::create(plan(ProxyMode::Nftables, Family::V4)).await.unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lifecycle::victim", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let id = lines
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("victim ").map(str::to_owned))
        .unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();

    let processes = || {
        traces(&id)
            .into_iter()
            .filter(|trace| trace.starts_with("process"))
            .count()
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while processes() > 0 {
        assert!(Instant::now() < deadline, "pods and clients live on: {:?}", traces(&id));
        sleep(Duration::from_millis(20)).await;
    }
    assert!(!traces(&id).is_empty(), "its namespaces are stale");
    let report = clean_stale().unwrap();
    assert!(report.removed.contains(&id), "{report:?}");
    assert!(report.in_use.contains(&live.id().to_owned()), "{report:?}");
    assert_eq!(traces(&id), Vec::<String>::new());
    live.start_pod("a", "node-0").await.unwrap();
    live.destroy().await.unwrap();
}
