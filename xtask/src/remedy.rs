//! How each need is met. In: a [`Need`] and what is known of the machine. Out: packages to install and commands to run,
//! as data: `setup` runs them or shows them.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::need::Need;
use crate::toolchain::TARGET;

/// The version of bpf-linker that is built.
const BPF_LINKER: &str = "0.13.0";
/// The LLVM versions that it can be built for; for others the newest bpf-linker is tried.
const BPF_LINKER_LLVM: RangeInclusive<u32> = 21..=23;
/// The version of cargo-deny that is built.
const CARGO_DENY: &str = "0.20.2";

/// How a need is met. Commands are for a shell in the folder of the checkout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remedy {
    /// What is missing, and what for.
    pub what: String,
    /// Debian packages; installing them needs root.
    pub packages: Vec<String>,
    /// Commands that need no root, to run when the packages are there.
    pub commands: Vec<String>,
    /// What to do instead of all that where there is no apt-get.
    pub elsewhere: Vec<String>,
}

impl Remedy {
    /// True when it downloads through apt-get, which must know what there is to download.
    pub fn uses_apt(&self) -> bool {
        !self.packages.is_empty() || self.commands.iter().any(|command| command.contains("apt-get"))
    }
}

/// The remedy for a need. `llvm_prefix` tells where LLVM of a major version is installed with its development files.
pub fn remedy(need: &Need, llvm_prefix: impl Fn(u32) -> Option<PathBuf>) -> Remedy {
    match need {
        Need::Compiler => Remedy {
            what: format!("a compiler with core for {TARGET}, which compiles the eBPF programs"),
            packages: vec!["rustc-web".into(), "libstd-rust-web-dev-bpf".into()],
            commands: vec![],
            elsewhere: vec![NIGHTLY.into()],
        },
        Need::Linker(None) => Remedy {
            what: "bpf-linker, which links the eBPF programs; it must fit the LLVM of the compiler".into(),
            packages: vec![],
            commands: vec![AGAIN.into()],
            elsewhere: vec![AGAIN.into()],
        },
        Need::Linker(Some(llvm)) => linker(*llvm, llvm_prefix(*llvm)),
        Need::Program(program) => Remedy {
            what: format!("{}, for {}", program.name, program.why),
            packages: vec![program.package.into()],
            commands: vec![],
            elsewhere: vec![format!("# with your package manager: the program `{}`", program.name)],
        },
        Need::Promtool => Remedy {
            what: "promtool, which tests the alert rules; taken out of its package, as installing that starts a server"
                .into(),
            packages: vec![],
            commands: vec![
                "mkdir -p .tools/bin && cd .tools && apt-get -o APT::Sandbox::User=root download prometheus && \
                 dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x -C bin --strip-components=3 ./usr/bin/promtool && \
                 rm prometheus_*.deb"
                    .into(),
            ],
            elsewhere: vec!["# from https://prometheus.io/download: the program `promtool`, into .tools/bin".into()],
        },
        Need::CargoDeny => {
            // It runs for seconds: optimising it would cost more than it saves.
            let build = format!("cargo install cargo-deny@{CARGO_DENY} --locked --debug --root .tools");
            Remedy {
                what: "cargo-deny, which checks licences and dependencies (built once, a few minutes)".into(),
                packages: vec![],
                commands: vec![build.clone()],
                elsewhere: vec![build],
            }
        }
        Need::Component(name) => {
            let add = format!("rustup component add {}", if *name == "fmt" { "rustfmt" } else { name });
            Remedy {
                what: format!("cargo {name}, for the checks of CI"),
                packages: vec![],
                commands: vec![add.clone()],
                elsewhere: vec![add],
            }
        }
    }
}

/// The way to a compiler that does not need Debian's packages.
pub const NIGHTLY: &str = "rustup toolchain install nightly --profile minimal --component rust-src";

/// What to type when a step depends on the outcome of an earlier one.
const AGAIN: &str = "cargo xtask setup  # again: which linker fits is known once the compiler is there";

fn linker(llvm: u32, prefix: Option<PathBuf>) -> Remedy {
    let build = |prefix: Option<&Path>| {
        let prefix = prefix
            .map(|prefix| format!("LLVM_PREFIX={} ", prefix.display()))
            .unwrap_or_default();
        let version = if BPF_LINKER_LLVM.contains(&llvm) {
            format!("@{BPF_LINKER}")
        } else {
            String::new()
        };
        format!(
            "{prefix}cargo install bpf-linker{version} --locked --force --root .tools --no-default-features \
             --features llvm-{llvm}"
        )
    };
    let debian = debian_llvm(llvm);
    Remedy {
        what: format!("bpf-linker for LLVM {llvm}, which links the eBPF programs (built once, a few minutes)"),
        packages: if prefix.is_some() {
            vec![]
        } else {
            vec![format!("llvm-{llvm}-dev")]
        },
        commands: vec![build(Some(prefix.as_deref().unwrap_or(&debian)))],
        elsewhere: match &prefix {
            Some(prefix) => vec![build(Some(prefix))],
            None => vec![
                format!("# with your package manager: LLVM {llvm} with its development files, llvm-config in PATH"),
                build(None),
            ],
        },
    }
}

