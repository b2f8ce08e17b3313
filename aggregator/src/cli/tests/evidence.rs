//! Reports with something in each part, and what a person sees of them.

use super::*;

/// A report with something in each part.
fn troubled() -> ServiceReport {
    let mut report = report();
    let load = |cpu_cores, throttled_share, overflows, shares_network| LoadRow {
        seconds: 300.0,
        cpu_cores: Some(cpu_cores),
        throttled_share: Some(throttled_share),
        listen_overflows: Some(overflows),
        listen_drops: Some(overflows + 1),
        syn_cookies: None,
        shares_network,
    };
    report.endpoints[1].load = Some(load(0.5, 0.001, 0, true));
    report.endpoints[2].load = Some(load(2.749, 0.12, 34, false));
    let sum = |kind, new| DoorSum {
        kind,
        new,
        opened: new,
        established: 0,
    };
    report.front_doors = vec![
        sum(DoorKind::LoadBalancer, 960),
        sum(DoorKind::NodePort, 40),
        sum(DoorKind::Unknown, 1000),
    ];
    let attempts = |node: &str, reason, endpoints| UnservedRow {
        node: node.to_owned(),
        reason,
        attempts: 12,
        endpoints,
    };
    report.unserved = vec![
        attempts("worker-4", UnservedReason::Dropped, 0),
        attempts("worker-5", UnservedReason::Refused, 1),
    ];
    let gone = |pod: &str, state, established, stale| GoneRow {
        pod: pod.to_owned(),
        pod_uid: String::new(),
        node: "worker-1".to_owned(),
        address: String::new(),
        port: 1,
        state,
        gone_ms: None,
        new: 1200,
        established,
        opened_total: 0,
        closed_total: 0,
        stale,
    };
    report.gone_endpoints = vec![
        gone("gw-7", GoneState::Gone, 33, false),
        gone("dns-7", GoneState::Gone, 4, true),
        gone("gw-8", GoneState::NotReady, 0, false),
    ];
    report.notes = vec!["Something limits this.".to_owned()];
    report.losses.degradations = ["worker-1", "worker-2"]
        .map(|node| NodeDegradation {
            node: node.to_owned(),
            code: "udp".to_owned(),
            sentence: "UDP is not counted.".to_owned(),
        })
        .into();
    report
}

#[test]
fn what_else_is_known_is_told() {
    let text = render_table(&troubled());
    for part in [
        "ESTABLISHED   SHARE   CPU  TROUBLE\n",
        " gw-0  worker-1   5,000  25.0 %    25.0 %  33.3 %        2,500  25.0 %     -\n",
        "25.0 %  0.50  1 drop on its node\n",
        "50.0 %  2.75  throttled 12 %, 34 overflows, 1 drop\n",
        "Front doors of new flows: load balancer 96.0 %, node port 4.0 % (known for 50.0 % of the flows)\n",
        "Gone: gw-7 on worker-1: 1,200 new, 33 still open\n",
        "Gone: dns-7 on worker-1: 1,200 new, 4 stale: clients still send to it\n",
        "Not ready: gw-8 on worker-1: 1,200 new\n",
        "12 attempts reached no pod: dropped on node worker-4 (no local endpoint; the balancer still sends there)\n",
        "12 attempts reached no pod: refused on node worker-5 (nothing listened at the endpoint)\n",
        "gw-2 is alone on its node.\nNote: Something limits this.\nlosses: none\n",
        "udp on nodes worker-1, worker-2: UDP is not counted.\n",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_screen_is_kept_whatever_there_is_to_tell() {
    let mut report = troubled();
    report.endpoints = (0..500)
        .map(|n| endpoint(&format!("pod-{n:03}"), "worker-1", n, 0.002))
        .collect();
    report.unserved = vec![report.unserved[0].clone(); 50];
    report.gone_endpoints = vec![report.gone_endpoints[0].clone(); 50];
    let text = render_table(&report);
    assert!(text.lines().count() < 62, "{}", text.lines().count());
    assert!(text.contains("... and 47 endpoints more; -o json has all\n"), "{text}");
}
