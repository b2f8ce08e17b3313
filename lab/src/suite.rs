//! All bundled scenarios, in both modes of kube-proxy and once over IPv6, and a soak once. Prints one line a run and a last line with the
//! sum; what failed, with the rows that do not hold.

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::bundled::{Bundled, SOAK, SUITE};
use crate::net::{Family, Network, ProxyMode};
use crate::run::console::Console;
use crate::run::interrupt::{Interrupt, Interrupted};
use crate::run::{self, Options, Outcome, Programs, mode_name};

const VARIANTS: [(Family, ProxyMode); 3] = [
    (Family::V4, ProxyMode::Iptables),
    (Family::V4, ProxyMode::Nftables),
    (Family::V6, ProxyMode::Nftables),
];

/// Runs all whose name contains `only`.
///
/// # Errors
/// One did not pass, none has such a name, or the suite was interrupted.
pub async fn run_all(programs: &Programs, only: &str, interrupt: &Interrupt) -> Result<()> {
    // Once, rather than a failure of each run.
    for (family, mode) in VARIANTS {
        Network::preflight(mode, family)?;
    }
    let started = Instant::now();
    let (mut passed, mut failed) = (0, 0);
    let runs = SUITE.iter().map(|bundled| (bundled, &VARIANTS[..]));
    let runs: Vec<(&Bundled, _)> = runs.chain([(&SOAK, &VARIANTS[..1])]).collect();
    for (bundled, variants) in runs.iter().filter(|(bundled, _)| bundled.file.contains(only)) {
        let scenario = bundled.scenario()?;
        for &(family, mode) in *variants {
            let options = Options {
                programs: programs.clone(),
                mode,
                family: Some(family),
                keep: false,
            };
            let outcome = run::run(&scenario, &options, &mut Console::quiet(), interrupt).await;
            if interrupt.is_stopped() {
                return Err(Interrupted.into());
            }
            say(&line(&outcome));
            if outcome.pass {
                passed += 1;
            } else {
                failed += 1;
            }
        }
    }
    say(&format!(
        "{passed} passed, {failed} failed, in {:.0} s",
        started.elapsed().as_secs_f64()
    ));
    if failed > 0 {
        bail!("{failed} of {} runs did not pass", passed + failed);
    }
    if passed == 0 {
        let names: Vec<&str> = runs.iter().map(|(bundled, _)| bundled.file).collect();
        bail!("no scenario has '{only}' in its name; there are {}", names.join(", "));
    }
    Ok(())
}

/// Whoever has closed the pipe still gets the exit code.
fn say(line: &str) {
    let _gone = writeln!(std::io::stdout(), "{line}");
}

fn line(outcome: &Outcome) -> String {
    let Outcome {
        scenario,
        family,
        mode,
        duration_seconds,
        flows_opened,
        ..
    } = outcome;
    let word = if outcome.pass { "ok  " } else { "FAIL" };
    let mode = mode_name(*mode);
    let mut line = format!("{word} {scenario:<20} {family} {mode:<8} {duration_seconds:5.1} s {flows_opened:6} flows");
    let rows = outcome
        .checks
        .iter()
        .flat_map(|check| check.rows.iter().map(move |row| (check, row)));
    for (check, row) in rows.filter(|(_, row)| !row.pass) {
        line += &format!(
            "\n       {}: {}: expected {}, got {}",
            check.name, row.what, row.expected, row.got
        );
    }
    for error in outcome.error.iter().chain(&outcome.left_behind) {
        line += &format!("\n       {}", error.replace('\n', "\n       "));
    }
    if let Some(logs) = &outcome.logs {
        line += &format!("\n       logs: {}", logs.display());
    }
    line
}
