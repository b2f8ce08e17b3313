//! Tables: counts and losses that differ, and the rows that do not hold.

use std::collections::{BTreeMap, BTreeSet};

use super::super::evaluate::tests::{broken, flows, of_service, seen};
use super::super::observe::{Flows, GoneCounts, PodCounts, ServiceCounts, UnservedCounts};

fn kinds(of: &str, kinds: &[(&str, u64)]) -> BTreeMap<String, BTreeMap<String, u64>> {
    let kinds = kinds.iter().map(|&(kind, count)| (kind.to_owned(), count));
    BTreeMap::from([(of.to_owned(), kinds.collect())])
}

#[test]
fn one_flow_too_few_or_too_many_is_a_difference() {
    type Damage = fn(&mut PodCounts);
    fn agent(pod: &mut PodCounts) -> &mut Flows {
        pod.agent.as_mut().unwrap()
    }
    fn aggregator(pod: &mut PodCounts) -> &mut Flows {
        pod.services[0].aggregator.as_mut().unwrap()
    }
    let table: [(Damage, &str, &str); 6] = [
        (
            |pod| agent(pod).opened = 74,
            "opened: ignore",
            "opened, by the agents: q: 74, not 75",
        ),
        (
            |pod| aggregator(pod).opened = 76,
            "opened: ignore",
            "opened, by the aggregator: q: 76, not 75",
        ),
        (
            |pod| agent(pod).closed = 6,
            "closed: ignore",
            "closed, by the agents: q: 6, not 5",
        ),
        (
            |pod| aggregator(pod).closed = 0,
            "closed: ignore",
            "closed, by the aggregator: q: 0, not 5",
        ),
        (
            |pod| agent(pod).established = 0,
            "established: ignore",
            "established, by the agents: q: 0, not 70",
        ),
        (
            |pod| aggregator(pod).established = 9,
            "established: ignore",
            "established, by the aggregator: q: 9, not 70",
        ),
    ];
    for (damage, ignore, expected) in table {
        let mut seen = seen();
        damage(&mut seen.pods[1]);
        assert_eq!(broken("{}", &seen), [expected]);
        assert!(broken(ignore, &seen).is_empty(), "{ignore}");
    }
    let mut seen = seen();
    seen.pods[1].services[0].aggregator = None;
    assert_eq!(broken("{}", &seen)[0], "opened, by the aggregator: q: unknown, not 75");
}

#[test]
fn each_service_of_a_pod_is_compared() {
    let mut seen = seen();
    for pod in &mut seen.pods {
        let other = ServiceCounts {
            service: "api".to_owned(),
            ..of_service(flows(9))
        };
        pod.services.push(other);
    }
    assert!(broken("{}", &seen).is_empty());
    seen.pods[0].services[1].aggregator = Some(flows(8));
    assert_eq!(
        broken("{}", &seen),
        [
            "opened, by the aggregator: p of api: 8, not 9",
            "established, by the aggregator: p of api: 3, not 4"
        ]
    );
}

#[test]
fn flows_of_pods_that_are_gone_are_compared() {
    let mut seen = seen();
    let truth = Flows {
        opened: 40,
        closed: 40,
        established: 0,
    };
    seen.gone.push(GoneCounts {
        pod: "old".to_owned(),
        node: "a".to_owned(),
        address: "10.0.0.1".parse().unwrap(),
        flows: of_service(truth),
    });
    assert!(broken("{}", &seen).is_empty());
    seen.gone[0].flows.aggregator = None;
    assert_eq!(
        broken("{}", &seen),
        [
            "opened on pods that are gone: old at 10.0.0.1 of web: unknown, not 40",
            "closed on pods that are gone: old at 10.0.0.1 of web: unknown, not 40",
            "established on pods that are gone: old at 10.0.0.1 of web: unknown, not 0"
        ]
    );
    assert!(broken("gone: ignore", &seen).is_empty());
}

