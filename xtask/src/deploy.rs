//! Checks of deploy/ that need other programs. In: alert rules with their tests, kustomizations. Out: nothing, or an
//! error that names the file. (What needs none is in tests/deploy.rs.)

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::need;
use crate::shell;
use crate::workspace::Workspace;

/// Checks and tests the alert rules, and renders each kustomization if kubectl or kustomize is there.
pub fn check(workspace: &Workspace) -> Result<()> {
    let promtool = need::promtool(workspace).context("promtool is missing")?;
    let alerts = workspace.root.join("deploy/alerts");
    for (suffix, command) in [(".rules.yaml", "check"), (".test.yaml", "test")] {
        let files: Vec<PathBuf> = files_below(&alerts)?
            .into_iter()
            .filter(|file| file.to_string_lossy().ends_with(suffix))
            .collect();
        ensure!(!files.is_empty(), "{} has no file *{suffix}", alerts.display());
        shell::run(Command::new(&promtool).args([command, "rules"]).args(&files))?;
    }
    let Some(renderer) = renderer() else {
        println!("kustomizations are not rendered: neither kubectl nor kustomize is installed");
        return Ok(());
    };
    for file in files_below(&workspace.root.join("deploy/kustomize"))? {
        let (Some("kustomization.yaml"), Some(folder)) = (file.file_name().and_then(OsStr::to_str), file.parent())
        else {
            continue;
        };
        println!("rendering {}", folder.display());
        let mut command = Command::new(&renderer[0]);
        command.args(&renderer[1..]).arg(folder);
        let output = command
            .output()
            .with_context(|| format!("cannot start `{}`", shell::display(&command)))?;
        ensure!(
            output.status.success(),
            "{}: {}",
            folder.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// The words of the command that renders a folder.
fn renderer() -> Option<Vec<String>> {
    [("kubectl", "kustomize"), ("kustomize", "build")]
        .into_iter()
        .find_map(|(program, subcommand)| {
            Some(vec![
                shell::find_program(program)?.display().to_string(),
                subcommand.to_owned(),
            ])
        })
}

/// All files in a folder and the folders in it, in the order of their names.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry
            .with_context(|| format!("cannot read {}", folder.display()))?
            .path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
