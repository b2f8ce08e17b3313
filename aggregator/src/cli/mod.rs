//! What `kubectl flowskew` does: a command line enters; text for standard output leaves.

mod args;
mod client;
mod clients;
mod evidence;
mod number;
mod table;

#[cfg(test)]
mod tests;

pub use args::{Args, Command, Output, ReportArgs};
pub use client::CliError;
pub use table::render_table;

/// Runs one command, and returns what it prints.
///
/// # Errors
/// A message for the person at the terminal.
pub fn run(args: &Args) -> Result<String, CliError> {
    match &args.command {
        Command::Report(report) => {
            let found = client::report(report)?;
            Ok(match report.output {
                Output::Table => render_table(&found),
                Output::Json => {
                    let mut text = serde_json::to_string_pretty(&found).map_err(CliError::Json)?;
                    text.push('\n');
                    text
                }
            })
        }
    }
}
