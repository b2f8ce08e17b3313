//! The command line and environment, read once into typed values.

use std::{net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Parser, Subcommand};

/// Counts a node's flows per local endpoint in the kernel, after kube-proxy has chosen the pod, and reports them.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:
  flowskew-agent check                    what this kernel offers, and what is missing
  flowskew-agent top                      flows per local address and port, live; needs no cluster
  flowskew-agent cleanup                  end what agents have left counting in the kernel
  flowskew-agent run --node worker-1 --aggregator http://flowskew-aggregator:9471"
)]
pub struct Cli {
    /// What to log: error, warn, info, debug, or per module as in flowskew_agent=debug.
    #[arg(long, env = "FLOWSKEW_LOG", default_value = "info", global = true)]
    pub log: String,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Count the flows of this node and report them to the aggregator until SIGTERM.
    Run(RunConfig),
    /// Show flows per local address and port, live; needs no cluster.
    Top(TopConfig),
    /// Say what this kernel and this process offer, and what is missing. Exits 1 if the agent cannot run.
    Check,
    /// End the counting that agents have left running in the kernel, and remove all that they have pinned.
    Cleanup(PinConfig),
}

/// Where things are pinned that outlive an agent.
#[derive(Debug, Clone, Args)]
pub struct PinConfig {
    /// Folder on a BPF filesystem. What is pinned there goes on counting while no agent runs; `flowskew-agent cleanup`
    /// ends it.
    #[arg(long, env = "FLOWSKEW_PIN_DIR", default_value = "/sys/fs/bpf/flowskew")]
    pub pin_dir: PathBuf,
}

/// Sizes of the kernel maps.
#[derive(Debug, Clone, Args)]
pub struct MapSizes {
    /// Open flows that can be tracked at once. Memory is taken as they open, about 130 bytes each.
    #[arg(long, env = "FLOWSKEW_MAX_FLOWS", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_flows: u32,
    /// Local addresses and ports that can be counted, about 350 bytes each, taken as they appear.
    #[arg(long, env = "FLOWSKEW_MAX_LEDGER", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub max_ledger: u32,
    /// Bytes of the ring buffer for single flows; rounded up to a power of two of at least a page.
    #[arg(long, env = "FLOWSKEW_RING_BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub ring_bytes: u32,
    /// UDP flows that can be tracked at once, about 180 bytes each, taken as they appear.
    #[arg(long, env = "FLOWSKEW_MAX_UDP_FLOWS", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_udp_flows: u32,
    /// Log each state change of each socket, for debugging the kernel programs. Costs much.
    #[arg(long, env = "FLOWSKEW_KERNEL_LOG")]
    pub kernel_log: bool,
}

