//! One program of the product under the lab's care. A command line enters; a process leaves that writes to a log file of
//! its own and dies with the lab, however the lab ends.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::http;

const TERMINATE_TIMEOUT: Duration = Duration::from_secs(5);
const READY_TIMEOUT: Duration = Duration::from_secs(40);
const LOG_TAIL_LINES: usize = 15;

/// A running program.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// `http://127.0.0.1:PORT` of its metrics and its readiness.
    url: String,
}

impl Process {
    /// Starts `program`. The log file is `NAME.log` in `logs`; a restart appends to it.
    ///
    /// Must be called from a thread that lives as long as the lab: the kernel kills the process when that thread ends.
    ///
    /// # Errors
    /// The program or the log file cannot be used.
    pub fn start(name: &str, program: &Path, arguments: &[String], logs: &Path, url: String) -> anyhow::Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot write the log {}", log.display()))?;
        let errors = file
            .try_clone()
            .with_context(|| format!("cannot write the log {}", log.display()))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            // Ctrl-C at the terminal is for the lab alone, which then ends its processes in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name} with setpriv (package util-linux)"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
            url,
        })
    }

    /// Where it serves HTTP.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Errors
    /// It ends, or is not ready in time; the message has the end of its log.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            if let Some(status) = self.ended() {
                bail!("{} ended at once ({status}){}", self.name, self.log_tail());
            }
            let answer = match http::get(format!("{}/readyz", self.url)).await {
                Ok((200, _)) => return Ok(()),
                Ok((status, body)) => format!("/readyz answers {status}: {}", body.trim()),
                Err(error) => format!("{error:#}"),
            };
            if Instant::now() > deadline {
                let seconds = READY_TIMEOUT.as_secs();
                bail!(
                    "{} is not ready after {seconds} s: {answer}{}",
                    self.name,
                    self.log_tail()
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The end of its log, for an error message.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n    ");
        format!("; the end of {}:\n    {tail}", self.log.display())
    }

    /// SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// It had ended before.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.ended() {
            bail!(
                "{} had ended before it was killed ({status}){}",
                self.name,
                self.log_tail()
            );
        }
        self.child
            .kill()
            .await
            .with_context(|| format!("cannot kill {}", self.name))
    }

    /// SIGTERM; SIGKILL if it does not end in time.
    pub async fn terminate(mut self) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let asked = pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok());
        if !asked || timeout(TERMINATE_TIMEOUT, self.child.wait()).await.is_err() {
            // It is gone already, or this ends it; either way nothing is left to do.
            let _ = self.child.kill().await;
        }
    }
}
