//! Where things are, and cargo commands that start from a known environment. In: the environment of the caller. Out:
//! absolute paths, and `Command`s.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Variables of the caller that would change what another compiler builds.
const LEAKING: [&str; 11] = [
    "CARGO_BUILD_RUSTC",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// The checkout and the folders that its build writes to.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The folder of the workspace's Cargo.toml.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
    /// The project's own tools, for `cargo install --root`.
    pub tools: PathBuf,
    /// The cargo that runs us.
    pub cargo: PathBuf,
}

impl Workspace {
    /// Finds the checkout that this program was built from. The target folder is CARGO_TARGET_DIR, else `target`.
    pub fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().context("xtask is not inside a workspace")?.to_owned();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(target) if !target.is_empty() => std::path::absolute(target).context("CARGO_TARGET_DIR")?,
            _ => root.join("target"),
        };
        let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        Ok(Self {
            tools: root.join(".tools"),
            root,
            target,
            cargo,
        })
    }

    /// The eBPF object that the agent embeds.
    pub fn ebpf_object(&self) -> PathBuf {
        self.target.join("ebpf/flowskew-ebpf.o")
    }

    /// An eBPF object with one empty program, for benchmarks.
    pub fn empty_ebpf_object(&self) -> PathBuf {
        self.target.join("ebpf/flowskew-empty.o")
    }

    /// A program of the dev profile.
    pub fn debug_program(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    /// Where a program that `cargo install` put into the tool folder is.
    pub fn tool(&self, name: &str) -> PathBuf {
        self.tools.join("bin").join(name)
    }

    /// Cargo for user space: the caller's compiler and flags, this workspace. The agent's build finds the eBPF object in
    /// the usual target folder by itself; naming it only elsewhere spares a plain `cargo build` from building it again.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(&self.root).env_remove("FLOWSKEW_EBPF_OBJECT");
        if self.target != self.root.join("target") {
            command
                .env("CARGO_TARGET_DIR", &self.target)
                .env("FLOWSKEW_EBPF_OBJECT", self.ebpf_object());
        }
        command
    }

    /// A cargo that none of the caller's compiler settings reach; for builds with another compiler or of tools.
    pub fn isolated(&self, cargo: &Path) -> Command {
        let mut command = Command::new(cargo);
        command.current_dir(&self.root);
        for variable in LEAKING {
            command.env_remove(variable);
        }
        command
    }
}
