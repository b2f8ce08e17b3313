//! Figures for tests: a Service as a list of pods, with the node and the flows of each.

use super::{
    AskedWindow, DoorTally, EndpointFigures, Figures, NodeFigures, NodeSnapshot, PortFigures, STANDARD_WINDOWS, Tally,
};
use crate::cluster::ObjectName;
use crate::flow::{ByClass, Counts, Protocol, SourceClass};
use crate::ledger::DoorCounts;
use crate::node::Origin;
use crate::report::Window;

const EXTERNAL: usize = SourceClass::External.index();
const WINDOW: Window = Window {
    from_ms: 1_000_000,
    to_ms: 1_300_000,
};

/// Of telemetry/gateway, port 8883, for so many equal windows, which pass for the first standard ones. A pod is (node, new,
/// established), ordered by node.
pub(crate) fn figures(windows: usize, pods: &[(&str, u64, u64)]) -> Figures {
    let mut nodes: Vec<&str> = pods.iter().map(|(node, _, _)| *node).collect();
    nodes.dedup();
    let endpoint = |(i, &(node, new, established)): (usize, &(&str, u64, u64))| {
        let mut opened = ByClass::default();
        opened[EXTERNAL] = new;
        let mut counts = ByClass::<Counts>::default();
        counts[EXTERNAL] = Counts {
            opened: new,
            established,
            ..Default::default()
        };
        EndpointFigures {
            pod: format!("gw-{i}"),
            node: nodes.iter().position(|found| *found == node).unwrap(),
            address: format!("10.0.0.{i}"),
            port: 18883,
            tally: Tally {
                opened: vec![opened; windows],
                closed: vec![0; windows],
                open_ms: vec![0; windows],
                counts,
                unknown: DoorTally {
                    opened: vec![new; windows],
                    counts: DoorCounts {
                        opened: new,
                        established,
                        closed: 0,
                    },
                },
                of_pod: vec![new; windows],
                unattributed: vec![0; windows],
                ..Default::default()
            },
            load_rates: vec![None; windows],
            ..Default::default()
        }
    };
    let port = PortFigures {
        service: ObjectName {
            namespace: "telemetry".to_owned(),
            name: "gateway".to_owned(),
        },
        port: 8883,
        port_name: "mqtts".to_owned(),
        protocol: Protocol::Tcp,
        external_traffic_policy: "Local".to_owned(),
        session_affinity: "None".to_owned(),
        affinity_timeout_seconds: None,
        windows: vec![WINDOW; windows],
        endpoints: pods.iter().enumerate().map(endpoint).collect(),
        nodes: nodes.iter().map(|node| self::node(node)).collect(),
        gone: vec![],
        of_no_pod: vec![0; windows],
        unserved: vec![],
        shared_with: vec![],
        endpoints_changed_ms: None,
    };
    Figures {
        windows: STANDARD_WINDOWS[..windows]
            .iter()
            .map(|(length, _)| AskedWindow {
                span: WINDOW,
                at_ms: WINDOW.from_ms,
                seconds: Some(length.as_secs()),
            })
            .collect(),
        client_key: None,
        ports: vec![port],
    }
}

/// A node that reports.
pub(crate) fn node(name: &str) -> NodeFigures {
    NodeFigures {
        name: name.to_owned(),
        reporting: true,
        counting_since_ms: Some(1),
        ..Default::default()
    }
}

/// An agent that reports.
pub(crate) fn agent(node: &str) -> NodeSnapshot {
    NodeSnapshot {
        node: node.to_owned(),
        known: true,
        connected: true,
        reporting: true,
        agent_version: "0.1.0".to_owned(),
        kernel_release: "6.1.0".to_owned(),
        epoch: Some(7),
        sequence: Some(3),
        last_report_ms: Some(1_299_000),
        clock_offset_ms: Some(-4),
        losses: Default::default(),
        origin: Origin::Adopted,
        abi_version: 2,
        counting_since_ms: Some(1_000),
        door_coverage: Default::default(),
        degradations: vec![],
        reports_rejected: 0,
    }
}

/// Eleven pods on seven nodes as 3, 3, 1, 1, 1, 1, 1, and a balancer that gives each node the same.
pub(crate) fn crowded(windows: usize) -> Figures {
    let pods: Vec<(&str, u64, u64)> = ["a", "a", "a", "b", "b", "b"]
        .into_iter()
        .map(|node| (node, 1000, 900))
        .chain(["c", "d", "e", "f", "g"].map(|node| (node, 3000, 2700)))
        .collect();
    figures(windows, &pods)
}
