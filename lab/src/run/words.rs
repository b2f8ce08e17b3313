//! What a step does, in words for people. A step enters; a sentence leaves.

use std::time::Duration;

use crate::net::StopPod;
use crate::scenario::open::{Open, Order};
use crate::scenario::spec::{Close, Step};

/// A sentence about the step that begins.
pub fn step(step: &Step) -> String {
    match step {
        Step::Open(step) => open(step),
        Step::Close(step) => close(step),
        Step::Wait(time) => format!("Waiting {}.", time.value),
        Step::Settle => "Waiting until all is counted.".to_owned(),
        Step::Mark(mark) => format!("Marking this moment as '{}'.", mark.value),
        Step::Move(step) => {
            let moves: Vec<String> = step
                .pods
                .value
                .0
                .iter()
                .map(|(pod, node)| format!("{pod} to {}", node.value))
                .collect();
            format!("Moving {}{}.", moves.join(", "), how(step.how))
        }
        Step::Restart(step) => {
            let pods: Vec<&str> = step.pods.iter().map(|pod| pod.value.as_str()).collect();
            format!("Restarting {}{}.", pods.join(", "), how(step.how))
        }
        Step::Replace(step) => {
            let pairs = step.pods.value.0.iter();
            let pairs: Vec<String> = pairs.map(|(old, new)| format!("{old} by {}", new.value)).collect();
            format!("Replacing {}, at the same address{}.", pairs.join(", "), how(step.how))
        }
        Step::KeepSending(nodes) if nodes.value.is_empty() => "The balancer sends to nodes with pods only.".to_owned(),
        Step::KeepSending(nodes) => {
            let nodes: Vec<&str> = nodes.value.iter().map(|node| node.value.as_str()).collect();
            format!(
                "From now on the balancer sends to {} even without pods.",
                nodes.join(", ")
            )
        }
        Step::Scale(step) => format!("Giving {} {}.", step.node.value, plural(step.pods.get(), "pod", "pods")),
        Step::KillAgent(node) => format!("Killing the agent of {} (SIGKILL).", node.value),
        Step::StartAgent(node) => format!("Starting the agent of {} again.", node.value),
        Step::Check(check) if check.name.is_empty() => "Checking what must hold.".to_owned(),
        Step::Check(check) => format!("Checking: {}.", check.name),
        Step::Say(text) => text.clone(),
        Step::Show(_) => "The report:".to_owned(),
    }
}

/// The result of an `open`.
pub fn opened(opened: u64, failed: u64, took: Duration) -> String {
    let failed = if failed == 0 {
        String::new()
    } else {
        format!(", {failed} FAILED")
    };
    let seconds = took.as_secs_f64();
    // Of a moment there is no rate to speak of.
    let rate = if seconds < 5.0 {
        String::new()
    } else {
        format!(", {:.0} a second", opened as f64 / seconds)
    };
    format!("{opened} open{failed}, in {seconds:.1} s{rate}")
}

fn open(open: &Open) -> String {
    let flows = match &open.time {
        Some(time) => format!("flows for {}", time.value),
        None => plural(open.number(), "flow", "flows"),
    };
    let clients = plural(open.clients.get(), "client address", "client addresses");
    let mut sentence = format!("Opening {flows} from {clients}");
    if let Some(to) = &open.to {
        sentence += &format!(" to {}", to.value);
    }
    sentence += match open.order {
        Order::InTurn => "",
        Order::Shuffled => ", each round in another order",
        Order::Random => " by chance",
    };
    if let Some(nat) = open.nat {
        let shared = plural(nat.addresses.get(), "shared address", "shared addresses");
        sentence += &format!(", {} % of them from {shared}", nat.percent.get());
    }
    if let Some(rate) = open.rate {
        sentence += &format!(", {} a second", rate.get());
    }
    if let Some(lifetime) = open.lifetime {
        sentence += &format!("; each ends after {lifetime}");
    }
    if let Some(kills) = &open.kill_agents {
        let times = plural(kills.value.times.get(), "time", "times");
        sentence += &format!("; agents are killed {times} meanwhile");
    }
    sentence + "."
}

fn close(close: &Close) -> String {
    let mut sentence = match close.flows {
        Some(flows) => format!("Closing {}", plural(flows.get(), "flow", "flows")),
        None => "Closing all flows".to_owned(),
    };
    if let Some(group) = &close.group {
        sentence += &format!(" of '{}'", group.value);
    }
    if let Some(pod) = &close.pod {
        sentence += &format!(" to {}", pod.value);
    }
    sentence + "."
}

fn how(how: StopPod) -> &'static str {
    match how {
        StopPod::Terminate => "",
        StopPod::Kill => " with SIGKILL",
        StopPod::Vanish => "; the old ones vanish without a word",
    }
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
