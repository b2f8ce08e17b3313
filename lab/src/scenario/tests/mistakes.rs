//! A table of mistakes in scenario files: what is damaged, and what the reader is told.

use super::{RIGHT, error};

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
            "unknown field `flow`, expected one of flows, for, rate",
        ),
        (
            "{flows: 100}",
            "{flows: 0}",
            "s.yaml:8:",
            "a whole number from 1 to 100000",
        ),
        (
            "{flows: 100}",
            "{rate: 5}",
            "s.yaml:8:",
            "either `flows` or `for` is needed",
        ),
        (
            "{flows: 100}",
            "{flows: 100, for: 5s}",
            "s.yaml:8:",
            "either `flows` or `for` is needed",
        ),
        (
            "{flows: 100}",
            "{for: 5s, rate: 100}",
            "s.yaml:8:",
            "open.for: needs `rate` and `lifetime`",
        ),
        (
            "{flows: 100}",
            "{for: 60s, rate: 5000, lifetime: 30s}",
            "s.yaml:8:",
            "150001 flows would be open at one time, more than 100000",
        ),
        (
            "{flows: 100}",
            "{flows: 100, kill_agents: {times: 2, min: 2s, max: 1s}}",
            "s.yaml:8:",
            "open.kill_agents: needs `for`",
        ),
        (
            "{flows: 100}",
            "{for: 5s, rate: 9, lifetime: 0s, kill_agents: {times: 2, min: 2s, max: 1s}}",
            "s.yaml:8:",
            "open.kill_agents: min must not be longer than max",
        ),
        (
            "{flows: 100}",
            "{flows: 100, to: api}",
            "s.yaml:8:",
            "there is no Service and no process 'api'; use one of web",
        ),
        (
            "{flows: 100}",
            "{flows: 100, datagram_every: 1s}",
            "s.yaml:8:",
            "needs a Service with `protocol: UDP`",
        ),
        (
            "steps:",
            "other_services: [{name: web, port: 81}]\nsteps:",
            "s.yaml:7:",
            "other_services: 'web' is there twice",
        ),
        (
            "steps:",
            "host_network: {web-3: 81}\nsteps:",
            "s.yaml:7:",
            "host_network: there is no pod 'web-3'",
        ),
        (
            "steps:",
            "host_network: {web-1: 81, web-2: 81}\nsteps:",
            "s.yaml:4:",
            "port 81 of node 'node-1' is taken twice",
        ),
        (
            "steps:",
            "processes: {lone: {node: node-1, port: 81}}\nsteps:",
            "s.yaml:7:",
            "processes: 'lone' is taken",
        ),
        (
            "steps:",
            "processes: {daemon: {node: node-9, port: 81}}\nsteps:",
            "s.yaml:7:",
            "processes.node: there is no node 'node-9'",
        ),
        (
            "steps:",
            "agents: {max_flows: 0}\nsteps:",
            "s.yaml:7:",
            "a whole number from 1 to 10000000",
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
            "- mark: later",
            "- replace: {pods: {lone: web-1}}",
            "s.yaml:9:",
            "replace.pods: 'web-1' is taken",
        ),
        (
            "- mark: later",
            "- replace: {pods: {alone: web-9}}",
            "s.yaml:9:",
            "replace.pods: there is no pod 'alone'",
        ),
        (
            "- mark: later",
            "- keep_sending: [node-7]",
            "s.yaml:9:",
            "keep_sending: there is no node 'node-7'",
        ),
        (
            "since: later",
            "service: api",
            "s.yaml:13:",
            "check.service: there is no Service 'api'; use one of web",
        ),
        (
            "since: later",
            "losses: {flows_full: exact}",
            "s.yaml:12:",
            "`flows_full: exact` needs `agents.max_flows`",
        ),
        (
            "since: later",
            "losses: some",
            "s.yaml:13:",
            "none, ignore, or a map from kind of loss to a bound",
        ),
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