/// Where Debian's packages put LLVM.
fn debian_llvm(major: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{major}"))
}

/// Where LLVM of that major version is, with the library to link against: LLVM_PREFIX, or Debian's place.
pub fn llvm_prefix(major: u32) -> Option<PathBuf> {
    std::env::var_os("LLVM_PREFIX")
        .map(PathBuf::from)
        .or_else(|| Some(debian_llvm(major)))
        .filter(|prefix| {
            ["lib", "lib64"]
                .iter()
                .any(|lib| prefix.join(lib).join("libLLVM.so").exists())
        })
}

/// The packages of all remedies, each once.
pub fn packages(remedies: &[Remedy]) -> Vec<&str> {
    let mut packages: Vec<&str> = Vec::new();
    for package in remedies.iter().flat_map(|remedy| &remedy.packages) {
        if !packages.contains(&package.as_str()) {
            packages.push(package);
        }
    }
    packages
}

/// The commands that meet the needs, for a person to type.
pub fn script(remedies: &[Remedy], has_apt: bool, sudo: bool) -> Vec<String> {
    let packages = packages(remedies);
    let mut lines = Vec::new();
    if has_apt && !packages.is_empty() {
        let sudo = if sudo { "sudo " } else { "" };
        lines.push(format!("{sudo}apt-get update"));
        lines.push(format!(
            "{sudo}apt-get install --no-install-recommends {}",
            packages.join(" ")
        ));
    }
    let rest = |remedy: &Remedy| {
        if has_apt {
            remedy.commands.clone()
        } else {
            remedy.elsewhere.clone()
        }
    };
    lines.extend(remedies.iter().flat_map(rest));
    // What depends on the outcome of the others comes last.
    lines.sort_by_key(|line| line == AGAIN);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::need::Program;

    const IP: Need = Need::Program(Program {
        name: "ip",
        package: "iproute2",
        why: "namespaces",
    });

    fn all(needs: &[Need], llvm: Option<&str>) -> Vec<Remedy> {
        needs
            .iter()
            .map(|need| remedy(need, |_| llvm.map(PathBuf::from)))
            .collect()
    }

    #[test]
    fn packages_come_in_one_command_and_before_the_rest() {
        let lines = script(&all(&[Need::Linker(Some(22)), IP, IP], None), true, true);
        assert_eq!(
            lines,
            [
                "sudo apt-get update",
                "sudo apt-get install --no-install-recommends llvm-22-dev iproute2",
                "LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker@0.13.0 --locked --force --root .tools \
                 --no-default-features --features llvm-22",
            ]
        );
    }

    #[test]
    fn an_installed_llvm_needs_no_package() {
        let lines = script(&all(&[Need::Linker(Some(22))], Some("/opt/llvm")), true, false);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with("LLVM_PREFIX=/opt/llvm cargo install bpf-linker@0.13.0 "),
            "{lines:?}"
        );
    }

    #[test]
    fn an_llvm_newer_than_we_know_takes_the_newest_linker() {
        let lines = script(&all(&[Need::Linker(Some(24))], None), true, false);
        assert!(lines[2].contains("cargo install bpf-linker --locked"), "{lines:?}");
        assert!(lines[2].ends_with("--features llvm-24"), "{lines:?}");
    }

    #[test]
    fn without_apt_no_debian_package_is_named() {
        let needs = [Need::Compiler, Need::Linker(None), IP, Need::Promtool];
        let lines = script(&all(&needs, None), false, true);
        assert_eq!(lines.first().map(String::as_str), Some(NIGHTLY));
        assert_eq!(lines.last().map(String::as_str), Some(AGAIN));
        assert!(
            !lines
                .iter()
                .any(|line| line.contains("apt") || line.contains("rustc-web")),
            "{lines:?}"
        );
    }

    #[test]
    fn only_what_downloads_with_apt_refreshes_its_lists() {
        let uses = |need| all(&[need], Some("/opt/llvm"))[0].uses_apt();
        assert!(uses(Need::Promtool) && uses(IP));
        assert!(!uses(Need::Linker(Some(22))) && !uses(Need::CargoDeny));
    }

    #[test]
    fn components_go_by_their_rustup_names() {
        assert_eq!(
            all(&[Need::Component("fmt")], None)[0].commands,
            ["rustup component add rustfmt"]
        );
        assert_eq!(
            all(&[Need::Component("clippy")], None)[0].commands,
            ["rustup component add clippy"]
        );
    }
}
