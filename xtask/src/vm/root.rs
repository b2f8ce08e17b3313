//! The root file system of a virtual machine. In: a kernel, this machine's programs, the tests. Out: a cpio archive that the
//! kernel unpacks into memory and runs.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::build::Programs;
use super::unpack::{Unpacked, remove};
use super::{init, modules};
use crate::shell;

/// Programs of this machine that the tests, or what sets up the machine, run.
const PROGRAMS: [&str; 8] = ["ip", "ipvsadm", "modprobe", "mount", "nft", "sh", "sleep", "unshare"];

/// Folders to mount on and to write to.
const FOLDERS: [&str; 6] = ["proc", "sys", "dev", "run", "tmp", "var/lib"];

/// Builds the root in a new folder below `folder` and packs it. `filter` is part of the names of the tests to run.
pub fn pack(kernel: &Unpacked, programs: &Programs, filter: &str, folder: &Path) -> Result<PathBuf> {
    let root = folder.join("root");
    remove(&root)?;
    for part in ["usr/bin", "usr/lib", "usr/lib64"].iter().chain(&FOLDERS) {
        let part = root.join(part);
        std::fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("sbin", "usr/bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
        ("usr/sbin", "bin"),
    ] {
        symlink(target, root.join(link)).with_context(|| format!("cannot link {link}"))?;
    }
    copy_programs(&root)?;
    modules::copy(kernel, &root)?;
    copy(&programs.init, &root.join("init"))?;
    copy(&programs.agent, &root.join(init::AGENT.trim_start_matches('/')))?;
    for (name, file) in &programs.tests {
        copy(file, &root.join(init::TESTS.trim_start_matches('/')).join(name))?;
    }
    let file = root.join(init::FILTER.trim_start_matches('/'));
    std::fs::write(&file, filter).with_context(|| format!("cannot write {}", file.display()))?;
    archive(&root, &folder.join("initramfs.cpio"))
}

/// Programs, and the libraries that they load, at the places where they are on this machine.
fn copy_programs(root: &Path) -> Result<()> {
    let mut libraries = BTreeSet::new();
    for name in PROGRAMS {
        let program = shell::find_program(name).with_context(|| format!("the program `{name}` is not there"))?;
        copy(&program, &root.join("usr/bin").join(name))?;
        libraries.extend(libraries_of(
            &shell::capture(Command::new("ldd").arg(&program)).unwrap_or_default(),
        ));
    }
    for library in libraries {
        copy(&library, &root.join(library.strip_prefix("/").unwrap_or(&library)))?;
    }
    Ok(())
}

/// The absolute paths in what ldd prints: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader.
fn libraries_of(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn archive(root: &Path, file: &Path) -> Result<PathBuf> {
    let script = "cd \"$1\" && find . | cpio --create --format=newc --owner=0:0 --quiet > \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(root).arg(file);
    shell::run(&mut command)?;
    if !file.metadata().is_ok_and(|metadata| metadata.len() > 0) {
        bail!("{} was not written", file.display());
    }
    Ok(file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x7ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(
            libraries_of(text),
            [
                PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        assert!(libraries_of("\tstatically linked\n").is_empty());
    }
}
