//! Tests of the analysis: tables with numbers worked out by hand, properties of any input, calibration on samples.

mod attribution;
mod calibration;
mod draws;
mod properties;
mod tables;
mod views;
mod worked;

use super::{AffinityInput, Analysis, EndpointInput, NodeInput, ServiceInput, WindowInput, analyse};
use crate::report::Window;

/// A Service from one slice of (new, established) per node. Nodes are n1, n2, ..., pods n1-1, n1-2, ...
fn service(nodes: &[&[(u64, u64)]]) -> ServiceInput {
    let name = |node: usize| format!("n{}", node + 1);
    let pod = |node: usize, i: usize, flows: &(u64, u64)| EndpointInput {
        pod: format!("{}-{}", name(node), i + 1),
        node,
        new: flows.0,
        established: flows.1,
        ..EndpointInput::default()
    };
    ServiceInput {
        service: "gateway/telemetry".to_owned(),
        window: Window {
            from_ms: 0,
            to_ms: 300_000,
        },
        asked_from_ms: 0,
        affinity: AffinityInput::None,
        endpoints_changed_ms: None,
        former: Vec::new(),
        windows: Vec::new(),
        clients: None,
        nodes: (0..nodes.len())
            .map(|node| NodeInput {
                name: name(node),
                reporting: true,
                zone: String::new(),
            })
            .collect(),
        endpoints: nodes
            .iter()
            .enumerate()
            .flat_map(|(node, pods)| pods.iter().enumerate().map(move |(i, flows)| pod(node, i, flows)))
            .collect(),
    }
}

/// The same with new flows only.
fn new_flows(nodes: &[&[u64]]) -> ServiceInput {
    let both: Vec<Vec<(u64, u64)>> = nodes
        .iter()
        .map(|pods| pods.iter().map(|new| (*new, 0)).collect())
        .collect();
    service(&both.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// New flows over another window.
fn window(seconds: u64, new: &[u64]) -> WindowInput {
    WindowInput {
        seconds,
        window: Window {
            from_ms: 300_000_u64.saturating_sub(seconds * 1000),
            to_ms: 300_000,
        },
        new: new.to_vec(),
    }
}

fn analysis(input: &ServiceInput) -> Analysis {
    analyse(input).unwrap()
}
