//! `cargo xtask image`. In: the workspace. Out: static programs in `target/image`, which is the build context of the
//! files in deploy/image, and container images where a builder of images works.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::need::Purpose;
use crate::workspace::Workspace;
use crate::{ebpf, setup, shell};

/// What goes into images, and into `target/image` beside them: the command for people is static as well.
const PROGRAMS: [&str; 3] = ["flowskew-agent", "flowskew-aggregator", "kubectl-flowskew"];
/// One image each, named flowskew-NAME.
const IMAGES: [&str; 2] = ["agent", "aggregator"];

/// Builds programs and images. Images are named REGISTRY/flowskew-agent:TAG, REGISTRY/flowskew-aggregator:TAG.
pub fn build(workspace: &Workspace, registry: &str, tag: &str) -> Result<()> {
    let tools = setup::ebpf_tools(workspace, &[Purpose::Ebpf])?;
    ebpf::build(workspace, &tools)?;
    let host = host()?;
    // With a target, flags reach neither build scripts nor procedural macros, which cannot be static.
    shell::run(
        workspace
            .cargo()
            .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
            .args(["build", "--release", "--target", &host])
            .args(["--package", "flowskew-agent", "--package", "flowskew-aggregator"]),
    )?;
    let context = workspace.target.join("image");
    std::fs::create_dir_all(&context).with_context(|| format!("cannot make {}", context.display()))?;
    for program in PROGRAMS {
        let built = workspace.target.join(&host).join("release").join(program);
        std::fs::copy(&built, context.join(program))
            .with_context(|| format!("cannot copy {} into {}", built.display(), context.display()))?;
    }
    println!("static programs: {}", context.display());
    let builder = builder();
    if builder.is_none() {
        println!("no builder of images works here (buildah, podman, docker); where one does, type:");
    }
    for image in IMAGES {
        let name = format!("{registry}/flowskew-{image}:{tag}");
        let file = workspace.root.join(format!("deploy/image/{image}.Containerfile"));
        let mut command = build_command(builder.unwrap_or("docker"), &name, &file, &context);
        if builder.is_some() {
            shell::run(&mut command)?;
            println!("image: {name}");
        } else {
            println!("    {}", shell::display(&command));
        }
    }
    Ok(())
}

/// The target triple of this machine.
pub fn host() -> Result<String> {
    let text = shell::capture(Command::new("rustc").arg("-vV")).context("cannot run `rustc -vV`")?;
    let Some(host) = text.lines().find_map(|line| line.strip_prefix("host: ")) else {
        bail!("`rustc -vV` names no host");
    };
    Ok(host.to_owned())
}

/// The first builder that answers; docker does only with its daemon.
fn builder() -> Option<&'static str> {
    ["buildah", "podman", "docker"]
        .into_iter()
        .find(|builder| shell::capture(Command::new(builder).arg("info")).is_some())
}

fn build_command(builder: &str, name: &str, file: &Path, context: &Path) -> Command {
    let mut command = Command::new(builder);
    command.args(["build", "--tag", name, "--file"]).arg(file).arg(context);
    command
}
