//! Control groups of runs: in, the id of a run; out, where its groups are, and their end with the processes in them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::run::{entries, mountinfo};

const CGROUP_PREFIX: &str = "flowskew-lab-";
/// Control group of the clients, beside those of the nodes; no node can have such a name.
pub const CLIENTS: &str = "_clients";

/// Root of the cgroup v2 file system.
///
/// # Errors
/// None is mounted.
pub fn cgroup_root() -> Result<PathBuf> {
    let mounts = mountinfo()?;
    let root = cgroup2_mount(&mounts).context(
        "pods need control groups and no cgroup v2 is mounted: mount -t cgroup2 none /sys/fs/cgroup/unified",
    )?;
    Ok(root.into())
}

/// Ids in the names of control groups.
///
/// # Errors
/// No cgroup v2 file system is mounted, or it cannot be read.
pub fn ids() -> Result<Vec<String>> {
    let groups = entries(&cgroup_root()?)?;
    let groups = groups.iter().filter_map(|name| name.strip_prefix(CGROUP_PREFIX));
    Ok(groups.map(str::to_owned).collect())
}

/// Mount point of the first cgroup v2 file system in `/proc/self/mountinfo`: field 5, with the type after ` - `.
fn cgroup2_mount(mounts: &str) -> Option<&str> {
    let (mount, _) = mounts
        .lines()
        .filter_map(|line| line.split_once(" - "))
        .find(|(_, fs)| fs.starts_with("cgroup2 "))?;
    mount.split(' ').nth(4)
}

/// The control group of a run.
///
/// # Errors
/// No cgroup v2 file system is mounted.
pub fn cgroup_of(id: &str) -> Result<PathBuf> {
    Ok(cgroup_root()?.join(format!("{CGROUP_PREFIX}{id}")))
}

/// A control group and all below it, the deepest first.
fn tree(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(vec![]);
    }
    let mut folders = vec![];
    for name in entries(folder)? {
        folders.extend(tree(&folder.join(name))?);
    }
    folders.push(folder.to_owned());
    Ok(folders)
}

/// Ends all processes of a run, clients first: when they close, the pods' ends close with them.
///
/// # Errors
/// A process does not end.
pub fn kill_processes(id: &str) -> Result<()> {
    let own = cgroup_of(id)?;
    let mut cgroups = tree(&own)?;
    cgroups.sort_by_key(|cgroup| !cgroup.ends_with(CLIENTS));
    for cgroup in cgroups {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let processes = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
            if processes.is_empty() {
                break;
            }
            for pid in processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                // It may end by itself in this moment.
                let _ = kill_process(pid, Signal::KILL);
            }
            ensure!(
                Instant::now() < deadline,
                "processes of {} do not end: {processes:?}",
                cgroup.display()
            );
            sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Removes a control group and all below it, once their processes are gone.
///
/// # Errors
/// A process in it does not end.
pub fn remove_tree(folder: &Path) -> Result<()> {
    for folder in tree(folder)? {
        // A process that was killed leaves its group a moment after it left the list.
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Err(error) = fs::remove_dir(&folder) {
            match error.kind() {
                io::ErrorKind::NotFound => break,
                io::ErrorKind::ResourceBusy if Instant::now() < deadline => sleep(Duration::from_millis(5)),
                _ => return Err(anyhow!("cannot remove {}: {error}", folder.display())),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_mount_is_found_beside_others() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 30 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 none rw\n";
        assert_eq!(cgroup2_mount(mounts), Some("/sys/fs/cgroup/unified"));
        assert_eq!(cgroup2_mount("30 23 0:26 / /sys rw - sysfs sysfs rw\n"), None);
    }
}
