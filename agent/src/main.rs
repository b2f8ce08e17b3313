//! `flowskew-agent`: parses the command line and runs one command.
#![forbid(unsafe_code)]

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use flowskew_agent::{
    check, cleanup,
    config::{Cli, Command},
    run, top,
};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = match EnvFilter::try_new(&cli.log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!(
                "error: --log '{}' is not a filter such as info or flowskew_agent=debug: {error}",
                cli.log
            );
            return ExitCode::FAILURE;
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let result = match cli.command {
        Command::Run(config) => run::run(config).await,
        Command::Top(config) => top::run(config).await,
        Command::Check => check::run(),
        Command::Cleanup(config) => cleanup::run(&config),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
