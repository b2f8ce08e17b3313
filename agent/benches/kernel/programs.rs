//! eBPF programs of a process: in, its process id; out, the run time of each by the kernel's own statistics.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::OwnedFd,
    time::Duration,
};

use anyhow::{Context, Result};
use aya::{
    programs::loaded_programs,
    sys::{Stats, enable_stats},
};
use serde::{Deserialize, Serialize};

/// What programs have cost since they were loaded, or in a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Runs {
    /// How often they ran.
    pub count: u64,
    /// How long, together.
    pub ns: u64,
}

impl Runs {
    /// What has come since an earlier state.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            ns: self.ns.saturating_sub(earlier.ns),
        }
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            ns: self.ns + other.ns,
        }
    }
}

/// Switches the statistics on until the result is dropped. They cost some 20 ns a run.
pub fn count_runs() -> Result<OwnedFd> {
    enable_stats(Stats::RunTime).context("the kernel keeps no statistics of eBPF programs (since Linux 5.8)")
}

/// Ids of the kind (`prog_id` or `map_id`) that the process's open files name. Empty when it has none, or has ended.
pub fn ids(pid: u32, kind: &str) -> BTreeSet<u32> {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
        return BTreeSet::new();
    };
    files
        .filter_map(|file| fs::read_to_string(file.ok()?.path()).ok())
        .filter_map(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
            line.trim_start_matches(':').trim().parse().ok()
        })
        .collect()
}

/// Name and runs of each of the programs, in the order in which they were loaded. The kernel keeps 15 bytes of a name; programs
/// that share them are numbered.
pub fn runs(ids: &BTreeSet<u32>) -> Result<Vec<(String, Runs)>> {
    let mut found = Vec::new();
    let mut namesakes: BTreeMap<String, usize> = BTreeMap::new();
    for info in loaded_programs() {
        // One that ends while we look is not ours.
        let Ok(info) = info else { continue };
        if ids.contains(&info.id()) {
            let runs = Runs {
                count: info.run_count(),
                ns: u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX),
            };
            let name = info.name_as_str().unwrap_or("?").to_owned();
            let number = namesakes.entry(name.clone()).or_default();
            *number += 1;
            found.push((
                if *number == 1 {
                    name
                } else {
                    format!("{name} ({number})")
                },
                runs,
            ));
        }
    }
    anyhow::ensure!(found.len() == ids.len(), "a program that is measured has gone");
    Ok(found)
}

/// Processor time of the threads of a process so far, user and system. Finer than the ticks that the kernel tells of a process.
pub fn process_cpu(pid: u32) -> Result<Duration> {
    let folder = format!("/proc/{pid}/task");
    let mut sum = Duration::ZERO;
    for thread in fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))? {
        // Threads that end while we look have done nothing of note.
        if let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) {
            sum += cpu_of(&text)?;
        }
    }
    Ok(sum)
}

/// Processor time of this thread so far.
pub fn thread_cpu() -> Result<Duration> {
    cpu_of(&fs::read_to_string("/proc/thread-self/schedstat").context("the kernel tells no processor time of threads")?)
}

/// The first field of a file schedstat, in nanoseconds.
fn cpu_of(schedstat: &str) -> Result<Duration> {
    let nanoseconds = schedstat.split(' ').next().unwrap_or_default();
    Ok(Duration::from_nanos(nanoseconds.trim().parse().context("schedstat")?))
}