/// Configuration of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunConfig {
    /// Name of this node, as Kubernetes knows it.
    #[arg(long, env = "FLOWSKEW_NODE")]
    pub node: String,
    /// URL of the aggregator's gRPC port, for example http://flowskew-aggregator:9471. Without it the agent only serves
    /// its own metrics, of all local ports, and leaves every source unclassified.
    #[arg(long, env = "FLOWSKEW_AGGREGATOR")]
    pub aggregator: Option<String>,
    /// Time between two reports, for example 10s or 500ms. The aggregator can set another.
    #[arg(long, env = "FLOWSKEW_REPORT_INTERVAL", default_value = "10s", value_parser = parse_interval)]
    pub report_interval: Duration,
    /// Reports kept while the aggregator is away. When there are more, old ones are dropped: their counts arrive with the
    /// next, but later.
    #[arg(long, env = "FLOWSKEW_REPORT_QUEUE", default_value_t = 360, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub report_queue: u32,
    /// How long to wait at start for the aggregator's assignment before flows that are already open are taken up. Without
    /// an assignment the source class of a flow is not known.
    #[arg(long, env = "FLOWSKEW_ASSIGNMENT_WAIT", default_value = "10s", value_parser = parse_duration)]
    pub assignment_wait: Duration,
    /// How long to wait at SIGTERM until the aggregator has taken the last report.
    #[arg(long, env = "FLOWSKEW_DRAIN_TIMEOUT", default_value = "5s", value_parser = parse_duration)]
    pub drain_timeout: Duration,
    /// How long a UDP flow must be silent to count as closed.
    #[arg(long, env = "FLOWSKEW_UDP_IDLE", default_value = "120s", value_parser = parse_interval)]
    pub udp_idle: Duration,
    /// The node's network namespace, where kube-proxy's rules are: its connection tracking tells which front door a flow
    /// came by, and what its rules drop reached no pod.
    #[arg(long, env = "FLOWSKEW_NODE_NETNS", default_value = "/proc/self/ns/net")]
    pub node_netns: PathBuf,
    /// Root of the cgroup v2 hierarchy, where the pods of sockets are looked up; found by itself when mounted.
    #[arg(long, env = "FLOWSKEW_CGROUP_ROOT")]
    pub cgroup_root: Option<PathBuf>,
    /// Do not look up which front door flows came by.
    #[arg(long, env = "FLOWSKEW_NO_FRONT_DOORS")]
    pub no_front_doors: bool,
    /// Most front doors to look up a second. When more flows open, a random part of them is looked up.
    #[arg(long, env = "FLOWSKEW_DOOR_LOOKUPS", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub door_lookups: u32,
    /// Most single flows, opened or closed, that one report tells with their clients' hashes. When more happen, the busiest
    /// endpoint tells half as many clients, and so on: all about a part of the clients, by hash, and estimates of the rest. Memory:
    /// about 200 bytes each while a report is made, and 36 bytes each in ten such reports that wait for the aggregator; besides,
    /// up to 15 KiB for each endpoint that tells a part.
    #[arg(long, env = "FLOWSKEW_CLIENT_EVENTS", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub client_events: u32,
    /// Tell the addresses of the clients that open most flows. Without it no address of a client leaves the node, only a keyed
    /// hash.
    #[arg(long, env = "FLOWSKEW_CLIENT_ADDRESSES")]
    pub client_addresses: bool,
    /// Where to serve /metrics, /healthz and /readyz.
    #[arg(long, env = "FLOWSKEW_HTTP_LISTEN", default_value = "[::]:9470")]
    pub http_listen: SocketAddr,
    /// Where to pin.
    #[command(flatten)]
    pub pins: PinConfig,
    /// Pin nothing, and end what is pinned: counting ends with the agent.
    #[arg(long, env = "FLOWSKEW_NO_PIN")]
    pub no_pin: bool,
    /// Sizes of the kernel maps. Others than those of the agent before make counting begin anew.
    #[command(flatten)]
    pub maps: MapSizes,
}

/// Configuration of `top`.
#[derive(Debug, Clone, Args)]
pub struct TopConfig {
    /// Time between two tables.
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,
    /// Stop after this many tables.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Rows to show at most.
    #[arg(long, default_value_t = 30)]
    pub rows: usize,
    /// Show only this local port.
    #[arg(long)]
    pub port: Option<u16>,
    /// Sizes of the kernel maps.
    #[command(flatten)]
    pub maps: MapSizes,
}

/// Reads a duration such as 500ms, 10s, 5m, 1h.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number =
        u64::from_str(number).map_err(|_| format!("'{text}' is not a duration; write 500ms, 10s, 5m or 1h"))?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => {
            return Err(format!(
                "'{text}' has no unit that is known; write 500ms, 10s, 5m or 1h"
            ));
        }
    };
    milliseconds
        .map(Duration::from_millis)
        .ok_or_else(|| format!("'{text}' is too long"))
}

/// Reads a duration between 100 ms and one hour.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if (Duration::from_millis(100)..=Duration::from_secs(3_600)).contains(&interval) {
        Ok(interval)
    } else {
        Err(format!("'{text}' is not between 100ms and 1h"))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations() {
        for (text, expected) in [
            ("500ms", Some(500)),
            ("10s", Some(10_000)),
            ("5m", Some(300_000)),
            ("1h", Some(3_600_000)),
            ("10", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("18446744073709551615h", None),
            ("", None),
        ] {
            assert_eq!(parse_duration(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
        assert!(parse_interval("1ms").is_err());
        assert!(parse_interval("2h").is_err());
    }
}
