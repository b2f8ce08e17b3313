//! Pins: what keeps counting while no agent runs. In, a folder on a BPF filesystem; out, the paths of maps and links in it,
//! and a lock that keeps a second agent out.
//!
//! The folder holds one folder a version of the shared records, `abi-N`. In there is a file for each map, and a link and
//! a program for each hook, named after the object that they are of, so that an agent knows whether the programs that run are
//! its own.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
};

use flowskew_agent_ebpf::ABI_VERSION;
use rustix::fs::{FlockOperation, flock, statfs};
use thiserror::Error;

/// Type of a BPF filesystem, from `linux/magic.h`.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Why nothing can be pinned.
#[derive(Debug, Error)]
pub enum PinError {
    /// Another agent counts here.
    #[error("another agent runs on this node: it holds {0}; stop it first, or give this one another --pin-dir")]
    Held(PathBuf),
    /// Not a BPF filesystem.
    #[error("{0} is not on a BPF filesystem: mount -t bpf bpf /sys/fs/bpf")]
    NotBpf(PathBuf),
    /// The filesystem refused.
    #[error("{path}: {error}")]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

impl PinError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |error| Self::Io { path, error }
    }
}

/// The pins of this version of the shared records, held by this process.
#[derive(Debug)]
pub struct Pins {
    root: PathBuf,
    own: PathBuf,
    _lock: File,
}

impl Pins {
    /// Makes the folder if it is not there, and takes it for this process.
    pub fn hold(root: &Path) -> Result<Self, PinError> {
        let lock = lock(root)?;
        let own = root.join(format!("abi-{ABI_VERSION}"));
        fs::create_dir_all(&own).map_err(PinError::io(&own))?;
        Ok(Self {
            root: root.to_owned(),
            own,
            _lock: lock,
        })
    }

    /// Where a map is pinned.
    pub fn map(&self, name: &str) -> PathBuf {
        self.own.join(name)
    }

    /// Where the link of an object's program is pinned.
    pub fn link(&self, program: &str, object: u64) -> PathBuf {
        self.own.join(format!("link-{program}-{object:016x}"))
    }

    /// Where an object's program is pinned.
    pub fn program(&self, program: &str, object: u64) -> PathBuf {
        self.own.join(format!("program-{program}-{object:016x}"))
    }

    /// The other objects that have programs pinned here.
    pub fn other_objects(&self, object: u64) -> Result<Vec<u64>, PinError> {
        let mut others: Vec<u64> = entries(&self.own)?
            .iter()
            .filter_map(|path| object_of(path))
            .filter(|&other| other != object)
            .collect();
        others.sort_unstable();
        others.dedup();
        Ok(others)
    }

    /// Ends the programs of other objects than this, but for that of one hook: the newest alone counts.
    pub fn remove_other_objects(&self, object: u64, but: &str) -> Result<(), PinError> {
        let keep = self.other_links(but, object)?;
        let mut pins = entries(&self.own)?;
        // The second program of a hook before the first: alone it would take what the new first one handles.
        pins.sort_by(|a, b| b.cmp(a));
        for path in pins {
            if object_of(&path).is_some_and(|other| other != object) && !keep.contains(&path) {
                fs::remove_file(&path).map_err(PinError::io(&path))?;
            }
        }
        Ok(())
    }

    /// The links of one hook's program that are of other objects.
    pub fn other_links(&self, program: &str, object: u64) -> Result<Vec<PathBuf>, PinError> {
        let mut links = entries(&self.own)?;
        links.retain(|path| object_of(path).is_some_and(|other| *path == self.link(program, other) && other != object));
        Ok(links)
    }

    /// Ends what other versions of the shared records have left running. True if there was any.
    pub fn remove_other_versions(&self) -> Result<bool, PinError> {
        let mut any = false;
        for path in entries(&self.root)? {
            if path != self.own {
                any |= remove(&path)? > 0;
            }
        }
        Ok(any)
    }

    /// Ends what is pinned for this version: counting starts anew.
    pub fn clear(&self) -> Result<(), PinError> {
        for path in entries(&self.own)? {
            remove(&path)?;
        }
        Ok(())
    }
}

/// Removes everything that agents have pinned under a folder, and the folder. The number of pins removed.
pub fn clean_up(root: &Path) -> Result<usize, PinError> {
    if !root.exists() {
        return Ok(0);
    }
    let _lock = lock(root)?;
    remove(root)
}

/// The object that a pin of a link or a program belongs to.
fn object_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    if !name.starts_with("link-") && !name.starts_with("program-") {
        return None;
    }
    u64::from_str_radix(name.rsplit('-').next()?, 16).ok()
}

/// Names an object: two that differ have other names.
pub fn name_of(object: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish()
}

fn lock(root: &Path) -> Result<File, PinError> {
    let parent = root.parent().unwrap_or(root);
    let filesystem = statfs(parent).map_err(|error| PinError::io(parent)(error.into()))?;
    // The field's type differs between architectures; the value fits 32 bits.
    if u64::try_from(filesystem.f_type).unwrap_or(0) & 0xffff_ffff != BPF_FS_MAGIC {
        return Err(PinError::NotBpf(root.to_owned()));
    }
    fs::create_dir_all(root).map_err(PinError::io(root))?;
    let folder = File::open(root).map_err(PinError::io(root))?;
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(folder),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(PinError::Held(root.to_owned())),
        Err(error) => Err(PinError::io(root)(error.into())),
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, PinError> {
    let listed = fs::read_dir(folder).map_err(PinError::io(folder))?;
    listed
        .map(|entry| entry.map(|entry| entry.path()).map_err(PinError::io(folder)))
        .collect()
}

/// Removes a pin, or a folder with all in it. The number of pins removed.
fn remove(path: &Path) -> Result<usize, PinError> {
    if path.is_dir() {
        let mut removed = 0;
        for entry in entries(path)? {
            removed += remove(&entry)?;
        }
        fs::remove_dir(path).map_err(PinError::io(path))?;
        Ok(removed)
    } else {
        fs::remove_file(path).map_err(PinError::io(path))?;
        Ok(1)
    }
}
