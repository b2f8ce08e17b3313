//! The lab's end of one clients process: in, commands; out, replies, and progress now and then.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result, anyhow};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout},
    sync::{mpsc, oneshot},
};

use super::{
    Target,
    protocol::{Command, Counts, Message, Reply, Request},
};
use crate::net::child::{self, Place};

type Call = (Command, oneshot::Sender<Reply>);

/// A running clients process. It ends, and closes its flows, when this is dropped.
#[derive(Debug)]
pub struct Process {
    calls: mpsc::Sender<Call>,
}

impl Process {
    /// Starts the process; `progress` hears its counts.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn start(
        program: &PathBuf,
        target: Target,
        start: u16,
        place: &Place,
        progress: impl Fn(Counts) + Send + 'static,
    ) -> Result<Self> {
        let arguments = [
            "--protocol".into(),
            target.protocol.to_string(),
            "--target".into(),
            target.address.to_string(),
            "--start".into(),
            start.to_string(),
        ];
        let process = child::start(program, "clients", &arguments, place)?;
        let (calls, queue) = mpsc::channel(16);
        tokio::spawn(async move {
            if let Err(error) = talk(process, queue, progress).await {
                tracing::warn!("clients: {error:#}");
            }
        });
        Ok(Self { calls })
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// The process has ended.
    pub async fn call(&self, command: Command) -> Result<Reply> {
        let ended = || anyhow!("the clients process has ended; its message is above");
        let (reply, due) = oneshot::channel();
        self.calls.send((command, reply)).await.map_err(|_| ended())?;
        due.await.map_err(|_| ended())
    }
}

/// Callers that wait for a reply, by the id of their request.
type Waiting = Mutex<HashMap<u64, oneshot::Sender<Reply>>>;

/// Carries commands to the process and replies back, until either side is gone. Neither direction waits for the other:
/// the process may have much to say before it reads on.
async fn talk(mut process: Child, calls: mpsc::Receiver<Call>, progress: impl Fn(Counts)) -> Result<()> {
    let stdin = process.stdin.take().context("no standard input")?;
    let stdout = process.stdout.take().context("no standard output")?;
    let waiting = Waiting::default();
    tokio::select! {
        ended = send(stdin, calls, &waiting) => ended,
        ended = receive(stdout, progress, &waiting) => ended,
    }?;
    process.wait().await.context("cannot wait for the process").map(drop)
}

/// Closes the standard input of the process when there are no more callers.
async fn send(mut stdin: ChildStdin, mut calls: mpsc::Receiver<Call>, waiting: &Waiting) -> Result<()> {
    let mut id = 0;
    while let Some((command, reply)) = calls.recv().await {
        id += 1;
        lock(waiting).insert(id, reply);
        let mut line = serde_json::to_vec(&Request { id, command }).context("cannot write a request")?;
        line.push(b'\n');
        stdin.write_all(&line).await.context("the process does not read")?;
    }
    Ok(())
}

async fn receive(stdout: ChildStdout, progress: impl Fn(Counts), waiting: &Waiting) -> Result<()> {
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await.context("cannot read from the process")? {
        match serde_json::from_str(&line).with_context(|| format!("not a message: {line:.200}"))? {
            Message::Progress(counts) => progress(counts),
            Message::Reply { id, reply } => {
                if let Some(caller) = lock(waiting).remove(&id) {
                    // Nobody waits any more when the caller was cancelled.
                    let _ = caller.send(reply);
                }
            }
        }
    }
    Ok(())
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Reply>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
