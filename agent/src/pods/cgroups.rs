//! Where cgroups are mounted: in, the mounts that this process sees; out, the folder where pods are looked up, and the
//! counterparts of a cgroup in the older hierarchies of machines that have both versions.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::statfs;
use thiserror::Error;

use super::identity_degraded;
use crate::degradation::Degradation;

/// Type of a cgroup v2 filesystem, from `linux/magic.h`.
const CGROUP2_MAGIC: u64 = 0x6367_7270;
const MOUNTS: &str = "/proc/self/mountinfo";

/// Why pods cannot be looked up.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// No mounts to look through.
    #[error("cannot read {MOUNTS}: {0}; mount -t proc proc /proc")]
    Mounts(io::Error),
    /// Nothing to look in.
    #[error(
        "no cgroup v2 is mounted: mount the node's /sys/fs/cgroup into the agent's container, or mount -t cgroup2 none \
         /sys/fs/cgroup, or name the folder with --cgroup-root"
    )]
    NotMounted,
    /// The folder that was named is something else.
    #[error("{0} is not on a cgroup v2 filesystem: name a folder that is with --cgroup-root")]
    NotCgroup(PathBuf),
    /// The folder that was named cannot be read.
    #[error("cannot read the cgroup root {path}: {error}; name a folder of a cgroup v2 filesystem with --cgroup-root")]
    Root {
        /// The folder.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

impl CgroupError {
    /// What it means for the figures.
    pub fn degradation(&self) -> Degradation {
        identity_degraded(self)
    }
}

/// The cgroup filesystems of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    root: PathBuf,
    /// Where the filesystem that holds `root` is mounted.
    mount: PathBuf,
    cpu: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
}

impl Cgroups {
    /// Finds the cgroup filesystems. Pods are looked up below `root`; by default in the whole of cgroup v2.
    pub fn find(root: Option<&Path>) -> Result<Self, CgroupError> {
        let mountinfo = fs::read_to_string(MOUNTS).map_err(CgroupError::Mounts)?;
        let found = Self::among(&mountinfo, root)?;
        match statfs(&found.root) {
            // The field's type differs between architectures; the value fits 32 bits.
            Ok(is) if u64::try_from(is.f_type).unwrap_or(0) & 0xffff_ffff == CGROUP2_MAGIC => Ok(found),
            Ok(_) => Err(CgroupError::NotCgroup(found.root)),
            Err(error) => Err(CgroupError::Root {
                path: found.root,
                error: error.into(),
            }),
        }
    }

    pub(super) fn among(mountinfo: &str, root: Option<&Path>) -> Result<Self, CgroupError> {
        let mounts: Vec<_> = mountinfo.lines().filter_map(Mount::parse).collect();
        let whole = outermost(mounts.iter().filter(|mount| mount.kind == "cgroup2"));
        let root = match (root, &whole) {
            (Some(root), _) => root.to_owned(),
            (None, Some(whole)) => whole.clone(),
            (None, None) => return Err(CgroupError::NotMounted),
        };
        let holding = mounts.iter().filter(|mount| mount.kind == "cgroup2");
        let holding = holding.filter(|mount| root.starts_with(mount.point));
        let mount = holding.max_by_key(|mount| mount.point.len());
        let controller = |name| {
            let mounts = mounts.iter().filter(|mount| mount.kind == "cgroup");
            outermost(mounts.filter(|mount| mount.options.split(',').any(|option| option == name)))
        };
        Ok(Self {
            mount: mount.map_or_else(|| root.clone(), |mount| mount.point.into()),
            root,
            cpu: controller("cpu"),
            cpuacct: controller("cpuacct"),
        })
    }

    /// The folder that holds all pods.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether that folder is the root of the whole hierarchy.
    pub fn is_whole(&self) -> bool {
        self.root == self.mount
    }

    /// The same cgroup in the older hierarchy of the `cpu` controller, if the machine has that.
    pub(super) fn v1_cpu(&self, cgroup: &Path) -> Option<PathBuf> {
        self.counterpart(self.cpu.as_deref(), cgroup)
    }

    /// The same cgroup in the older hierarchy of the `cpuacct` controller, if the machine has that.
    pub(super) fn v1_cpuacct(&self, cgroup: &Path) -> Option<PathBuf> {
        self.counterpart(self.cpuacct.as_deref(), cgroup)
    }

