//! Packages of Debian's other releases, which the machine itself must not get. In: a kernel's suite and the machine's
//! mirrors. Out: the files of its packages, downloaded and checked by apt, and kept.
//!
//! apt runs with lists, cache and sources in a folder of ours, so it needs no root and changes nothing of the machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::kernels::{Kernel, PACKAGE};
use crate::shell;

/// The signatures of all releases; Debian has it in every installation.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Places of a release and of its security updates.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    main: String,
    security: String,
}

/// A package that was downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The file.
    pub file: PathBuf,
}

/// Downloads the newest kernel of the suite into `folder`, unless it is there. Works without a network on what is there.
pub fn kernel_packages(kernel: &Kernel, folder: &Path) -> Result<Vec<Package>> {
    if !Path::new(KEYRING).exists() {
        bail!("{KEYRING} is missing: install the package debian-archive-keyring");
    }
    let apt = Apt::new(&folder.join("apt"))?;
    let mut problems = Vec::new();
    for mirror in [machine_mirror(), archive()] {
        problems.push(apt.update(&sources(kernel, &mirror))?);
        let names = apt.dependencies()?;
        if !names.is_empty() {
            return apt
                .download(&names, &folder.join("packages"))
                .with_context(|| format!("cannot download the kernel of {}", kernel.suite));
        }
    }
    bail!("no mirror has {PACKAGE} of {}: {}", kernel.suite, problems.join("; "))
}

/// Where releases are that no mirror has any more.
fn archive() -> Mirror {
    Mirror {
        main: "http://archive.debian.org/debian".to_owned(),
        security: "http://archive.debian.org/debian-security".to_owned(),
    }
}

/// The mirrors that the machine uses itself, else Debian's.
fn machine_mirror() -> Mirror {
    let targets = shell::capture(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(LABEL) $(REPO_URI)",
        "Created-By: Packages",
    ]));
    mirror_of(&targets.unwrap_or_default())
}

fn mirror_of(targets: &str) -> Mirror {
    let find = |label: &str, usual: &str| {
        let mut lines = targets.lines().filter_map(|line| line.split_once(' '));
        lines
            .find(|(found, _)| *found == label)
            .map_or_else(|| usual.to_owned(), |(_, uri)| uri.trim_end_matches('/').to_owned())
    };
    Mirror {
        main: find("Debian", "http://deb.debian.org/debian"),
        security: find("Debian-Security", "http://deb.debian.org/debian-security"),
    }
}

fn sources(kernel: &Kernel, mirror: &Mirror) -> String {
    let suite = kernel.suite;
    // Only the list of packages: no translations, no icons.
    let options = format!("[arch=amd64 target=Packages signed-by={KEYRING}]");
    let mut text = format!("deb {options} {} {suite} main\n", mirror.main);
    if kernel.security {
        text += &format!("deb {options} {} {suite}-security main\n", mirror.security);
    }
    text
}

/// apt with a state of its own.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(folder: &Path) -> Result<Self> {
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            std::fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
        }
        write(&folder.join("status"), "")?;
        write(&folder.join("apt.conf"), &configuration(folder))?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("APT_CONFIG", self.folder.join("apt.conf"))
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    /// Reads the lists again. What apt complains about is returned: the lists of an earlier time may still do.
    fn update(&self, sources: &str) -> Result<String> {
        write(&self.folder.join("sources.list"), sources)?;
        let output = self
            .command("apt-get")
            .args(["update", "--quiet"])
            .output()
            .context("cannot start apt-get, which Debian and Ubuntu have")?;
        Ok(complaints(&String::from_utf8_lossy(&output.stderr)))
    }

    /// The packages that make up a kernel. Newer releases split it into several.
    fn dependencies(&self) -> Result<Vec<String>> {
        let output = self
            .command("apt-cache")
            .args(["depends", "--recurse", "--important", PACKAGE])
            .output()
            .context("cannot start apt-cache")?;
        Ok(kernel_names(&String::from_utf8_lossy(&output.stdout)))
    }

    fn download(&self, names: &[String], folder: &Path) -> Result<Vec<Package>> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut list = self.command("apt-get");
        list.args(["download", "--print-uris"]).args(names);
        let uris = shell::capture(&mut list).with_context(|| format!("`{}` failed", shell::display(&list)))?;
        let packages: Vec<Package> = uris.lines().filter_map(|line| package(line, folder)).collect();
        remove_others(folder, &packages)?;
        if packages.iter().any(|package| !package.file.exists()) {
            let mut download = self.command("apt-get");
            shell::run(download.current_dir(folder).args(["download", "--quiet"]).args(names))?;
        }
        Ok(packages)
    }
}

