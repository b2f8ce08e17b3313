//! What a run leaves on the machine, and how it goes away: in, the id of a run; out, its names, folders and lock.
//!
//! Everything a run makes carries its id: network namespaces `fsk<id>-...`, control groups `flowskew-lab/<id>/...` and
//! the folder `/run/flowskew-lab/<id>`. A run holds the lock in its folder while it lives; the kernel drops the lock
//! when the process dies, however it dies. So what has no lock is stale, and the id alone is enough to remove it.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    process,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::namespace::{NAMESPACES, run};

const RUNS: &str = "/run/flowskew-lab";
const CGROUPS: &str = "flowskew-lab";
const PREFIX: &str = "fsk";
/// Control group of the clients; those of pods have a prefix, so that no pod name can be the same.
pub const CLIENTS: &str = "clients";

/// What [`clean_stale`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Ids of runs that were stale, and are removed.
    pub removed: Vec<String>,
    /// Ids of runs that are alive, and were left alone.
    pub in_use: Vec<String>,
}

/// A live run.
#[derive(Debug)]
pub struct Run {
    id: String,
    cgroup: PathBuf,
    _lock: File,
}

impl Run {
    /// Takes an id that nobody uses, and its lock.
    ///
    /// # Errors
    /// `/run` cannot be written, or no cgroup v2 is mounted.
    pub fn register() -> Result<Self> {
        let _registry = registry()?;
        let cgroups = cgroups()?;
        let taken = runs()?;
        let id = (0..)
            .map(|number| format!("{:x}x{number}", process::id()))
            .find(|id| !taken.contains(id))
            .context("no free run id")?;
        let folder = Path::new(RUNS).join(&id);
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let lock = File::create(folder.join("lock")).context("cannot make the lock of the run")?;
        lock.lock().context("cannot take the lock of the run")?;
        Ok(Self {
            cgroup: cgroups.join(&id),
            id,
            _lock: lock,
        })
    }

    /// The id, unique on this machine while the run lives.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Name of the network namespace with this role.
    #[must_use]
    pub fn namespace(&self, role: &str) -> String {
        format!("{PREFIX}{}-{role}", self.id)
    }

    /// Makes the control group with this name, if there is none.
    ///
    /// # Errors
    /// The cgroup v2 file system is read-only or full.
    pub fn cgroup(&self, name: &str) -> Result<PathBuf> {
        let path = self.cgroup.join(name);
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot make control group {}: is cgroup v2 writable?", path.display()))?;
        Ok(path)
    }

    /// A lock of its own for `iptables-restore`, so that it waits for nobody else on the machine.
    #[must_use]
    pub fn xtables_lock(&self, node: &str) -> PathBuf {
        Path::new(RUNS).join(&self.id).join(format!("xtables-{node}"))
    }
}

/// Removes everything that belongs to runs whose process is gone.
///
/// # Errors
/// Something could not be removed; the rest is removed all the same.
pub fn clean_stale() -> Result<CleanReport> {
    let _registry = registry()?;
    let mut report = CleanReport::default();
    let mut failed = vec![];
    for id in runs()? {
        let lock = File::open(Path::new(RUNS).join(&id).join("lock"));
        if lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock))) {
            report.in_use.push(id);
        } else {
            failed.extend(teardown(&id).err());
            report.removed.push(id);
        }
    }
    failed.into_iter().next().map_or(Ok(report), Err)
}

/// Ends the processes of a run and removes its namespaces, control groups and folder. Does nothing where nothing is.
///
/// # Errors
/// The first thing that could not be removed; the rest is removed all the same.
pub fn teardown(id: &str) -> Result<()> {
    let steps = [
        kill_processes(id),
        delete_namespaces(id),
        remove_cgroups(id),
        remove_folder(id),
    ];
    steps
        .into_iter()
        .collect::<Result<()>>()
        .with_context(|| format!("run {id} is not fully removed"))
}

/// Held while runs come and go, so that nobody removes a run that is just being made.
fn registry() -> Result<File> {
    fs::create_dir_all(RUNS).with_context(|| format!("cannot make {RUNS}: run as root"))?;
    let file = File::create(Path::new(RUNS).join("lock")).with_context(|| format!("cannot write in {RUNS}"))?;
    file.lock().with_context(|| format!("cannot lock {RUNS}"))?;
    Ok(file)
}

