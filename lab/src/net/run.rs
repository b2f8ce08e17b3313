//! What a run leaves on the machine, and how it goes away: in, the id of a run; out, its names, folders and lock.
//!
//! Everything a run makes carries its id: network namespaces `fsk<id>-...`, control groups `flowskew-lab-<id>/...` and
//! the folder `/run/flowskew-lab/<id>`, with what is mounted there. A run holds the lock in its folder while it lives; the
//! kernel drops the lock when the process dies, however it dies. So what has no lock is stale, and the id alone is enough
//! to remove it.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context as _, Result, anyhow};

use super::{
    cgroups::{self, cgroup_of, kill_processes, remove_tree},
    namespace::{NAMESPACES, run},
};

const RUNS: &str = "/run/flowskew-lab";
const PREFIX: &str = "fsk";

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
            cgroup: cgroup_of(&id)?,
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

    /// A folder for whatever belongs to the run. It is removed with the run, and what is mounted in it unmounted.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        Path::new(RUNS).join(&self.id)
    }

    /// The run's own control group; there once one below it was made.
    #[must_use]
    pub fn cgroup_path(&self) -> &Path {
        &self.cgroup
    }

    /// Makes the control group with this path below the run's own, if there is none.
    ///
    /// # Errors
    /// The cgroup v2 file system is read-only or full.
    pub fn cgroup(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = self.cgroup.join(path);
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
        cgroup_of(id).and_then(|folder| remove_tree(&folder)),
        unmount(id),
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

/// What is mounted where.
///
/// # Errors
/// There is no `/proc`.
pub fn mountinfo() -> Result<String> {
    fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")
}

/// What is mounted below a folder.
fn mounted_below<'a>(mounts: &'a str, folder: &'a Path) -> impl Iterator<Item = &'a str> {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(move |point| Path::new(point).starts_with(folder))
}

/// Ids of all runs of which anything is left.
fn runs() -> Result<Vec<String>> {
    let mut ids: Vec<String> = entries(Path::new(NAMESPACES))?
        .iter()
        .filter_map(|name| run_of(name))
        .collect();
    let others = cgroups::ids()?.into_iter().chain(entries(Path::new(RUNS))?);
    ids.extend(others.filter(|id| is_id(id)));
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
///
/// # Errors
/// The folder cannot be read.
pub fn entries(folder: &Path) -> Result<Vec<String>> {
    let list = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        list => list.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    Ok(list
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect())
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

/// Unmounts all in the folder of a run. Pins that are there go with it, and the programs that they keep.
fn unmount(id: &str) -> Result<()> {
    let (mounts, folder) = (mountinfo()?, Path::new(RUNS).join(id));
    let points: Vec<&str> = mounted_below(&mounts, &folder).collect();
    points
        .into_iter()
        .try_for_each(|point| run("umount", &[point], "").map(drop))
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
    fn only_what_is_mounted_below_a_folder_is_found() {
        let mounts = "30 23 0:26 / /run/flowskew-lab/1ax0/bpf rw - bpf bpf rw\n\
                      31 23 0:27 / /run/flowskew-lab/1ax01/bpf rw - bpf bpf rw\n\
                      32 23 0:28 / / rw shared:9 - ext4 /dev/vda rw\n";
        let found: Vec<_> = mounted_below(mounts, Path::new("/run/flowskew-lab/1ax0")).collect();
        assert_eq!(found, ["/run/flowskew-lab/1ax0/bpf"]);
    }
}
