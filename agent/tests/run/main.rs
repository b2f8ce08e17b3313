//! `flowskew-agent run` as a process, against a small aggregator on loopback that the test can stop and start. Needs root and
//! the built-in object; each test says so and passes when it cannot run.

#[path = "../common/mod.rs"]
mod common;

mod aggregator;
mod clients;

use std::{
    net::SocketAddr,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use aggregator::{PATIENCE, TestAggregator};
use common::can_load_programs;
use flowskew_proto::v1::Assignment;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::timeout,
};

async fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("an address")
}

fn agent(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowskew-agent"));
    command
        .args(["run", "--node", "worker-1", "--no-pin", "--pin-dir", "/nowhere"])
        .args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn terminate(child: &mut Child) -> ExitStatus {
    let id = i32::try_from(child.id().expect("it runs")).expect("an id");
    kill_process(Pid::from_raw(id).expect("an id"), Signal::TERM).expect("signalled");
    timeout(PATIENCE, child.wait())
        .await
        .expect("it stops in time")
        .expect("a status")
}

/// GET over plain HTTP: status and body.
async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .await
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text.split_once("\r\n\r\n")?.1.to_owned()))
}

#[tokio::test]
async fn reports_survive_an_aggregator_that_comes_and_goes() {
    if !can_load_programs() {
        return;
    }
    let (grpc, http) = (free_address().await, free_address().await);
    let mut child = agent(&[
        "--aggregator",
        &format!("http://{grpc}"),
        "--http-listen",
        &http.to_string(),
    ])
    .args(["--assignment-wait", "500ms", "--report-interval", "200ms"])
    .spawn()
    .expect("starts");

    // Nobody there: it becomes ready all the same, and keeps reports.
    let ready = async {
        while get(http, "/readyz").await.is_none_or(|(status, _)| status != 200) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, ready).await.expect("ready without an aggregator");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let (_, metrics) = get(http, "/metrics").await.expect("metrics");
    assert!(
        metrics.contains("flowskew_agent_connected 0") && metrics.contains("# EOF"),
        "{metrics}"
    );

    // It comes: everything from the first report on arrives, in order.
    let mut aggregator = TestAggregator::start(grpc, false, Assignment::default()).await;
    assert_eq!(aggregator.hears_hello().await, "worker-1");
    let first = aggregator.hears_report().await;
    let second = aggregator.hears_report().await;
    assert_eq!((first.sequence, second.sequence), (1, 2));
    assert!(first.sent_at_ms >= first.taken_at_ms && first.taken_at_ms >= first.epoch_started_at_ms);
    aggregator.stop();

    // It comes back: nothing was acknowledged, so the first report comes again.
    let mut aggregator = TestAggregator::start(grpc, true, Assignment::default()).await;
    aggregator.hears_hello().await;
    let again = aggregator.hears_report().await;
    assert_eq!(
        (again.epoch, again.sequence, again.taken_at_ms),
        (first.epoch, 1, first.taken_at_ms)
    );
    let mut last = again.sequence;
    for _ in 0..6 {
        let report = aggregator.hears_report().await;
        assert_eq!(report.sequence, last + 1);
        last = report.sequence;
    }
    let acknowledged = async {
        while !get(http, "/metrics")
            .await
            .is_some_and(|(_, text)| text.contains("flowskew_agent_reports_pending 0\n"))
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, acknowledged).await.expect("acknowledgements arrive");
    aggregator.stop();

    // Once more: the last acknowledged report is the baseline, then only what is new.
    let mut aggregator = TestAggregator::start(grpc, true, Assignment::default()).await;
    aggregator.hears_hello().await;
    let baseline = aggregator.hears_report().await;
    assert!(baseline.sequence >= last, "{} after {last}", baseline.sequence);
    assert_eq!(aggregator.hears_report().await.sequence, baseline.sequence + 1);

    assert!(terminate(&mut child).await.success());
    aggregator.stop();
}

#[tokio::test]
async fn sigterm_brings_the_last_counts() {
    if !can_load_programs() {
        return;
    }
    let (grpc, http) = (free_address().await, free_address().await);
    let mut aggregator = TestAggregator::start(grpc, true, Assignment::default()).await;
    let mut child = agent(&[
        "--aggregator",
        &format!("http://{grpc}"),
        "--http-listen",
        &http.to_string(),
    ])
    .args(["--report-interval", "1h"])
    .spawn()
    .expect("starts");
    aggregator.hears_hello().await;
    let first = aggregator.hears_report().await;

    let listener = std::net::TcpListener::bind("127.9.2.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let flows: Vec<_> = (0..7)
        .map(|_| std::net::TcpStream::connect(address).expect("connects"))
        .collect();
    assert!(terminate(&mut child).await.success());
    let last = aggregator.hears_report().await;
    assert_eq!(last.sequence, first.sequence + 1);
    let entry = last
        .entries
        .iter()
        .find(|entry| entry.port == u32::from(address.port()) && entry.address[12..] == [127, 9, 2, 1]);
    assert_eq!(
        entry.map(|entry| entry.classes.iter().map(|class| class.opened).sum()),
        Some(7_u64)
    );
    drop(flows);
    aggregator.stop();
}

#[tokio::test]
async fn what_is_wrong_is_said_plainly() {
    if !can_load_programs() {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for (arguments, expected) in [
        (["--http-listen", address.as_str()], "choose another with --http-listen"),
        (["--aggregator", "aggregator:9471"], "http://HOST:9471"),
        (["--report-interval", "10"], "write 500ms, 10s, 5m or 1h"),
    ] {
        let output = timeout(PATIENCE, agent(&[]).args(arguments).output())
            .await
            .expect("ends in time")
            .expect("runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains(expected),
            "{arguments:?}: {text}"
        );
    }
}

#[tokio::test]
async fn without_privileges_it_names_what_is_missing() {
    if !can_load_programs() {
        return;
    }
    let output = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--clear-groups",
            "--inh-caps=-all",
            env!("CARGO_BIN_EXE_flowskew-agent"),
            "check",
        ])
        .output()
        .await;
    let Ok(output) = output else {
        eprintln!("skipped: setpriv (package util-linux) is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if text.is_empty() {
        eprintln!(
            "skipped: another user cannot run the binary: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    assert!(
        !output.status.success() && text.contains("CAP_BPF and CAP_PERFMON missing"),
        "{text}"
    );
}
