//! Folders of an ordinary filesystem stand for cgroups here: they have names and ids as well.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use super::*;

const UIDS: [&str; 3] = [
    "0e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a45",
    "1e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a45",
    "2e5b1f6a-93c2-4d7e-8a10-6f2d9c3b7a45",
];

/// Long enough after a walk for the next.
const LATER: Duration = Duration::from_secs(30);

/// A tree of cgroups, and a place for those that have been removed: their ids are not given to others as long as they are there.
struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("gone")).expect("made");
        fs::create_dir(folder.path().join("root")).expect("made");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("root").join(name)
    }

    fn make(&self, name: &str) -> u64 {
        fs::create_dir_all(self.path(name)).expect("made");
        id(&self.path(name))
    }

    fn make_pod(&self, index: usize) -> u64 {
        self.make(&format!("kubepods/pod{}/container", UIDS[index]))
    }

    fn remove_pod(&self, index: usize) {
        let name = format!("pod{}", UIDS[index]);
        let gone = self.folder.path().join("gone").join(&name);
        fs::rename(self.path("kubepods").join(&name), gone).expect("moved");
    }

    fn directory(&self, cgroups: usize, gone: usize) -> PodDirectory {
        PodDirectory::bounded(self.path(""), Bounds { cgroups, gone })
    }
}

fn id(path: &Path) -> u64 {
    fs::metadata(path).expect("there").ino()
}

fn uid(directory: &PodDirectory, id: u64) -> Option<&str> {
    directory.pod(id).map(|pod| pod.uid.as_str())
}

fn why(directory: &PodDirectory) -> String {
    let degradation = directory.degradation().expect("degraded");
    assert_eq!(degradation.code, "pod-identity");
    degradation.sentence
}

#[test]
fn a_pod_is_known_by_all_its_cgroups_and_after_it_is_gone() {
    let tree = Tree::new();
    let (container, service) = (tree.make_pod(0), tree.make("system.slice/x.service"));
    let pod = id(&tree.path(&format!("kubepods/pod{}", UIDS[0])));
    let mut directory = tree.directory(100, 100);
    assert_eq!(directory.degradation(), None, "nobody has asked");
    directory.resolve([container]);
    assert_eq!(uid(&directory, container), Some(UIDS[0]));
    assert_eq!(uid(&directory, pod), Some(UIDS[0]));
    assert_eq!(uid(&directory, service), None);
    assert_eq!(directory.degradation(), None);

    tree.remove_pod(0);
    let later = Instant::now() + LATER;
    let restarted = tree.make_pod(1);
    directory.resolve_at([service, restarted], later);
    assert_eq!(uid(&directory, restarted), Some(UIDS[1]));
    assert_eq!(uid(&directory, container), Some(UIDS[0]), "remembered");
}

#[test]
fn a_container_that_starts_again_is_of_the_same_pod() {
    let tree = Tree::new();
    let before = tree.make_pod(0);
    let mut directory = tree.directory(100, 100);
    directory.resolve([before]);
    let after = tree.make(&format!("kubepods/pod{}/again", UIDS[0]));
    directory.resolve_at([after], Instant::now() + LATER);
    let (before, after) = (
        directory.pod(before).expect("known"),
        directory.pod(after).expect("known"),
    );
    assert!(Arc::ptr_eq(before, after), "kept once");
}

#[test]
fn what_was_not_found_is_not_looked_for_at_each_call() {
    let tree = Tree::new();
    let early = tree.make_pod(0);
    tree.remove_pod(0);
    let mut directory = tree.directory(100, 100);
    let now = Instant::now();
    directory.resolve_at([early, 0], now);
    assert_eq!(directory.missing.len(), 1, "no cgroup has id 0");
    let gone = tree.folder.path().join("gone").join(format!("pod{}", UIDS[0]));
    fs::rename(gone, tree.path(&format!("kubepods/pod{}", UIDS[0]))).expect("moved");
    directory.resolve_at([early], now + MISSING_FOR / 2);
    assert_eq!(uid(&directory, early), None);
    directory.resolve_at([early], now + MISSING_FOR);
    assert_eq!(uid(&directory, early), Some(UIDS[0]));
}

#[test]
fn an_id_that_comes_too_soon_after_a_walk_is_looked_for_later() {
    let tree = Tree::new();
    let mut directory = tree.directory(100, 100);
    directory.resolve([tree.make_pod(0)]);
    let rest = Instant::now() + Duration::from_secs(10);
    directory.next_walk = Some(rest);
    let soon = tree.make_pod(1);
    directory.resolve_at([soon], rest - Duration::from_secs(1));
    assert_eq!((uid(&directory, soon), directory.due()), (None, Some(rest)));
    directory.resolve_at([], rest);
    assert_eq!((uid(&directory, soon), directory.due()), (Some(UIDS[1]), None));
}

#[test]
fn too_many_cgroups_are_told_and_pods_come_before_what_is_in_them() {
    let tree = Tree::new();
    let container = tree.make_pod(0);
    for index in 0..50 {
        tree.make(&format!("kubepods/pod{}/container/inner-{index}", UIDS[0]));
    }
    let mut directory = tree.directory(10, 100);
    directory.resolve([container]);
    assert_eq!(uid(&directory, container), Some(UIDS[0]));
    assert!(directory.known.len() <= 10);
    assert!(why(&directory).contains("more than 10 cgroups"), "{}", why(&directory));
}

#[test]
fn of_pods_that_are_gone_the_longest_unused_is_forgotten_first() {
    let tree = Tree::new();
    let ids: Vec<_> = (0..3).map(|index| tree.make_pod(index)).collect();
    // A pod and its container are two cgroups.
    let mut directory = tree.directory(100, 2);
    directory.resolve(ids.clone());
    (0..2).for_each(|index| tree.remove_pod(index));
    directory.resolve_at([ids[0]], Instant::now());
    let pod = id(&tree.folder.path().join("gone").join(format!("pod{}", UIDS[0])));
    directory.resolve_at([pod], Instant::now());
    directory.resolve_at([tree.make("new")], Instant::now() + LATER);
    assert_eq!(uid(&directory, ids[0]), Some(UIDS[0]), "asked for since");
    assert_eq!(uid(&directory, ids[1]), None, "forgotten");
    assert_eq!(uid(&directory, ids[2]), Some(UIDS[2]), "still there");
}

#[test]
fn a_tree_without_pods_and_a_tree_that_is_not_there() {
    let tree = Tree::new();
    let service = tree.make("system.slice/x.service");
    let mut directory = tree.directory(100, 100);
    directory.resolve([service]);
    assert!(why(&directory).contains("no kubelet keeps pods below"));
    assert!(why(&directory).contains("/sys/fs/cgroup"));
    directory.resolve_at([tree.make("kubepods")], Instant::now() + LATER);
    assert_eq!(directory.degradation(), None, "there are none now");

    let mut directory = PodDirectory::bounded(tree.path("later"), Bounds { cgroups: 9, gone: 9 });
    let now = Instant::now();
    directory.resolve_at([1], now);
    assert!(why(&directory).contains("cannot read"), "{}", why(&directory));
    let id = tree.make(&format!("later/kubepods/pod{}", UIDS[0]));
    directory.resolve_at([id], now + LATER);
    assert_eq!(uid(&directory, id), Some(UIDS[0]));
    assert_eq!(directory.degradation(), None);
}
