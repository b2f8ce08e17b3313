//! `cargo xtask setup`, and the check that every other command begins with. In: the purposes of the command. Out: the
//! tools, all there; or, where we may not install, the commands to type and an error.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::need::{EbpfTools, Need, Purpose, Survey};
use crate::remedy::{NIGHTLY, Remedy, llvm_prefix, packages, remedy, script};
use crate::shell;
use crate::workspace::Workspace;

/// Shows what is there and what is missing. Missing things are an error.
pub fn check(workspace: &Workspace, purposes: &[Purpose]) -> Result<()> {
    let survey = Survey::take(workspace, purposes);
    for item in &survey.items {
        match &item.found {
            Some(place) => println!("found    {}: {place}", item.need),
            None => println!("MISSING  {}", remedy(&item.need, llvm_prefix).what),
        }
    }
    let missing = survey.missing();
    if missing.is_empty() {
        println!("Nothing is missing.");
        return Ok(());
    }
    let remedies = remedies(&missing);
    println!("\n`cargo xtask setup`, as root on Debian or Ubuntu, installs what is missing. By hand:\n");
    show(&remedies, !is_root());
    bail!("{} of {} things are missing", missing.len(), survey.items.len());
}

/// Makes sure that everything is there. Says nothing when it is.
pub fn ensure(workspace: &Workspace, purposes: &[Purpose]) -> Result<Survey> {
    let mut survey = Survey::take(workspace, purposes);
    let mut before = Vec::new();
    let mut lists_are_fresh = false;
    loop {
        let missing = survey.missing();
        if missing.is_empty() {
            return Ok(survey);
        }
        let remedies = remedies(&missing);
        if missing == before {
            let names: Vec<&str> = remedies.iter().map(|remedy| remedy.what.as_str()).collect();
            bail!("still missing after all steps went well: {}", names.join("; "));
        }
        println!("Missing:");
        for remedy in &remedies {
            println!("  {}", remedy.what);
        }
        if !may_install(&remedies) {
            println!(
                "\nInstalling it needs root and apt-get (Debian, Ubuntu). Type this, in {}:\n",
                workspace.root.display()
            );
            show(&remedies, !is_root());
            bail!("things that this command needs are missing; the commands above install them");
        }
        // What depends on another step waits for the next round.
        let now: Vec<Remedy> = missing
            .iter()
            .zip(remedies)
            .filter_map(|(need, remedy)| (*need != Need::Linker(None)).then_some(remedy))
            .collect();
        install(workspace, &now, &mut lists_are_fresh)?;
        before = missing;
        survey = Survey::take(workspace, purposes);
    }
}

/// The tools for the eBPF object, installed if need be.
pub fn ebpf_tools(workspace: &Workspace, purposes: &[Purpose]) -> Result<EbpfTools> {
    ensure(workspace, purposes)?
        .ebpf
        .context("the tools for the eBPF object were not looked for")
}

fn remedies(missing: &[Need]) -> Vec<Remedy> {
    missing.iter().map(|need| remedy(need, llvm_prefix)).collect()
}

fn show(remedies: &[Remedy], sudo: bool) {
    for line in script(remedies, has_apt(), sudo) {
        println!("    {line}");
    }
}

/// Packages need root and apt-get; the rest needs neither.
fn may_install(remedies: &[Remedy]) -> bool {
    let packages = remedies.iter().any(|remedy| !remedy.packages.is_empty());
    has_apt() && (is_root() || !packages)
}

fn has_apt() -> bool {
    shell::find_program("apt-get").is_some()
}

/// True when the files that we make belong to root.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

