//! A command line enters; text on standard output, and an exit code, leave.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use flowskew_aggregator::cli::{self, Args};

fn main() -> ExitCode {
    match cli::run(&Args::parse()) {
        // A reader that has seen enough, like head, is no error.
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => fail(&error),
            _ => ExitCode::SUCCESS,
        },
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
