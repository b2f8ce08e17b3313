//! Flags and environment of `kubectl flowskew`.

use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::config::duration;

const EXAMPLES: &str = "\
Examples:
  kubectl -n flowskew port-forward service/flowskew-aggregator 9472:9472 &
  kubectl flowskew report telemetry/gateway
  kubectl flowskew report gateway -n telemetry --port 8883 --window 15m
  kubectl flowskew report gateway -n telemetry --since 2026-01-31T08:00:00Z -o json

Exit codes: 0 the report was printed, 1 it could not be made, 2 wrong usage.";

/// How evenly do the connections of a Service land on its pods, and why?
#[derive(Debug, Clone, Parser)]
#[command(name = "kubectl-flowskew", bin_name = "kubectl flowskew", version, after_help = EXAMPLES)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Shares of new and established flows of each pod, next to the expected and the ideal share, and what skews them
    #[command(after_help = EXAMPLES)]
    Report(ReportArgs),
}

/// Which report, and how to show it.
#[derive(Debug, Clone, clap::Args)]
pub struct ReportArgs {
    /// The Service
    #[arg(value_name = "[NAMESPACE/]SERVICE")]
    pub service: String,

    /// Namespace of the Service, unless it is written before the name
    #[arg(short, long, default_value = "default")]
    pub namespace: String,

    /// Port of the Service, by number, name, or number and protocol (53/UDP); needed when it has several
    #[arg(long)]
    pub port: Option<String>,

    /// Count new flows of the last so many seconds, minutes or hours [default: 5m]
    #[arg(long, value_parser = duration, conflicts_with = "since")]
    pub window: Option<Duration>,

    /// Count new flows since this moment: RFC 3339, or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<u64>,

    /// A table for people, or JSON for programs
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,

    /// URL of the aggregator
    #[arg(
        long,
        env = "FLOWSKEW_AGGREGATOR_HTTP",
        value_name = "URL",
        default_value = "http://127.0.0.1:9472"
    )]
    pub aggregator: String,
}

/// How to show a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

fn moment(text: &str) -> Result<u64, String> {
    text.parse::<u64>()
        .ok()
        .or_else(|| u64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()).ok())
        .ok_or_else(|| "write for example 2026-01-31T08:00:00Z, or milliseconds since 1970".to_owned())
}
