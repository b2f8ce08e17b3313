//! A place where nobody else is disturbed: in, a process; out, the same process in a network namespace and a mount namespace
//! of its own, with tracing mounted, connection tracking on, and short memories of closed connections. Nothing has to be
//! cleaned up: the kernel ends the namespaces, the programs and the statistics with this process, however it ends.

use std::{
    env, fs,
    io::Write,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use anyhow::{Context, Error, Result, bail};
use rustix::process::{Signal, set_parent_process_death_signal};

/// Connection tracking as kube-proxy's rules cause it; without a rule that asks, the kernel tracks nothing.
const TRACKING: &str = "table inet bench {
  chain input {
    type filter hook input priority filter
    ct state established,related accept
  }
}
";

/// Settings under /proc/sys/net, for this namespace alone.
const SETTINGS: [(&str, &str); 5] = [
    ("ipv4/ip_local_port_range", "1024 65000"),
    // Thousands of closed connections a second must not fill tables, or the last rounds would be slower than the first.
    ("ipv4/tcp_max_tw_buckets", "256"),
    ("netfilter/nf_conntrack_tcp_timeout_time_wait", "1"),
    ("netfilter/nf_conntrack_tcp_timeout_close", "1"),
    ("netfilter/nf_conntrack_tcp_timeout_last_ack", "1"),
];

/// Becomes this program again, inside the namespaces. Returns only when that failed.
pub fn enter(mark: &str) -> Error {
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => return Error::new(error).context("cannot find this program"),
    };
    // The folders for administrators, where the peer tools are, may be missing in PATH.
    let path = env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
    let error = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private", "--"])
        .arg(program)
        .args(env::args_os().skip(1))
        .arg(mark)
        .env("PATH", path)
        .exec();
    Error::new(error).context("cannot start `unshare`")
}

/// Prepares the namespaces.
pub fn prepare() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot tie this process to its parent")?;
    run(&["ip", "link", "set", "lo", "up"], "")?;
    if fs::exists("/sys/kernel/tracing/events").is_ok_and(|there| !there) {
        run(&["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], "")?;
    }
    run(&["nft", "-f", "-"], TRACKING).context("connection tracking cannot be switched on")?;
    for (name, value) in SETTINGS {
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value).with_context(|| format!("cannot set {path}"))?;
    }
    Ok(())
}

/// Connections that the kernel's connection tracking remembers here, and how many it may.
pub fn tracked() -> Result<(u64, u64)> {
    let read = |name: &str| -> Result<u64> {
        let path = format!("/proc/sys/net/netfilter/{name}");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        text.trim().parse().with_context(|| path)
    };
    Ok((read("nf_conntrack_count")?, read("nf_conntrack_max")?))
}

fn run(command: &[&str], input: &str) -> Result<()> {
    let shown = command.join(" ");
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(input.as_bytes())
            .with_context(|| format!("`{shown}`"))?;
    }
    let status = child.wait().with_context(|| format!("`{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}
