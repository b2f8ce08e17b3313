//! Both ends of a process of the lab. Parent: in, a subcommand and a place; out, a running child that knows its parent
//! by its standard input. Child: enters its place, and learns when the parent is gone, also when that was killed.

use std::{
    fs,
    io::{stdin, stdout},
    os::fd::AsFd as _,
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context as _, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    net::unix::pipe::{Receiver, Sender},
    process::{Child, Command},
};

use super::namespace;

/// Where a process of the lab lives.
#[derive(Clone, Debug, clap::Args)]
pub struct Place {
    /// File of the network namespace to enter.
    #[arg(long)]
    pub netns: PathBuf,
    /// Control group to enter.
    #[arg(long)]
    pub cgroup: PathBuf,
}

impl Place {
    /// Moves the calling process in. Sockets it makes later belong to the control group and the namespace.
    ///
    /// Call it before the process has a second thread.
    ///
    /// # Errors
    /// The place does not exist or the process is not root.
    pub fn enter(&self) -> Result<()> {
        let members = self.cgroup.join("cgroup.procs");
        fs::write(&members, "0").with_context(|| format!("cannot join {}", members.display()))?;
        namespace::enter(&self.netns)?;
        raise_open_files().map(drop)
    }
}

/// Raises the number of files this process may open as far as it is allowed to, and returns it.
///
/// # Errors
/// The kernel refuses what it said is allowed.
pub fn raise_open_files() -> Result<u64> {
    const ENOUGH: u64 = 1 << 20;
    let unlimited = Rlimit {
        current: Some(ENOUGH),
        maximum: Some(ENOUGH),
    };
    if setrlimit(Resource::Nofile, unlimited).is_ok() {
        return Ok(ENOUGH);
    }
    // Some containers withhold CAP_SYS_RESOURCE even from root: the hard limit is all there is.
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: hard,
            maximum: hard,
        },
    )
    .context("cannot raise RLIMIT_NOFILE")?;
    Ok(hard.unwrap_or(ENOUGH))
}

/// Starts `program` with a subcommand in a place, with pipes as standard input and output. It has a process group of
/// its own: an interrupt from the terminal reaches the lab alone, which then ends its children in order.
///
/// # Errors
/// The program cannot be run.
pub fn start(program: &PathBuf, subcommand: &str, arguments: &[String], place: &Place) -> Result<Child> {
    Command::new(program)
        .arg(subcommand)
        .args(arguments)
        .arg("--netns")
        .arg(&place.netns)
        .arg("--cgroup")
        .arg(&place.cgroup)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {} {subcommand}", program.display()))
}

/// What the parent sends; it ends when the parent is gone.
///
/// # Errors
/// Standard input is not a pipe: the subcommand was started by hand.
pub fn from_parent() -> Result<Receiver> {
    let pipe = stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("cannot use standard input")?;
    Receiver::from_owned_fd(pipe).context("standard input is not a pipe: flowskew-lab starts this subcommand itself")
}

/// The way to the parent.
///
/// # Errors
/// Standard output is not a pipe.
pub fn to_parent() -> Result<Sender> {
    let pipe = stdout()
        .as_fd()
        .try_clone_to_owned()
        .context("cannot use standard output")?;
    Sender::from_owned_fd(pipe).context("standard output is not a pipe: flowskew-lab starts this subcommand itself")
}
