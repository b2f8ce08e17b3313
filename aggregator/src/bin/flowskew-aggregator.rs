//! Flags and signals enter; a running aggregator, and its exit code, leave.
#![forbid(unsafe_code)]

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser;
use flowskew_aggregator::app::App;
use flowskew_aggregator::config::Config;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// What the client library says of an error, the watches say with the remedy.
const DEFAULT_LOG: &str = "info,kube_client=off,kube_runtime=off";

#[tokio::main]
async fn main() -> ExitCode {
    let config = Config::parse();
    let filter = EnvFilter::try_from_env("FLOWSKEW_LOG").unwrap_or_else(|_unset| EnvFilter::new(DEFAULT_LOG));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match run(&config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flowskew-aggregator: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: &Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let app = App::bind(config).await?;
    app.run(async move {
        tokio::select! {
            _signal = terminate.recv() => {}
            _signal = interrupt.recv() => {}
        }
    })
    .await?;
    Ok(())
}
