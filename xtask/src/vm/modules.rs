//! Which modules a virtual machine gets. In: an unpacked kernel with its `modules.dep`. Out: the modules of networking, with
//! all that they need, uncompressed in the new root, where modprobe finds them.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::unpack::Unpacked;
use crate::shell;

/// Folders and files that are taken, with all that they need.
const WANTED: [&str; 3] = [
    "kernel/net/",
    "kernel/drivers/net/veth.ko",
    "kernel/drivers/net/dummy.ko",
];

/// Copies the modules into a new root and lists them for modprobe.
pub fn copy(kernel: &Unpacked, root: &Path) -> Result<()> {
    let from = kernel.root.join("lib/modules").join(&kernel.release);
    let to = root.join("lib/modules").join(&kernel.release);
    let list = from.join("modules.dep");
    let list = std::fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    for module in selected(&list) {
        copy_module(&from.join(module), &to.join(module))?;
    }
    for file in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        std::fs::copy(from.join(file), to.join(file)).with_context(|| format!("cannot copy {file}"))?;
    }
    shell::run(Command::new("depmod").arg("-b").arg(root).arg(&kernel.release))
}

/// The wanted modules and what they need, from lines `MODULE: NEEDED NEEDED`, which name all, also what is needed indirectly.
fn selected(list: &str) -> BTreeSet<&str> {
    let needs: HashMap<&str, &str> = list.lines().filter_map(|line| line.split_once(':')).collect();
    needs
        .iter()
        .filter(|(module, _)| WANTED.iter().any(|wanted| module.starts_with(wanted)))
        .flat_map(|(module, needs)| std::iter::once(*module).chain(needs.split_whitespace()))
        .collect()
}

/// Uncompressed here, once, rather than by the slow processor of the machine, each time.
fn copy_module(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a module has a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let Some(plain) = to.to_str().and_then(|name| name.strip_suffix(".xz")).map(PathBuf::from) else {
        std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        return Ok(());
    };
    let file = std::fs::File::create(&plain).with_context(|| format!("cannot write {}", plain.display()))?;
    let mut command = Command::new("xz");
    command.args(["--decompress", "--stdout"]).arg(from);
    let shown = shell::display(&command);
    let status = command
        .stdin(Stdio::null())
        .stdout(file)
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_with_what_they_need() {
        let list = "kernel/net/a.ko: kernel/lib/c.ko kernel/net/b.ko\nkernel/net/b.ko: kernel/lib/c.ko\n\
                    kernel/lib/c.ko:\nkernel/fs/d.ko: kernel/fs/e.ko\nkernel/drivers/net/veth.ko.xz:\n\
                    kernel/drivers/net/tun.ko:\n";
        let found: Vec<&str> = selected(list).into_iter().collect();
        assert_eq!(
            found,
            [
                "kernel/drivers/net/veth.ko.xz",
                "kernel/lib/c.ko",
                "kernel/net/a.ko",
                "kernel/net/b.ko"
            ]
        );
    }
}
