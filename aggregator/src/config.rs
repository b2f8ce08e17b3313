//! Flags and environment of the aggregator: text enters, a typed configuration leaves.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::clients::MIN_ROTATION;

const EXAMPLES: &str = "\
Examples:
  In a cluster, with the pod's ServiceAccount:
      flowskew-aggregator
  On a workstation, against the cluster of a kubeconfig:
      flowskew-aggregator --kubeconfig ~/.kube/config --http-listen 127.0.0.1:9472
  Against a plain API server, with second-by-second figures:
      flowskew-aggregator --kube-api http://127.0.0.1:8001 --report-interval 1s --bucket 1s

Log level: FLOWSKEW_LOG, for example FLOWSKEW_LOG=debug (default info).";

/// Puts the nodes' flow counts together, measures skew and says why.
#[derive(Debug, Clone, Parser)]
#[command(name = "flowskew-aggregator", version, after_help = EXAMPLES)]
pub struct Config {
    /// Where agents connect (gRPC).
    #[arg(
        long,
        env = "FLOWSKEW_GRPC_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "[::]:9471"
    )]
    pub grpc_listen: SocketAddr,

    /// Where the API, /metrics, /healthz and /readyz are served.
    #[arg(
        long,
        env = "FLOWSKEW_HTTP_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "[::]:9472"
    )]
    pub http_listen: SocketAddr,

    /// API server to watch without credentials, for example `kubectl proxy`. Without it and without --kubeconfig: the
    /// default kubeconfig if there is one, else the pod's ServiceAccount.
    #[arg(long, env = "FLOWSKEW_KUBE_API", value_name = "URL", conflicts_with = "kubeconfig")]
    pub kube_api: Option<String>,

    /// Kubeconfig file whose current context is the cluster to watch.
    #[arg(long, env = "FLOWSKEW_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// How often agents are told to report: 100ms to 5m.
    #[arg(long, env = "FLOWSKEW_REPORT_INTERVAL", value_name = "DURATION", default_value = "10s",
          value_parser = report_interval)]
    pub report_interval: Duration,

    /// Width of the time buckets that windows are made of: whole seconds, 1s to 5m. An hour of them is kept.
    #[arg(long, env = "FLOWSKEW_BUCKET", value_name = "DURATION", default_value = "10s", value_parser = bucket)]
    pub bucket: Duration,

    /// Single flows of clients, opened or closed, that are kept: 10000 or more. It bounds their memory to 32 bytes for each. When
    /// more happens in an hour, fewer clients are told of.
    #[arg(long, env = "FLOWSKEW_CLIENT_EVENTS", value_name = "NUMBER", default_value = "1000000",
          value_parser = clap::value_parser!(u32).range(10_000..))]
    pub client_events: u32,

    /// How long clients are hashed under one key before another takes over: 3h or more.
    #[arg(long, env = "FLOWSKEW_CLIENT_KEY_ROTATION", value_name = "DURATION", default_value = "24h",
          value_parser = client_key_rotation)]
    pub client_key_rotation: Duration,
}

/// Parses "10s", "5m" or "1h30m".
///
/// # Errors
/// A sentence that names the text and shows the form.
pub fn duration(text: &str) -> Result<Duration, String> {
    text.trim()
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
        .ok_or_else(|| format!("\"{text}\" is not a duration: write for example 10s, 5m or 1h"))
}

fn report_interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(100) || interval > Duration::from_secs(300) {
        return Err("the report interval must be between 100ms and 5m".to_owned());
    }
    Ok(interval)
}

fn bucket(text: &str) -> Result<Duration, String> {
    let bucket = duration(text)?;
    if bucket.subsec_nanos() != 0 || bucket < Duration::from_secs(1) || bucket > Duration::from_secs(300) {
        return Err("a bucket must be whole seconds, between 1s and 5m".to_owned());
    }
    Ok(bucket)
}

fn client_key_rotation(text: &str) -> Result<Duration, String> {
    let rotation = duration(text)?;
    if rotation < MIN_ROTATION {
        return Err(
            "keys of clients must be used for 3h or more: for an hour each is in use beside the one before".to_owned(),
        );
    }
    Ok(rotation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(duration(text).ok(), expected.map(Duration::from_millis), "{text}");
        };
        check("10s", Some(10_000));
        check("5m", Some(300_000));
        check("250ms", Some(250));
        check("1h30m", Some(5_400_000));
        check("-5s", None);
        check("", None);
        check("5 parsecs", None);
    }

    #[test]
    fn flags_out_of_range_are_refused() {
        let parse = |args: &[&str]| Config::try_parse_from([&["flowskew-aggregator"], args].concat());
        assert!(parse(&[]).is_ok());
        assert!(parse(&["--bucket", "500ms"]).is_err());
        assert!(parse(&["--report-interval", "1h"]).is_err());
        assert!(parse(&["--client-key-rotation", "2h59m"]).is_err());
        assert!(parse(&["--client-key-rotation", "3h"]).is_ok());
        assert!(parse(&["--client-events", "9999"]).is_err());
        assert!(parse(&["--kube-api", "http://a", "--kubeconfig", "b"]).is_err());
    }
}