/// Says where everything is, and:
/// - that apt stays the user that it is, as the user `_apt` may not be able to read our folder;
/// - that lists may be old, as those of releases in the archive are.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "APT::Architecture \"amd64\";\nAPT::Sandbox::User \"root\";\nAcquire::Check-Valid-Until \"false\";\n\
         Dir::State \"{folder}\";\nDir::State::status \"{folder}/status\";\nDir::State::lists \"{folder}/lists\";\n\
         Dir::Cache \"{folder}/cache\";\nDir::Etc::sourcelist \"{folder}/sources.list\";\n\
         Dir::Etc::sourceparts \"-\";\n"
    )
}

/// What apt could not do, in one line. That it then used what it had is none of it.
fn complaints(text: &str) -> String {
    let failure = |line: &&str| line.starts_with("E:") || line.starts_with("W: Failed");
    text.lines().filter(failure).collect::<Vec<_>>().join("; ")
}

/// The names of packages of a kernel in the output of `apt-cache depends`: not what the packages need beside it, and not
/// those without a version in their name, which are empty.
fn kernel_names(depends: &str) -> Vec<String> {
    let ours = |line: &&str| {
        line.strip_prefix("linux-")
            .and_then(|rest| rest.strip_suffix("-cloud-amd64"))
            .is_some_and(|rest| rest.contains(|c: char| c.is_ascii_digit()))
    };
    depends.lines().filter(ours).map(str::to_owned).collect()
}

/// The package of a line `'URI' FILE SIZE HASH`.
fn package(line: &str, folder: &Path) -> Option<Package> {
    let file = line.split_whitespace().nth(1)?;
    let mut parts = file.split('_');
    Some(Package {
        name: parts.next()?.to_owned(),
        version: parts.next()?.replace("%3a", ":"),
        file: folder.join(file),
    })
}

/// Removes the files of earlier versions.
fn remove_others(folder: &Path, packages: &[Package]) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let file = entry?.path();
        if packages.iter().all(|package| package.file != file) {
            std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
    }
    Ok(())
}

fn write(file: &Path, content: &str) -> Result<()> {
    std::fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::kernels;

    #[test]
    fn the_mirrors_of_the_machine_are_used() {
        let mirror = mirror_of("Debian http://m.example/debian/\nDebian-Security http://m.example/sec/\nUbuntu x\n");
        assert_eq!(mirror.main, "http://m.example/debian");
        let text = sources(&kernels::ALL[0], &mirror);
        assert!(text.contains(" http://m.example/debian bullseye main\n"), "{text}");
        assert!(
            text.contains(" http://m.example/sec bullseye-security main\n"),
            "{text}"
        );
        assert_eq!(mirror_of("Ubuntu http://u/ubuntu").main, "http://deb.debian.org/debian");
        assert_eq!(
            sources(&kernels::ALL[3], &mirror).lines().count(),
            1,
            "sid has no security suite"
        );
    }

    #[test]
    fn only_the_kernels_own_packages_are_taken() {
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-1-cloud-amd64\nlinux-image-1-cloud-amd64\n  \
                       Depends: kmod\nkmod\nlinux-base\nlinux-binary-1-cloud-amd64\n";
        assert_eq!(
            kernel_names(depends),
            ["linux-image-1-cloud-amd64", "linux-binary-1-cloud-amd64"]
        );
    }

    #[test]
    fn files_and_versions_are_read_from_the_list() {
        let line = "'http://m/linux-image-7%2bdeb14_7.2-1_amd64.deb' linux-image-7+deb14_7.2-1_amd64.deb 1916 SHA256:1";
        let found = package(line, Path::new("/f"));
        let expected = Package {
            name: "linux-image-7+deb14".into(),
            version: "7.2-1".into(),
            file: "/f/linux-image-7+deb14_7.2-1_amd64.deb".into(),
        };
        assert_eq!(found, Some(expected));
        assert_eq!(package("", Path::new("/f")), None);
    }
}
