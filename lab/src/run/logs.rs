//! The folder for the logs of a run. A run enters; a folder that is known to be used while the run lives leaves. Folders
//! that were kept, or that a killed run has left, go with [`remove_unused`].

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

const PREFIX: &str = "flowskew-lab-";
/// Locked while the run lives; the kernel drops the lock with the process.
const LOCK: &str = ".lock";

/// The folder of a run that lives.
#[derive(Debug)]
pub struct Logs {
    folder: TempDir,
    _lock: File,
}

impl Logs {
    /// A new folder, which goes when this is dropped.
    ///
    /// # Errors
    /// The folder for temporary files cannot be written.
    pub fn make() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir()
            .context("cannot make a folder for logs")?;
        let lock = File::create(folder.path().join(LOCK)).context("cannot write in the folder for logs")?;
        lock.try_lock().context("cannot lock the folder for logs")?;
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves the folder on the machine, if there is anything in it.
    pub fn keep(self) -> Option<PathBuf> {
        let used = fs::read_dir(self.path()).is_ok_and(|entries| entries.count() > 1);
        used.then(|| self.folder.keep())
    }
}

/// Removes the folders of runs that are over. Returns how many.
///
/// # Errors
/// A folder cannot be removed.
pub fn remove_unused() -> Result<usize> {
    remove_unused_in(&std::env::temp_dir())
}

fn remove_unused_in(parent: &Path) -> Result<usize> {
    let entries = fs::read_dir(parent).with_context(|| format!("cannot read {}", parent.display()))?;
    let mut removed = 0;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let ours = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if ours && is_own_folder(&path) && is_unused(&path) {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Anybody can put anything into the folder for temporary files.
fn is_own_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
}

fn is_unused(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_runs_that_are_over_go() {
        let parent = TempDir::new().unwrap();
        let folder = |name: &str, lock: bool| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            lock.then(|| File::create(path.join(LOCK)).unwrap())
        };
        let live = folder("flowskew-lab-live", true).unwrap();
        live.try_lock().unwrap();
        folder("flowskew-lab-dead", true);
        folder("flowskew-lab-of-others", false);
        folder("other", true);
        let elsewhere = TempDir::new().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), parent.path().join("flowskew-lab-link")).unwrap();
        File::create(elsewhere.path().join(LOCK)).unwrap();
        assert_eq!(remove_unused_in(parent.path()).unwrap(), 1);
        let left: std::collections::BTreeSet<_> = fs::read_dir(parent.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let expected = [
            "flowskew-lab-link",
            "flowskew-lab-live",
            "flowskew-lab-of-others",
            "other",
        ];
        assert_eq!(left, expected.map(str::to_owned).into());
        assert!(elsewhere.path().join(LOCK).exists());
    }
}
