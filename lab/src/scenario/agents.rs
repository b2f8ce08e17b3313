//! How a scenario runs its agents. YAML enters; what differs from an agent's own defaults leaves.

use serde::Deserialize;

use super::value::{Int, Span};

/// Options of the agents of all nodes. What is not given is as the agent has it by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Agents {
    /// The kernel goes on counting while no agent runs. Each agent pins in a folder of its own.
    pub pins: bool,
    /// Flows that can be tracked at once.
    pub max_flows: Option<Int<1, 10_000_000>>,
    /// Local addresses and ports that can be counted.
    pub max_ledger: Option<Int<1, 32_768>>,
    /// Bytes of the ring for single flows.
    pub ring_bytes: Option<Int<4_096, { 1 << 30 }>>,
    /// UDP flows that can be tracked at once.
    pub max_udp_flows: Option<Int<1, 10_000_000>>,
    /// A UDP flow that was silent for so long has ended.
    pub udp_idle: Option<Span>,
    /// Most front doors to look up a second.
    pub door_lookups: Option<Int<1, 10_000_000>>,
    /// Single flows that an agent tells in a report; past it, it tells those of a part of the clients.
    pub client_events: Option<Int<100, 100_000>>,
    /// Look up by which front door flows came; so it is by default.
    pub front_doors: Option<bool>,
}

impl Agents {
    /// Arguments for `flowskew-agent run`; where agents pin is for the runner to say.
    pub fn flags(&self) -> Vec<String> {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let pairs = [
            ("--max-flows", number(self.max_flows.map(Int::get))),
            ("--max-ledger", number(self.max_ledger.map(Int::get))),
            ("--ring-bytes", number(self.ring_bytes.map(Int::get))),
            ("--max-udp-flows", number(self.max_udp_flows.map(Int::get))),
            (
                "--udp-idle",
                self.udp_idle.map(|span| format!("{}ms", span.as_millis())),
            ),
            ("--door-lookups", number(self.door_lookups.map(Int::get))),
            ("--client-events", number(self.client_events.map(Int::get))),
        ];
        let pairs = pairs
            .into_iter()
            .filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
        let off = (self.front_doors == Some(false)).then(|| "--no-front-doors".to_owned());
        pairs.flatten().chain(off).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(yaml: &str) -> String {
        serde_saphyr::from_str::<Agents>(yaml).unwrap().flags().join(" ")
    }

    #[test]
    fn only_what_is_given_is_passed_on() {
        assert_eq!(flags("{}"), "");
        assert_eq!(flags("{pins: true, front_doors: true}"), "");
        assert_eq!(
            flags("{max_flows: 64, ring_bytes: 4096, udp_idle: 1m 1s, client_events: 900, front_doors: false}"),
            "--max-flows 64 --ring-bytes 4096 --udp-idle 61000ms --client-events 900 --no-front-doors"
        );
    }
}
