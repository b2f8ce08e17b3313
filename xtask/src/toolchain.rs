//! Which compiler and which linker build the eBPF object. In: rustup's toolchains, Debian's compiler, every bpf-linker
//! that can be found. Out: a [`Compiler`] that has `core` for the BPF target, and a linker that reads its bitcode.
//!
//! There are two ways. A rustup nightly with rust-src compiles `core` itself. Debian's rustc-web comes with a `core`
//! compiled for BPF; it is a stable compiler and must be told that it may use unstable features.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell;
use crate::workspace::Workspace;

/// The BPF target of this machine's byte order.
pub const TARGET: &str = if cfg!(target_endian = "big") {
    "bpfeb-unknown-none"
} else {
    "bpfel-unknown-none"
};

/// Where Debian's packages put their compiler.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// How a compiler comes by `core` for the BPF target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Core {
    /// Cargo compiles it from rust-src.
    FromSource,
    /// It is in the compiler's sysroot.
    Prebuilt,
}

/// A compiler that can build the eBPF programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// Path of rustc.
    pub rustc: PathBuf,
    /// Path of the cargo to use with it.
    pub cargo: PathBuf,
    /// Where `core` comes from.
    pub core: Core,
    /// What it says of itself.
    pub version: Version,
}

/// The parts of `rustc --version -v` that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Major and minor version of the compiler.
    pub release: (u32, u32),
    /// Major version of its LLVM.
    pub llvm: u32,
}

/// A bpf-linker and the major version of the LLVM inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linker {
    /// Path of the program.
    pub path: PathBuf,
    /// Major version of its LLVM.
    pub llvm: u32,
}

impl Linker {
    /// LLVM reads the bitcode of its own version and of older ones.
    pub fn reads(&self, compiler: &Compiler) -> bool {
        self.llvm >= compiler.version.llvm
    }
}

/// Every compiler here that can build the programs, the preferred one first.
pub fn compilers(workspace: &Workspace) -> Vec<Compiler> {
    let oldest = release(env!("CARGO_PKG_RUST_VERSION")).unwrap_or_default();
    let nightlies = nightlies_with_source()
        .into_iter()
        .map(|bin| (bin.join("rustc"), bin.join("cargo"), Core::FromSource));
    let debian = has_prebuilt_core(Path::new(DEBIAN_RUSTC))
        .then(|| (PathBuf::from(DEBIAN_RUSTC), workspace.cargo.clone(), Core::Prebuilt));
    nightlies
        .chain(debian)
        .filter_map(|(rustc, cargo, core)| {
            let version = parse_version(&shell::capture(Command::new(&rustc).arg("-vV"))?)?;
            Some(Compiler {
                rustc,
                cargo,
                core,
                version,
            })
        })
        .filter(|compiler| compiler.version.release >= oldest)
        .collect()
}

/// Every bpf-linker here that runs: the project's own first, then those in PATH.
pub fn linkers(workspace: &Workspace) -> Vec<Linker> {
    let own = Some(workspace.tool("bpf-linker")).filter(|path| shell::is_executable(path));
    own.into_iter()
        .chain(shell::programs("bpf-linker"))
        .filter_map(|path| {
            // LLVM's own --version, which ends the program before it reads or writes anything. A linker too old for
            // --btf, or whose libLLVM is gone, fails here.
            let text = shell::capture(Command::new(&path).args([
                "--btf",
                "--llvm-args=--version",
                "--output=/dev/null",
                "/dev/null",
            ]))?;
            Some(Linker {
                llvm: llvm_major(&text)?,
                path,
            })
        })
        .collect()
}

/// The `bin` folders of rustup's nightly toolchains that have the source of `core`.
fn nightlies_with_source() -> Vec<PathBuf> {
    let home = std::env::var_os("RUSTUP_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".rustup")))
        .map(|home| home.join("toolchains"));
    let Some(entries) = home.and_then(|toolchains| std::fs::read_dir(toolchains).ok()) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("nightly"))
        .map(|entry| entry.path())
        .filter(|toolchain| toolchain.join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file())
        .map(|toolchain| toolchain.join("bin"))
        .filter(|bin| shell::is_executable(&bin.join("rustc")) && shell::is_executable(&bin.join("cargo")))
        .collect();
    // "nightly-HOST" sorts after "nightly-DATE-HOST": the toolchain that is kept up to date comes first.
    found.sort();
    found.reverse();
    found
}

/// True when the compiler's sysroot holds a `core` for the BPF target.
fn has_prebuilt_core(rustc: &Path) -> bool {
    let sysroot = shell::is_executable(rustc)
        .then(|| {
            shell::capture(
                Command::new(rustc)
                    .env_remove("RUSTUP_TOOLCHAIN")
                    .args(["--print", "sysroot"]),
            )
        })
        .flatten();
    sysroot
        .map(|sysroot| Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib"))
        .and_then(|folder| std::fs::read_dir(folder).ok())
        .is_some_and(|files| {
            files.flatten().any(|file| {
                let name = file.file_name();
                let name = name.to_string_lossy();
                name.starts_with("libcore-") && name.ends_with(".rlib")
            })
        })
}

/// Reads `rustc --version -v`.
fn parse_version(text: &str) -> Option<Version> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let llvm = field("LLVM version")?.split('.').next()?.trim().parse().ok()?;
    Some(Version {
        release: release(field("release")?)?,
        llvm,
    })
}

/// Major and minor of a version such as `1.97.0-nightly`.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Reads what LLVM prints for `--version`.
fn llvm_major(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("LLVM version ")?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_compiler() {
        let text = "rustc 1.97.0-nightly (e50aa6fba 2026-05-19)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n\
                    release: 1.97.0-nightly\nLLVM version: 22.1.4\n";
        assert_eq!(
            parse_version(text),
            Some(Version {
                release: (1, 97),
                llvm: 22
            })
        );
        assert_eq!(parse_version("release: 1.97.0\n"), None);
        assert_eq!(parse_version("error: toolchain 'nightly' is not installed\n"), None);
    }

    #[test]
    fn the_llvm_of_a_linker() {
        assert_eq!(llvm_major("Debian LLVM version 22.1.8\n  Optimized build.\n"), Some(22));
        assert_eq!(
            llvm_major("LLVM (http://llvm.org/):\n  LLVM version 23.0.0git\n"),
            Some(23)
        );
        assert_eq!(llvm_major("error: unexpected argument '--btf' found"), None);
    }

    #[test]
    fn a_linker_reads_its_own_and_older_bitcode() {
        let compiler = Compiler {
            rustc: DEBIAN_RUSTC.into(),
            cargo: "cargo".into(),
            core: Core::Prebuilt,
            version: Version {
                release: (1, 96),
                llvm: 22,
            },
        };
        let reads = |llvm| {
            Linker {
                path: "bpf-linker".into(),
                llvm,
            }
            .reads(&compiler)
        };
        assert_eq!([21, 22, 23].map(reads), [false, true, true]);
    }

    #[test]
    fn releases_compare_by_number() {
        assert!(release("1.100.0") > release("1.91"));
        assert_eq!(release("nonsense"), None);
    }
}
