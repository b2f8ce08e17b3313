//! `cargo xtask bench kernel`: what counting costs. In: the agent's program, an empty eBPF program, and peer tools where they
//! are installed. Out: tables, a JSON file, and a page of the documentation when asked.
//!
//! All runs in namespaces of its own, which end with this process: see [`isolation`]. What is compared is measured side by
//! side in rounds, and compared within each round.
#![forbid(unsafe_code)]

mod contender;
mod cost;
mod footprint;
mod isolation;
mod load;
mod machine;
mod maps;
mod page;
mod plan;
mod programs;
mod progress;
mod rate;
mod results;
mod statistics;
mod table;

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;

use contender::Setting;
use plan::Plan;
use progress::Progress;
use results::Results;

/// What counting flows in the kernel costs, beside other tools
#[derive(Debug, Parser)]
struct Arguments {
    /// eBPF object with one empty program
    #[arg(long, value_name = "FILE")]
    empty_object: PathBuf,
    /// Each figure once, in short: shows that all can be measured, not what they are
    #[arg(long)]
    quick: bool,
    /// Rounds of each comparison
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Where to write the figures
    #[arg(long, value_name = "FILE")]
    json: PathBuf,
    /// Where to write the page for the documentation
    #[arg(long, value_name = "FILE")]
    write_docs: Option<PathBuf>,
    /// Already in the namespaces
    #[arg(long, hide = true)]
    isolated: bool,
    /// What `cargo bench` adds
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(passed) if passed => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True if all goals are met, or none was set.
fn run(arguments: &Arguments) -> Result<bool> {
    if !arguments.isolated {
        return Err(isolation::enter("--isolated"));
    }
    isolation::prepare()?;
    let plan = Plan::new(arguments.quick, arguments.rounds);
    let setting = Setting::new(&arguments.empty_object)?;
    let progress = Progress::new(plan.steps());
    let results = Results {
        machine: machine::describe(arguments.quick)?,
        plan: plan.clone(),
        cost: cost::measure(&setting, &plan, &progress)?,
        rate: rate::measure(&setting, &plan, &progress)?,
        agent: footprint::measure(&setting, &plan, &progress)?,
    };
    progress.done();

    let goals = results.goals();
    println!("{}", table::all(&results, &goals));
    write(
        &arguments.json,
        &serde_json::to_string_pretty(&results.to_json(&goals)?)?,
    )?;
    println!("figures: {}", arguments.json.display());
    if let Some(path) = &arguments.write_docs {
        write(path, &page::render(&results, &goals))?;
        println!("page: {}", path.display());
    }
    if plan.quick {
        println!("--quick: too short to hold the figures against the goals");
        return Ok(true);
    }
    Ok(goals.iter().all(|goal| goal.met != Some(false)))
}

fn write(path: &PathBuf, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(path, text.trim_end().to_owned() + "\n").with_context(|| format!("cannot write {}", path.display()))
}
