//! Network namespaces: in, a namespace and something to do there; out, its result. Also runs the tools of the network,
//! and turns their complaints into errors that say what to do.

use std::{
    fs::{self, File},
    io::Write as _,
    net::IpAddr,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::addresses::Family;

/// Folder in which `ip netns` keeps its namespaces.
pub const NAMESPACES: &str = "/run/netns";

/// File that holds a named network namespace open.
#[must_use]
pub fn path(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// Moves the calling thread, and the processes it starts from now on, into the namespace at `path`.
///
/// # Errors
/// The namespace does not exist, or the process is not privileged.
pub fn enter(path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("network namespace {} does not exist", path.display()))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("cannot enter network namespace {}: run as root", path.display()))
}

/// Runs `task` on a thread of its own inside the namespace, and waits for it.
///
/// # Errors
/// Those of [`enter`] and of the task.
pub fn within<T: Send>(namespace: &str, task: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let result = thread::scope(|scope| {
        scope
            .spawn(|| {
                enter(&path(namespace))?;
                task()
            })
            .join()
    });
    result
        .unwrap_or_else(|_| Err(anyhow!("the thread panicked")))
        .with_context(|| format!("in network namespace {namespace}"))
}

/// Runs each task on its own thread, and returns the first error after all have ended.
///
/// # Errors
/// The first error of a task.
pub fn all<T: Sync>(items: &[T], task: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let task = &task;
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(move || task(item))).collect();
        let results: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        results
            .into_iter()
            .try_for_each(|result| result.unwrap_or_else(|_| Err(anyhow!("the thread panicked"))))
    })
}

/// Runs a program with `input` on its standard input, and returns what it printed.
///
/// # Errors
/// The program is missing (the error names the Debian package) or fails (the error has what it said).
pub fn run(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    run_command(Command::new(program).args(arguments), input)
}

/// [`run`] for a command that needs more than arguments.
///
/// # Errors
/// As for [`run`].
pub fn run_command(command: &mut Command, input: &str) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let shown = format!("`{command:?}`").replace('"', "");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}: install the Debian package {}", package(&program)))?;
    // A program that stops reading early fails by itself, with a better reason than a broken pipe.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child
        .wait_with_output()
        .with_context(|| format!("cannot wait for {shown}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{shown} failed with {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Debian package of a program that the network needs.
#[must_use]
pub fn package(program: &str) -> &'static str {
    match program {
        "ip" | "ss" => "iproute2",
        "nft" => "nftables",
        "unshare" => "util-linux",
        "conntrack" => "conntrack",
        _ => "iptables",
    }
}

/// Runs the lines of an `ip -batch` script for one address family.
///
/// # Errors
/// The first line that fails.
pub fn ip(family: Family, script: &str) -> Result<()> {
    let family = match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    };
    run("ip", &[family, "-batch", "-"], script).map(drop)
}

/// Writes kernel settings below `/proc/sys/net` of the namespace the calling thread is in. Those of IPv6 are left out
/// where the kernel has none.
///
/// # Errors
/// The kernel has no such setting or refuses the value.
pub fn set_kernel(settings: &[(&str, &str)]) -> Result<()> {
    let root = Path::new("/proc/sys/net");
    let ipv6 = root.join("ipv6").exists();
    settings
        .iter()
        .filter(|(name, _)| ipv6 || !name.starts_with("ipv6/"))
        .try_for_each(|(name, value)| {
            let path = root.join(name);
            fs::write(&path, value).with_context(|| format!("cannot set {} to {value}", path.display()))
        })
}

/// Prefix length of a single address: 32 or 128.
#[must_use]
pub fn host_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