    fn counterpart(&self, mount: Option<&Path>, cgroup: &Path) -> Option<PathBuf> {
        Some(mount?.join(cgroup.strip_prefix(&self.mount).ok()?))
    }
}

/// What a line of `mountinfo` says of a mount.
struct Mount<'a> {
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut filesystem = filesystem.split(' ');
        Some(Self {
            point: mount.split(' ').nth(4)?,
            kind: filesystem.next()?,
            options: filesystem.nth(1)?,
        })
    }
}

/// Of several mounts of one hierarchy, the one that shows most of it. A container often has a mount of its own cgroup only,
/// beside one of the whole node's: a cgroup is made after the one it is in, so the smallest id is the outermost.
fn outermost<'a>(mounts: impl Iterator<Item = &'a Mount<'a>>) -> Option<PathBuf> {
    let ids = mounts.filter_map(|mount| Some((fs::metadata(mount.point).ok()?.ino(), mount)));
    ids.min_by_key(|&(id, _)| id).map(|(_, mount)| mount.point.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_both_versions() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).expect("made");
            path
        };
        let (unified, cpu, memory) = (at("unified"), at("cpu,cpuacct"), at("memory"));
        let mountinfo = format!(
            "22 1 0:21 / /proc rw shared:12 - proc proc rw\n\
             30 29 0:26 / {} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n\
             31 29 0:28 / {} rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
             32 29 0:29 / {} rw,nosuid - cgroup cgroup rw,memory\n\
             a line that is none\n",
            unified.display(),
            cpu.display(),
            memory.display()
        );
        let found = Cgroups::among(&mountinfo, None).expect("found");
        assert_eq!(found.root(), unified);
        let pod = unified.join("kubepods/pod1");
        assert_eq!(found.v1_cpu(&pod), Some(cpu.join("kubepods/pod1")));
        assert_eq!(found.v1_cpuacct(&pod), Some(cpu.join("kubepods/pod1")));

        let named = at("unified/part");
        let found = Cgroups::among(&mountinfo, Some(&named)).expect("found");
        assert_eq!(found.root(), named);
        assert_eq!(
            found.v1_cpu(&named.join("pod1")),
            Some(cpu.join("part/pod1")),
            "counterparts are told from the mount, not from the folder named"
        );
    }

    #[test]
    fn a_machine_with_version_two_alone_has_no_counterparts() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = format!("30 29 0:26 / {} rw - cgroup2 none rw", folder.path().display());
        let found = Cgroups::among(&line, None).expect("found");
        assert_eq!(found.v1_cpu(&folder.path().join("kubepods")), None);
    }

    #[test]
    fn the_mount_that_shows_most_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths: Vec<_> = (0..2)
            .map(|index| folder.path().join(format!("mount-{index}")))
            .collect();
        let mut ids: Vec<_> = paths
            .iter()
            .map(|path| {
                fs::create_dir(path).expect("made");
                (fs::metadata(path).expect("there").ino(), path)
            })
            .collect();
        ids.sort();
        let line = |path: &Path| format!("30 29 0:26 / {} rw - cgroup2 none rw\n", path.display());
        for mountinfo in [line(&paths[0]) + &line(&paths[1]), line(&paths[1]) + &line(&paths[0])] {
            assert_eq!(Cgroups::among(&mountinfo, None).expect("found").root(), ids[0].1);
        }
    }

    #[test]
    fn what_is_missing_is_named_with_the_remedy() {
        let none = Cgroups::among("22 1 0:21 / /proc rw - proc proc rw\n", None).expect_err("no cgroups");
        let degradation = none.degradation();
        assert_eq!(degradation.code, "pod-identity");
        assert!(
            degradation.sentence.contains("mount -t cgroup2"),
            "{}",
            degradation.sentence
        );
        for wrong in ["/nowhere/at/all", "/proc"] {
            let error = Cgroups::find(Some(Path::new(wrong))).expect_err("no cgroups");
            assert!(error.to_string().contains(wrong), "{error}");
            assert!(error.to_string().contains("--cgroup-root"), "{error}");
        }
    }
}
