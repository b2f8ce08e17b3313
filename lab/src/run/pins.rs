//! Where the agents of a run pin what goes on counting without them: a BPF filesystem of its own in the folder of the run,
//! which is unmounted with the run. The machine's own pins are never touched.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// Mounts it, and returns where.
///
/// # Errors
/// The kernel or the container does not allow it.
pub async fn mount(run: &Path) -> Result<PathBuf> {
    let path = run.join("bpf");
    std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let output = Command::new("mount")
        .args(["-t", "bpf", "flowskew-lab"])
        .arg(&path)
        .kill_on_drop(true)
        .output()
        .await
        .context("cannot run mount (package mount)")?;
    ensure!(
        output.status.success(),
        "cannot mount a BPF filesystem, which `agents.pins` needs: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(path)
}
