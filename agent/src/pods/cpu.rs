//! CPU of a pod: in, the files of its cgroups; out, the time it used, and the time its limits kept it waiting.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{Cgroups, is_gone};

/// What a cgroup's files say. Microseconds; `None`: not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cpu {
    /// With all cgroups below.
    pub(super) usage_us: Option<u64>,
    /// By this cgroup's own limit only.
    pub(super) throttled_us: Option<u64>,
}

impl Cpu {
    /// Reads a cgroup. On machines that have both versions, what version two does not have is taken from version one.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub(super) fn read(cgroups: &Cgroups, cgroup: &Path) -> io::Result<Self> {
        let stat = read(Some(cgroup.join("cpu.stat")))?;
        let mut cpu = Self {
            usage_us: field(&stat, "usage_usec"),
            throttled_us: field(&stat, "throttled_usec"),
        };
        if cpu.usage_us.is_none() {
            let usage = read(cgroups.v1_cpuacct(cgroup).map(|path| path.join("cpuacct.usage")))?;
            cpu.usage_us = usage.trim().parse().ok().map(nanoseconds);
        }
        if cpu.throttled_us.is_none() {
            let stat = read(cgroups.v1_cpu(cgroup).map(|path| path.join("cpu.stat")))?;
            cpu.throttled_us = field(&stat, "throttled_time").map(nanoseconds);
        }
        Ok(cpu)
    }
}

/// Throttled time of a pod: of its own limit and those of its containers, each of which the kernel counts for itself.
#[derive(Debug, Default)]
pub(super) struct Throttled {
    /// By cgroup id, at the last reading.
    running: HashMap<u64, u64>,
    /// Of containers that have ended.
    ended_us: u64,
}

impl Throttled {
    /// The pod's total, from that of each of its cgroups now. `None` if it never had a limit that is counted.
    pub(super) fn add_up(&mut self, now: HashMap<u64, u64>) -> Option<u64> {
        let ended = self.running.iter().filter(|(id, _)| !now.contains_key(id));
        self.ended_us += ended.map(|(_, us)| us).sum::<u64>();
        self.running = now;
        let known = self.ended_us > 0 || !self.running.is_empty();
        known.then(|| self.ended_us + self.running.values().sum::<u64>())
    }
}

/// The text of a file; empty if there is none.
fn read(path: Option<PathBuf>) -> io::Result<String> {
    match path.map(fs::read_to_string) {
        Some(Err(error)) if !is_gone(&error) => Err(error),
        Some(Ok(text)) => Ok(text),
        Some(Err(_)) | None => Ok(String::new()),
    }
}

/// The value of a line `name value`.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|&(found, _)| found == name)?.1.trim().parse().ok()
}

fn nanoseconds(nanoseconds: u64) -> u64 {
    nanoseconds / 1_000
}