fn install(workspace: &Workspace, remedies: &[Remedy], lists_are_fresh: &mut bool) -> Result<()> {
    if !*lists_are_fresh && is_root() && remedies.iter().any(Remedy::uses_apt) {
        announce("apt-get update", "so that apt knows the packages of today");
        // One source that cannot be reached must not stop us: the packages may come from another.
        if let Err(error) = shell::run(apt_get().arg("update")) {
            println!("note: {error:#}; trying with what apt knows");
        }
        *lists_are_fresh = true;
    }
    let packages = packages(remedies);
    if !packages.is_empty() {
        check_candidates(&packages)?;
        // Rather fail than remove what somebody installed on purpose.
        let mut command = apt_get();
        command
            .args(["install", "--yes", "--no-install-recommends", "--no-remove"])
            .args(&packages);
        let why: Vec<&str> = remedies
            .iter()
            .filter(|remedy| !remedy.packages.is_empty())
            .map(|remedy| remedy.what.as_str())
            .collect();
        announce(&shell::display(&command), &why.join("\n       "));
        shell::run(&mut command).with_context(|| {
            format!(
                "apt-get did not install {}. If it says that packages would be removed (Debian's rustc or rustup \
                 conflict with rustc-web), remove them first, or use a nightly compiler: {NIGHTLY}",
                packages.join(" ")
            )
        })?;
    }
    for remedy in remedies {
        for command in &remedy.commands {
            announce(command, &remedy.what);
            let mut shell = workspace.isolated("sh".as_ref());
            shell::run(shell.args(["-c", command]))
                .with_context(|| format!("could not get {}; is the network reachable?", remedy.what))?;
        }
    }
    Ok(())
}

fn announce(command: &str, why: &str) {
    println!("\nsetup: {command}\n  for: {why}");
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-o", "DPkg::Lock::Timeout=120", "-o", "Dpkg::Use-Pty=0"]);
    command
}

/// An error that says what to do about packages that none of apt's sources has.
fn check_candidates(packages: &[&str]) -> Result<()> {
    let policy = shell::capture(
        Command::new("apt-cache")
            .env("LC_ALL", "C")
            .arg("policy")
            .args(packages),
    );
    let unknown = without_candidate(packages, &policy.unwrap_or_default());
    if unknown.is_empty() {
        return Ok(());
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    bail!("{}", no_source(&unknown, &release))
}

/// The packages for which `apt-cache policy` shows nothing to install.
fn without_candidate<'a>(packages: &[&'a str], policy: &str) -> Vec<&'a str> {
    let has_candidate = |package: &str| {
        let head = format!("{package}:");
        let mut lines = policy.lines().skip_while(|line| *line != head);
        lines
            .nth(2)
            .and_then(|line| line.trim().strip_prefix("Candidate: "))
            .is_some_and(|version| version != "(none)")
    };
    packages
        .iter()
        .copied()
        .filter(|package| !has_candidate(package))
        .collect()
}

/// What to do when no source of apt has the packages, on the system that os-release describes.
fn no_source(packages: &[&str], os_release: &str) -> String {
    let mut text = format!("none of apt's sources has {}.", packages.join(" "));
    if os_release.lines().any(|line| line == "VERSION_CODENAME=bookworm") {
        text += " On Debian 12, bookworm-security does. Add it and try again:\n    \
                 echo 'deb http://deb.debian.org/debian-security bookworm-security main' > \
                 /etc/apt/sources.list.d/security.list";
    }
    text + &format!("\nA nightly compiler does as well, with an LLVM for which there is a package:\n    {NIGHTLY}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "rustc-web:\n  Installed: (none)\n  Candidate: 1.85.0+dfsg3-1\n  Version table:\n\
                          libstd-rust-web-dev-bpf:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n";

    #[test]
    fn packages_that_no_source_has_are_found() {
        let packages = ["rustc-web", "libstd-rust-web-dev-bpf", "llvm-22-dev"];
        assert_eq!(
            without_candidate(&packages, POLICY),
            ["libstd-rust-web-dev-bpf", "llvm-22-dev"]
        );
    }

    #[test]
    fn the_security_suite_is_named_on_bookworm_only() {
        let bookworm = "ID=debian\nVERSION_CODENAME=bookworm\n";
        assert!(no_source(&["llvm-22-dev"], bookworm).contains("bookworm-security"));
        let other = no_source(&["llvm-22-dev"], "ID=ubuntu\nVERSION_CODENAME=noble\n");
        assert!(!other.contains("bookworm") && other.contains(NIGHTLY), "{other}");
    }
}