#[test]
fn attempts_that_reached_no_pod_are_as_many_as_failed_and_where_they_may_be() {
    let mut seen = seen();
    let counts = |reason: &str, truth, at: &[(&str, u64)]| UnservedCounts {
        service: "web".to_owned(),
        reason: reason.to_owned(),
        truth,
        aggregator: at.iter().map(|&(node, count)| (node.to_owned(), count)).collect(),
        allowed: BTreeSet::from(["c".to_owned()]),
    };
    seen.unserved = vec![counts("dropped", 7, &[("c", 7)]), counts("refused", 2, &[("a", 2)])];
    assert!(broken("{}", &seen).is_empty());
    seen.unserved = vec![
        counts("dropped", 7, &[("c", 6), ("a", 1)]),
        counts("refused", 2, &[("a", 1)]),
    ];
    assert_eq!(
        broken("{}", &seen),
        [
            "attempts to web that were dropped: 1 at a, 6 at c",
            "attempts to web that were refused: 1 at a"
        ]
    );
    assert!(broken("unserved: ignore", &seen).is_empty());
    seen.unserved = vec![counts("dropped", 0, &[("c", 1)])];
    assert_eq!(broken("{}", &seen), ["attempts to web that were dropped: 1 at c"]);
}

#[test]
fn a_pod_whose_agent_was_killed_is_not_counted() {
    let mut seen = seen();
    seen.pods[1].agent = None;
    seen.report.losses.silent_nodes = vec!["b".to_owned()];
    assert_eq!(broken("{}", &seen).len(), 4);
    seen.killed.insert("b".to_owned());
    assert!(broken("{}", &seen).is_empty());
}

#[test]
fn each_loss_is_told() {
    let mut seen = seen();
    seen.report_losses = kinds(
        "web",
        &[("orphan_close", 2), ("unclassified", 1), ("flows_on_gone_endpoints", 5)],
    );
    seen.agent_losses = kinds("a", &[("flows_full", 7)]);
    seen.failed.insert("timeout".to_owned(), 3);
    assert_eq!(
        broken("{}", &seen),
        [
            "losses: orphan_close 2, unclassified 1, flows_full 7 at the agent of a",
            "attempts that failed: timeout 3"
        ]
    );
    assert!(broken("{losses: ignore, failures: ignore}", &seen).is_empty());
}

#[test]
fn losses_that_must_be_are_as_many_as_they_must_be() {
    let mut seen = seen();
    seen.pods.truncate(1);
    seen.agent_losses = kinds("a", &[("flows_full", 7), ("ring_full", 3)]);
    seen.report_losses = kinds("web", &[("flows_full", 7), ("ring_full", 3)]);
    seen.losses_due = kinds("a", &[("flows_full", 7)]);
    let exact = "losses: {flows_full: exact, ring_full: {at_least: 1}}";
    assert!(broken(exact, &seen).is_empty());
    assert_eq!(
        broken("losses: {flows_full: exact}", &seen),
        ["other losses: ring_full 3, ring_full 3 at the agent of a"]
    );
    assert_eq!(
        broken("losses: {flows_full: exact, ring_full: {at_most: 2}}", &seen),
        ["ring_full, by the agents: 3"]
    );
    seen.agent_losses = kinds("a", &[("flows_full", 7), ("ring_full", 3), ("recursion", 2)]);
    assert_eq!(broken(exact, &seen), ["other losses: recursion 2 at the agent of a"]);
    seen.agent_losses = kinds("a", &[("flows_full", 7), ("ring_full", 3)]);
    seen.report_losses = kinds("web", &[("flows_full", 6), ("ring_full", 3)]);
    seen.losses_due = kinds("a", &[("flows_full", 8)]);
    assert_eq!(
        broken(exact, &seen),
        ["flows_full, by the agents: 7", "flows_full, in the report: 6"]
    );
    seen.losses_due.clear();
    assert!(broken(exact, &seen).contains(&"flows_full, by the agents: 7".to_owned()));
}