/// Where the control groups of all runs are.
///
/// # Errors
/// No cgroup v2 file system is mounted.
pub fn cgroups() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let root = cgroup2_mount(&mounts).context(
        "pods need control groups and no cgroup v2 is mounted: mount -t cgroup2 none /sys/fs/cgroup/unified",
    )?;
    Ok(Path::new(root).join(CGROUPS))
}

/// Mount point of the first cgroup v2 file system in `/proc/self/mountinfo`: field 5, with the type after ` - `.
fn cgroup2_mount(mounts: &str) -> Option<&str> {
    let (mount, _) = mounts
        .lines()
        .filter_map(|line| line.split_once(" - "))
        .find(|(_, fs)| fs.starts_with("cgroup2 "))?;
    mount.split(' ').nth(4)
}

/// Ids of all runs of which anything is left.
fn runs() -> Result<Vec<String>> {
    let mut ids: Vec<String> = entries(Path::new(NAMESPACES))?
        .iter()
        .filter_map(|name| run_of(name))
        .collect();
    for folder in [Path::new(RUNS), &cgroups()?] {
        ids.extend(entries(folder)?.into_iter().filter(|id| is_id(id)));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The run a network namespace belongs to, if it is one of ours.
fn run_of(namespace: &str) -> Option<String> {
    let (id, _) = namespace.strip_prefix(PREFIX)?.split_once('-')?;
    is_id(id).then(|| id.to_owned())
}

/// Ids are the process id in hexadecimal, an `x`, and a number.
fn is_id(text: &str) -> bool {
    let all = |part: &str, digit: fn(&char) -> bool| !part.is_empty() && part.chars().all(|c| digit(&c));
    text.split_once('x')
        .is_some_and(|(pid, number)| all(pid, char::is_ascii_hexdigit) && all(number, char::is_ascii_digit))
}

/// Names in a folder; none when there is no such folder.
fn entries(folder: &Path) -> Result<Vec<String>> {
    let list = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        list => list.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    Ok(list
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect())
}

/// The control groups of a run, clients first: when they close, the pods' ends close with them.
fn cgroups_of(id: &str) -> Result<Vec<PathBuf>> {
    let folder = cgroups()?.join(id);
    let mut names = entries(&folder)?;
    names.sort_by_key(|name| name != CLIENTS);
    Ok(names
        .iter()
        .map(|name| folder.join(name))
        .filter(|path| path.is_dir())
        .collect())
}

fn kill_processes(id: &str) -> Result<()> {
    for cgroup in cgroups_of(id)? {
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

fn delete_namespaces(id: &str) -> Result<()> {
    let names = entries(Path::new(NAMESPACES))?;
    let script: String = names
        .iter()
        .filter(|name| run_of(name).as_deref() == Some(id))
        .map(|name| format!("netns delete {name}\n"))
        .collect();
    if script.is_empty() {
        return Ok(());
    }
    run("ip", &["-force", "-batch", "-"], &script).map(drop)
}

fn remove_cgroups(id: &str) -> Result<()> {
    let own = cgroups()?.join(id);
    let mut folders = cgroups_of(id)?;
    folders.push(own.clone());
    for folder in folders {
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
    // The folder of all runs goes with the last one.
    let _ = own.parent().map(fs::remove_dir);
    Ok(())
}

fn remove_folder(id: &str) -> Result<()> {
    let folder = Path::new(RUNS).join(id);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(anyhow!("cannot remove {}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_namespaces_are_ours() {
        let check = |name: &str, run: Option<&str>| assert_eq!(run_of(name).as_deref(), run, "{name}");
        check("fsk1a2bx0-node-a", Some("1a2bx0"));
        check("fsk7x12-clients", Some("7x12"));
        for other in [
            "fsk",
            "fsk-a",
            "fsk1a2b-x",
            "fskx0-a",
            "fsk1ax-a",
            "fsk1gx0-a",
            "fsk1ax0",
            "other",
            "cni-1ax0-a",
        ] {
            check(other, None);
        }
    }

    #[test]
    fn the_cgroup_mount_is_found_beside_others() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 30 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 none rw\n";
        assert_eq!(cgroup2_mount(mounts), Some("/sys/fs/cgroup/unified"));
        assert_eq!(cgroup2_mount("30 23 0:26 / /sys rw - sysfs sysfs rw\n"), None);
    }
}
