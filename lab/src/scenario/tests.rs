//! Tables of scenario files: what is right in short form, and which message a mistake gets.

use super::*;

/// A right file that the tables below damage.
const RIGHT: &str = "\
name: right
nodes: 3
placement:
  node-1: 2
  node-2: [lone]
service: {name: web}
steps:
  - open: {flows: 100}
  - mark: later
  - move:
      pods: {lone: node-3}
  - check:
      since: later
      shares:
        - {pods: [lone], new: 50, within: 1}
";

fn error(yaml: &str) -> String {
    match Scenario::parse("s.yaml", yaml) {
        Ok(_) => panic!("accepted:\n{yaml}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_short_file_is_enough() {
    let scenario = Scenario::parse("s.yaml", "name: short\nplacement: {a: 2, b: 1}\nsteps: []\n").unwrap();
    assert_eq!(scenario.nodes, ["a", "b"]);
    let placed: Vec<_> = scenario
        .pods
        .pods()
        .iter()
        .map(|p| (p.pod.as_str(), p.node.as_str()))
        .collect();
    assert_eq!(placed, [("gateway-1", "a"), ("gateway-2", "a"), ("gateway-3", "b")]);
    assert_eq!(
        (scenario.service.port.get(), scenario.service.affinity_timeout()),
        (8883, None)
    );
    assert!(
        matches!(scenario.steps.as_slice(), [Step::Check(_)]),
        "a check is added at the end"
    );
}

#[test]
fn names_and_counts_mix() {
    let scenario = Scenario::parse("s.yaml", RIGHT).unwrap();
    assert_eq!(scenario.nodes, ["node-1", "node-2", "node-3"]);
    assert_eq!(scenario.pods.on("node-1").collect::<Vec<_>>(), ["web-1", "web-2"]);
    assert_eq!(
        scenario.pods.node_of("lone"),
        Some("node-2"),
        "the placement of the start, not of the end"
    );
}

#[test]
fn affinity_has_the_default_of_kubernetes() {
    let of = |service: &str| {
        let yaml = format!("name: a\nplacement: {{a: 1}}\nservice: {{{service}}}\nsteps: []\n");
        Scenario::parse("s.yaml", &yaml).unwrap().service.affinity_timeout()
    };
    assert_eq!(of("affinity: ClientIP"), Some(10_800));
    assert_eq!(of("affinity: ClientIP, affinity_timeout_seconds: 60"), Some(60));
    assert_eq!(of("affinity: None"), None);
}

#[test]
fn a_mistake_is_told_with_its_place_and_what_is_allowed() {
    let table = [
        // What to replace, by what, the place, and what the message says.
        (
            "name: right",
            "nam: right",
            "s.yaml:1:1:",
            "unknown field `nam`, expected one of name, description",
        ),
        (
            "  node-2: [lone]",
            "  node-9: [lone]",
            "s.yaml:5:",
            "placement: there is no node 'node-9'; use one of node-1, node-2, node-3",
        ),
        ("[lone]", "[lone, lone]", "s.yaml:5:", "the pod 'lone' is there twice"),
        (
            "  node-2: [lone]",
            "  node-1: [lone]",
            "s.yaml:5:3:",
            "duplicate mapping key `node-1`",
        ),
        ("[lone]", "[Lone_1]", "s.yaml:5:", "placement: 'Lone_1' is not a name"),
        ("nodes: 3", "nodes: 0", "s.yaml:2:8:", "nodes: from 1 to 32 are allowed"),
        (
            "nodes: 3",
            "nodes: 1000000",
            "s.yaml:2:8:",
            "nodes: from 1 to 32 are allowed",
        ),
        (
            "nodes: 3",
            "nodes: [node-1, node-1, node-2, node-3]",
            "s.yaml:2:8:",
            "nodes: 'node-1' is there twice",
        ),
        ("nodes: 3", "nodes: many", "s.yaml:2:", "a number, or a list of names"),
        ("node-1: 2", "node-1: 100", "s.yaml:4:", "at most 64 pods"),
        (
            "{name: web}",
            "{name: web, port: 0}",
            "s.yaml:6:",
            "a whole number from 1 to 65535",
        ),
        (
            "{name: web}",
            "{affinity: client}",
            "s.yaml:6:",
            "unknown variant `client`, expected one of None, ClientIP",
        ),
        (
            "{name: web}",
            "{affinity_timeout_seconds: 9}",
            "s.yaml:6:",
            "needs `affinity: ClientIP`",
        ),
        (
            "steps:",
            "balancer: fair\nsteps:",
            "s.yaml:7:",
            "expected one of equal, weighted, single-leader, source-hash",
        ),
        (
            "  - open: {flows: 100}",
            "  - opne: {flows: 100}",
            "s.yaml:8:5:",
            "unknown variant `opne`, expected one of open, close, wait",
        ),
        (
            "{flows: 100}",
            "{flow: 100}",
            "s.yaml:8:",
            "unknown field `flow`, expected one of flows, rate",
        ),
        (
            "{flows: 100}",
            "{flows: 0}",
            "s.yaml:8:",
            "a whole number from 1 to 100000",
        ),
        (
            "{flows: 100}",
            "{flows: 100, rate: 0}",
            "s.yaml:8:",
            "a whole number from 1 to 20000",
        ),
        (
            "{flows: 100}",
            "{flows: 100, lifetime: 5}",
            "s.yaml:8:",
            "with its unit, like 500ms, 5s",
        ),
        (
            "{flows: 100}",
            "{flows: 100, nat: {addresses: 2, percent: 101}}",
            "s.yaml:8:",
            "a whole number from 1 to 100",
        ),
        (
            "{flows: 100}",
            "{flows: 100, reconnect: {min: 2s, max: 1s}}",
            "s.yaml:8:",
            "min must not be longer than max",
        ),
        (
            "{flows: 100}",
            "{flows: 100000, clients: 4}",
            "s.yaml:8:",
            "one address can hold 20000 flows",
        ),
        (
            "{flows: 100}",
            "{flows: 100000, nat: {addresses: 1, percent: 30}}",
            "s.yaml:8:",
            "one address can hold",
        ),
        ("- mark: later", "- mark: start", "s.yaml:9:", "mark: 'start' is taken"),
        (
            "{lone: node-3}",
            "{lone: node-2}",
            "s.yaml:11:",
            "'lone' is already there",
        ),
        (
            "{lone: node-3}",
            "{lone: node-4}",
            "s.yaml:11:",
            "there is no node 'node-4'",
        ),
        (
            "{lone: node-3}",
            "{alone: node-3}",
            "s.yaml:11:",
            "no pod 'alone' at this step; use one of lone, web-1, web-2",
        ),
        (
            "since: later",
            "since: latr",
            "s.yaml:13:14:",
            "no mark 'latr' before this step; use one of start, later",
        ),
        (
            "[lone], new",
            "[web-3], new",
            "s.yaml:15:",
            "check.shares.pods: there is no pod 'web-3' at this step",
        ),
        (
            "pods: [lone], new",
            "nodes: [node-2], new",
            "s.yaml:15:",
            "'node-2' has no pod here",
        ),
        (
            "pods: [lone], new: 50",
            "new: 50",
            "s.yaml:15:",
            "either `pods` or `nodes` is needed",
        ),
        (
            "new: 50, ",
            "",
            "s.yaml:15:",
            "at least one of `new`, `established`, `expected`",
        ),
        ("new: 50", "new: -50", "s.yaml:15:", "a number of 0 or more"),
        (
            "since: later",
            "balancer: equal",
            "s.yaml:13:",
            "expected one of equal-per-node, weighted, single-leader",
        ),
        (
            "since: later",
            "findings: [placement]",
            "s.yaml:13:",
            "expected one of placement-skew",
        ),
        (
            "since: later",
            "findings: [persistence, persistence]",
            "s.yaml:13:",
            "each code once",
        ),
        (
            "since: later",
            "theil: {placement: {value: 95}}",
            "s.yaml:13:",
            "a bound is `value` and `within`",
        ),
        (
            "- mark: later",
            "- start_agent: node-1",
            "s.yaml:9:",
            "the agent of 'node-1' runs",
        ),
        ("- mark: later", "- wait: 11m", "s.yaml:9:", "wait: at most 600s"),
        (
            "- mark: later",
            "- close: {group: others}",
            "s.yaml:9:",
            "'others' was not opened before; use one of clients",
        ),
        (
            "- mark: later",
            "- scale: {node: node-1, pods: 63}\n  - scale: {node: node-3, pods: 2}",
            "s.yaml:10:",
            "at most 64 pods",
        ),
        (
            "- mark: later",
            "- restart: {pods: []}",
            "s.yaml:9:",
            "at least one pod is needed",
        ),
        (
            "- mark: later",
            "- check: {opened: exactly}",
            "s.yaml:9:",
            "expected one of exact, ignore",
        ),
        ("steps:", "steps: [", "s.yaml:", ""),
    ];
    for (from, to, place, says) in table {
        assert!(RIGHT.contains(from), "{from}");
        let message = error(&RIGHT.replacen(from, to, 1));
        assert!(message.starts_with(place), "{to}\nexpected {place}\ngot {message}");
        assert!(message.contains(says), "{to}\nexpected {says}\ngot {message}");
    }
}

#[test]
fn the_message_shows_the_line() {
    let message = error(&RIGHT.replace("lone: node-3", "lone: node-4"));
    assert!(message.contains("\n   11 |       pods: {lone: node-4}"), "{message}");
}

#[test]
fn all_mistakes_are_told_at_once() {
    let message = error(
        &RIGHT
            .replace("since: later", "since: x")
            .replace("pods: [lone]", "pods: [y]"),
    );
    assert!(
        message.contains("no mark 'x'") && message.contains("no pod 'y'"),
        "{message}"
    );
}

#[test]
fn a_killed_agent_can_start_again_but_not_twice() {
    let with = |steps: &str| Scenario::parse("s.yaml", &format!("name: a\nplacement: {{a: 1}}\nsteps:\n{steps}"));
    assert!(with("  - kill_agent: a\n  - start_agent: a\n  - kill_agent: a\n").is_ok());
    let message = with("  - kill_agent: a\n  - kill_agent: a\n").unwrap_err().to_string();
    assert!(message.contains("the agent of 'a' does not run"), "{message}");
}

#[test]
fn no_file_is_told_by_its_path() {
    let message = Scenario::load(Path::new("/nonexistent/s.yaml"))
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with("cannot read the scenario file /nonexistent/s.yaml: "),
        "{message}"
    );
}
