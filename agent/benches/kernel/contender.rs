//! Who is compared: in, a name; out, a running program that has seen a connection, which ends when it is dropped.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{Read, Seek},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use aya::{Btf, Ebpf, programs::BtfTracePoint};
use serde::{Deserialize, Serialize};

use crate::{
    load::Servers,
    maps,
    programs::{self, Runs},
};

/// Script for bpftrace: the same figures as flowskew's, from the same tracepoint.
const SCRIPT: &str = include_str!("peer.bt");
const PATIENCE: Duration = Duration::from_secs(30);
/// For what a program still does after its first event.
const SETTLE: Duration = Duration::from_millis(400);

/// Somebody who looks at connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// Nobody: what remains is noise.
    Nobody,
    /// An empty program on the same tracepoint.
    Empty,
    /// The agent, with every endpoint of the load watched and the prefixes of a cluster of 27 nodes.
    Agent,
    /// The agent without an assignment.
    AgentUnassigned,
    /// tcplife of libbpf-tools.
    Tcplife,
    /// bpftrace with an equivalent script.
    Bpftrace,
    /// `conntrack -E`.
    Conntrack,
}

impl Contender {
    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Nobody => "nobody (noise)",
            Self::Empty => "empty program",
            Self::Agent => "flowskew-agent",
            Self::AgentUnassigned => "flowskew-agent, nothing watched",
            Self::Tcplife => "tcplife",
            Self::Bpftrace => "bpftrace script",
            Self::Conntrack => "conntrack -E",
        }
    }

    /// A tool of others, which may be missing.
    pub fn is_peer(self) -> bool {
        matches!(self, Self::Tcplife | Self::Bpftrace | Self::Conntrack)
    }
}

/// What contenders are started with.
#[derive(Debug)]
pub struct Setting {
    /// Where connections go.
    pub servers: Servers,
    empty_object: Vec<u8>,
}

impl Setting {
    /// Reads the empty program, and listens.
    pub fn new(empty_object: &Path) -> Result<Self> {
        Ok(Self {
            servers: Servers::start()?,
            empty_object: fs::read(empty_object).with_context(|| format!("cannot read {}", empty_object.display()))?,
        })
    }

    /// Starts a contender and waits until it sees connections.
    pub fn start(&self, contender: Contender) -> Result<Running> {
        self.start_with(contender, &[])
            .with_context(|| format!("{} does not run", contender.label()))
    }

    /// The same, with more arguments for its program.
    pub fn start_with(&self, contender: Contender, arguments: &[&str]) -> Result<Running> {
        let mut command = match contender {
            Contender::Nobody => return Ok(Running::default()),
            Contender::Empty => return self.start_empty(),
            Contender::Agent | Contender::AgentUnassigned => {
                let mut command = tied(env!("CARGO_BIN_EXE_flowskew-agent"));
                command
                    .args(["--log", "warn", "run", "--node", "bench", "--no-pin"])
                    // A folder that is not there, so that what a real agent has pinned stays.
                    .args(["--pin-dir", "/nonexistent/flowskew", "--http-listen", "127.0.0.1:9470"]);
                command
            }
            Contender::Tcplife => tied("tcplife"),
            Contender::Bpftrace => {
                let mut command = tied("bpftrace");
                // As many flows as the agent tracks; it makes room for all of them at once.
                command.env("BPFTRACE_MAP_KEYS_MAX", "262144").args(["-e", SCRIPT]);
                command
            }
            Contender::Conntrack => {
                let mut command = tied("conntrack");
                command.arg("-E");
                command
            }
        };
        let said = tempfile::tempfile().context("cannot make a temporary file")?;
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.try_clone()?);
        let child = command.spawn().context("cannot start `setpriv`")?;
        let mut running = Running {
            pid: child.id(),
            process: Some(Process { child, said }),
            ..Running::default()
        };
        self.wait_until_it_sees(contender, &mut running)?;
        if contender == Contender::Agent {
            maps::assign(running.pid, self.servers.endpoints())?;
        }
        sleep(SETTLE);
        // Without those that it needed for its start alone.
        running.programs = programs::ids(running.pid, "prog_id");
        Ok(running)
    }

    fn start_empty(&self) -> Result<Running> {
        let mut ebpf = Ebpf::load(&self.empty_object)?;
        let program: &mut BtfTracePoint = ebpf
            .program_mut("empty")
            .context("the object has no program")?
            .try_into()?;
        program.load("inet_sock_set_state", &Btf::from_sys_fs()?)?;
        program.attach()?;
        let programs = BTreeSet::from([program.info()?.id()]);
        Ok(Running {
            pid: std::process::id(),
            programs,
            _empty: Some(ebpf),
            ..Running::default()
        })
    }

    fn wait_until_it_sees(&self, contender: Contender, running: &mut Running) -> Result<()> {
        let _statistics = programs::count_runs()?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            sleep(Duration::from_millis(50));
            running.check()?;
            self.servers.connect_once()?;
            if contender == Contender::Conntrack {
                if conntrack_is_heard()? {
                    return Ok(());
                }
                continue;
            }
            let ran = |runs: Vec<(String, Runs)>| runs.iter().any(|(_, runs)| runs.count > 0);
            // Programs come and go while it starts.
            if programs::runs(&programs::ids(running.pid, "prog_id")).is_ok_and(ran) {
                return Ok(());
            }
        }
        bail!("it saw no connection within {} s", PATIENCE.as_secs())
    }
}

/// A contender at work.
#[derive(Debug, Default)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    programs: BTreeSet<u32>,
    process: Option<Process>,
    _empty: Option<Ebpf>,
}

impl Running {
    /// What its programs have cost so far, by name.
    pub fn runs(&self) -> Result<Vec<(String, Runs)>> {
        programs::runs(&self.programs)
    }

    /// The same, all programs together.
    pub fn all_runs(&self) -> Result<Runs> {
        Ok(self
            .runs()?
            .into_iter()
            .fold(Runs::default(), |sum, (_, runs)| sum.plus(runs)))
    }

    /// An error if it has ended, with what it said.
    pub fn check(&mut self) -> Result<()> {
        let Some(Process { child, said }) = &mut self.process else {
            return Ok(());
        };
        let Some(status) = child.try_wait()? else {
            return Ok(());
        };
        let mut text = String::new();
        said.rewind()?;
        said.read_to_string(&mut text)?;
        bail!("it ended ({status}): {}", text.trim())
    }
}

/// A process that ends when this is dropped, and what it says on standard error.
#[derive(Debug)]
struct Process {
    child: Child,
    said: File,
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that ends together with this process.
fn tied(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Whether somebody in this network namespace hears of connections, as `conntrack -E` does; nobody else does here.
fn conntrack_is_heard() -> Result<bool> {
    let path = "/proc/net/netlink";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    // Columns: sk Eth Pid Groups ...; 12 is netfilter.
    Ok(text.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, "12", _, groups, ..] if groups.contains(|digit| digit != '0'))
    }))
}
