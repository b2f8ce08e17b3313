//! Tables of scenario files: what is right in short form, and which message a mistake gets.

mod mistakes;

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
fn a_check_that_some_runs_leave_out_is_not_the_last() {
    let with = |check: &str| {
        let yaml = format!("name: a\nplacement: {{a: 1}}\nsteps:\n  - check: {check}\n");
        Scenario::parse("s.yaml", &yaml).unwrap().steps.len()
    };
    assert_eq!(with("{name: last}"), 1);
    assert_eq!(with("{when: {mode: iptables}}"), 2);
}

#[test]
fn zones_and_work_are_read() {
    let yaml = "name: a\nplacement: {a: 1, b: 1}\nzones: {a: east, b: west}\nbalancer: zone-equal\n\
                work: {per_flow: 2ms}\nsteps: []\n";
    let scenario = Scenario::parse("s.yaml", yaml).unwrap();
    assert_eq!(
        (scenario.zones["a"].as_str(), scenario.zones["b"].as_str()),
        ("east", "west")
    );
    assert_eq!(scenario.balancer, crate::net::Balancer::ZoneEqual);
    assert_eq!(scenario.work, Duration::from_millis(2));
}

#[test]
fn clients_are_exact_since_the_last_change() {
    let with = |step: &str, since: &str| {
        let steps = format!("  - {step}\n  - mark: then\n  - check: {{since: {since}, clients: {{exact: true}}}}\n");
        Scenario::parse(
            "s.yaml",
            &format!("name: a\nplacement: {{a: [one], b: 1}}\nsteps:\n{steps}"),
        )
        .is_ok()
    };
    for change in [
        "restart: {pods: [one]}",
        "move: {pods: {one: b}}",
        "replace: {pods: {one: two}}",
        "scale: {node: b, pods: 2}",
        "kill_agent: a",
        "open: {for: 5s, rate: 9, lifetime: 0s, kill_agents: {times: 1, min: 1s, max: 1s}}",
    ] {
        assert_eq!([with(change, "start"), with(change, "then")], [false, true], "{change}");
    }
    assert!(with("open: {flows: 1}", "start"));
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
fn a_pod_that_is_replaced_is_known_by_its_new_name() {
    let with = |steps: &str| Scenario::parse("s.yaml", &format!("name: a\nplacement: {{a: [one]}}\nsteps:\n{steps}"));
    assert!(with("  - replace: {pods: {one: two}}\n  - restart: {pods: [two]}\n").is_ok());
    let steps = "  - replace: {pods: {one: two}}\n  - restart: {pods: [one]}\n";
    let message = with(steps).unwrap_err().to_string();
    assert!(
        message.contains("there is no pod 'one' at this step; use one of two"),
        "{message}"
    );
}

#[test]
fn a_pod_with_the_address_of_its_node_leaves_none_and_does_not_vanish() {
    let with = |step: &str| {
        let yaml = format!("name: a\nplacement: {{a: [one]}}\nhost_network: {{one: 81}}\nsteps:\n  - {step}\n");
        Scenario::parse("s.yaml", &yaml).unwrap_err().to_string()
    };
    let message = with("replace: {pods: {one: two}}");
    assert!(
        message.contains("'one' has no address of its own to leave"),
        "{message}"
    );
    let message = with("restart: {pods: [one], how: vanish}");
    assert!(
        message.contains("restart: 'one' has the network of its node and cannot vanish"),
        "{message}"
    );
}

#[test]
fn only_steps_with_a_time_can_last_longer() {
    let with = |step: &str| {
        let yaml = format!("name: a\nplacement: {{a: 1}}\nsteps:\n  - open: {step}\n");
        let mut scenario = Scenario::parse("s.yaml", &yaml).unwrap();
        let any = scenario.last(Span::minutes(2));
        let Step::Open(open) = &scenario.steps[0] else {
            panic!("not an open");
        };
        (any, open.number(), open.held())
    };
    assert_eq!(with("{flows: 100}"), (false, 100, 100));
    assert_eq!(with("{for: 5s, rate: 10, lifetime: 1s}"), (true, 1200, 11));
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
