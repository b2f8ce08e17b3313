//! The tree of cgroups: in, a folder; out, each cgroup in it once, the upper ones first.

use std::{
    collections::VecDeque,
    fs, io,
    os::unix::fs::{DirEntryExt, MetadataExt},
    path::{Path, PathBuf},
};

/// A folder of a cgroup filesystem has one link from above, one from itself and one from each folder in it.
const LINKS_OF_A_LEAF: u64 = 2;

/// Visits `root` and the cgroups below it, at most `limit` of them. `visit` gets what it returned for the cgroup above (for
/// `root`: `above`), the path, and the id. False if there are more cgroups than `limit`.
///
/// The upper cgroups come first, so that a limit cuts off the inner parts of containers before it cuts off a pod.
///
/// # Errors
/// `root` cannot be read. What ends during the walk is passed over.
pub(super) fn walk<T>(
    root: &Path,
    limit: usize,
    above: &T,
    mut visit: impl FnMut(&T, &Path, u64) -> T,
) -> io::Result<bool> {
    let found = visit(above, root, fs::metadata(root)?.ino());
    let mut seen = 1;
    let mut queue = VecDeque::from([(root.to_owned(), found)]);
    while let Some((folder, found)) = queue.pop_front() {
        let read = match children(&folder) {
            Ok(read) => read,
            Err(error) if folder == root => return Err(error),
            Err(_) => continue,
        };
        for (path, id) in read {
            if seen == limit {
                return Ok(false);
            }
            seen += 1;
            let found = visit(&found, &path, id);
            queue.push_back((path, found));
        }
    }
    Ok(true)
}

/// Paths and ids of the cgroups in a cgroup. Files are not looked at: the listing has all that is asked for.
fn children(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    if fs::metadata(folder)?.nlink() == LINKS_OF_A_LEAF {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push((entry.path(), entry.ino()));
        }
    }
    Ok(found)
}
