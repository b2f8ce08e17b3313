//! `cargo xtask build-ebpf`. In: the package flowskew-agent-ebpf, a compiler and a linker. Out: the eBPF object, in the
//! place where the build of the agent looks for it; for benchmarks, an empty one beside it.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

use crate::need::EbpfTools;
use crate::shell;
use crate::toolchain::{Core, TARGET};
use crate::workspace::Workspace;

/// Builds the object. The file is written only when its content changed, so that the agent is not built again for nothing.
pub fn build(workspace: &Workspace, tools: &EbpfTools) -> Result<()> {
    build_object(workspace, tools, "flowskew-ebpf", &workspace.ebpf_object())
}

/// Builds the object with an empty program, which benchmarks compare with.
pub fn build_empty(workspace: &Workspace, tools: &EbpfTools) -> Result<()> {
    build_object(workspace, tools, "flowskew-empty", &workspace.empty_ebpf_object())
}

fn build_object(workspace: &Workspace, tools: &EbpfTools, name: &str, object: &Path) -> Result<()> {
    let compiler = &tools.compiler;
    // A folder of its own: artefacts of another compiler would make cargo build user space again each time.
    let target = workspace.target.join("ebpf");
    let mut cargo = workspace.isolated(&compiler.cargo);
    cargo
        .env("RUSTC", &compiler.rustc)
        .env("CARGO_TARGET_DIR", &target)
        .env(
            format!("CARGO_TARGET_{}_LINKER", TARGET.to_uppercase().replace('-', "_")),
            &tools.linker.path,
        )
        // Replaces any flags of configuration files. The cfg selects the kernel's register layout of this machine.
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            format!(
                "--cfg=bpf_target_arch=\"{}\"\x1f-Clink-arg=--btf",
                std::env::consts::ARCH
            ),
        )
        .args(["build", "--package", "flowskew-agent-ebpf", "--bin", name])
        .args(["--features", "programs", "--profile", "ebpf", "--target", TARGET]);
    match compiler.core {
        Core::FromSource => cargo.arg("-Zbuild-std=core"),
        Core::Prebuilt => cargo.env("RUSTC_BOOTSTRAP", "1"),
    };
    shell::run(&mut cargo).context("the eBPF programs did not build")?;
    let built = target.join(TARGET).join("ebpf").join(name);
    copy_if_changed(&built, object)
}

/// Copies a file in one step, unless the copy is there already.
fn copy_if_changed(from: &Path, to: &Path) -> Result<()> {
    let content = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    match std::fs::read(to) {
        Ok(present) if present == content => return Ok(()),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot read {}", to.display()));
        }
        _ => {}
    }
    let part = to.with_extension("part");
    std::fs::write(&part, content).with_context(|| format!("cannot write {}", part.display()))?;
    std::fs::rename(&part, to).with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_object_is_left_alone() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("flowskew-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let (from, to) = (folder.join("from"), folder.join("to.o"));
        std::fs::write(&from, "one")?;
        copy_if_changed(&from, &to)?;
        let written = std::fs::metadata(&to)?.modified()?;
        copy_if_changed(&from, &to)?;
        assert_eq!(std::fs::metadata(&to)?.modified()?, written);
        std::fs::write(&from, "two")?;
        copy_if_changed(&from, &to)?;
        assert_eq!(std::fs::read_to_string(&to)?, "two");
        std::fs::remove_dir_all(&folder)?;
        Ok(())
    }
}
