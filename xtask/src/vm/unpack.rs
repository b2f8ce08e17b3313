//! A kernel out of its packages. In: the files of the packages. Out: the boot image and the folder of modules, unpacked once
//! for each version.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::apt::Package;
use crate::shell;

/// An unpacked kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// Debian's version of the package.
    pub version: String,
    /// The boot image.
    pub image: PathBuf,
    /// The root that holds `lib/modules`.
    pub root: PathBuf,
    /// What the kernel calls itself, as in `uname -r`.
    pub release: String,
}

/// Unpacks the packages below `folder`, unless that was done before; other versions there are removed.
pub fn unpack(packages: &[Package], folder: &Path) -> Result<Unpacked> {
    let kernel = packages
        .iter()
        .find(|package| package.name.starts_with("linux-image-"))
        .context("the kernel's packages do not include an image")?;
    let unpacked = folder.join("unpacked");
    let root = unpacked.join(&kernel.version);
    if !root.exists() {
        remove(&unpacked)?;
        let part = unpacked.join("part");
        std::fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
        for package in packages {
            shell::run(Command::new("dpkg-deb").arg("-x").arg(&package.file).arg(&part))?;
        }
        // Debian's releases differ in where the modules are; one place for all.
        if !part.join("lib").exists() {
            std::os::unix::fs::symlink("usr/lib", part.join("lib")).context("cannot link lib")?;
        }
        shell::run(Command::new("depmod").arg("-b").arg(&part).arg(release(&part)?))?;
        std::fs::rename(&part, &root).with_context(|| format!("cannot make {}", root.display()))?;
    }
    let release = release(&root)?;
    let places = [
        root.join("boot").join(format!("vmlinuz-{release}")),
        root.join("lib/modules").join(&release).join("vmlinuz"),
    ];
    let Some(image) = places.into_iter().find(|place| place.exists()) else {
        bail!(
            "{} holds no boot image; remove the folder and try again",
            root.display()
        );
    };
    Ok(Unpacked {
        version: kernel.version.clone(),
        image,
        root,
        release,
    })
}

/// The one name in `lib/modules`.
fn release(root: &Path) -> Result<String> {
    let folder = root.join("lib/modules");
    let mut entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let entry = entries
        .next()
        .with_context(|| format!("{} is empty", folder.display()))??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// Removes a folder that may not be there.
pub fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
