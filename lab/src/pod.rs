//! A pod: in, a name and an address; out, a TCP server that answers each flow with its name and holds it open.
//!
//! Started by the lab. The accept queue is as long as the kernel allows, so that no flow is lost in a burst.

use std::{io, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    runtime,
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use crate::net::child::{self, Place};

/// What a pod prints when it accepts flows.
pub const READY: &str = "ready\n";

/// Flows whose handshake had ended when the pod was told to stop still get their answer.
const LAST_FLOWS: Duration = Duration::from_millis(100);

/// Arguments of the `pod` subcommand.
#[derive(Debug, clap::Args)]
pub struct PodArgs {
    /// What the server answers.
    #[arg(long)]
    name: String,
    /// Where the server listens.
    #[arg(long)]
    listen: SocketAddr,
    #[command(flatten)]
    place: Place,
}

/// Serves until SIGTERM, or until the lab is gone. Must be called before the process has a second thread.
///
/// # Errors
/// The place or the address cannot be used.
pub fn main(args: PodArgs) -> Result<()> {
    args.place.enter()?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(args.name + "\n", args.listen))
}

async fn serve(answer: String, address: SocketAddr) -> Result<()> {
    let answer: &'static str = answer.leak();
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket
        .bind(address)
        .with_context(|| format!("cannot listen on {address}"))?;
    let listener = socket
        .listen(u16::MAX.into())
        .with_context(|| format!("cannot listen on {address}"))?;

    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut parent = child::from_parent()?;
    child::to_parent()?
        .write_all(READY.as_bytes())
        .await
        .context("the lab is gone")?;
    let mut byte = [0];
    tokio::select! {
        never = accept(&listener, answer) => never,
        _ = terminate.recv() => {
            tokio::select! {
                never = accept(&listener, answer) => never,
                () = sleep(LAST_FLOWS) => Ok(()),
            }
        }
        _ = parent.read(&mut byte) => Ok(()),
    }
    // The process ends now: the kernel closes every flow with FIN, for nothing is unread.
}

async fn accept(listener: &TcpListener, answer: &'static str) -> Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(hold(stream, answer))),
            // The peer was faster, or files have run out: then new flows wait until others close.
            Err(error) => {
                eprintln!(
                    "pod {}: cannot accept a flow: {error} (ulimit -Hn is the most one pod can hold)",
                    answer.trim()
                );
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Answers, then holds the flow until the peer closes it.
async fn hold(mut stream: TcpStream, answer: &str) -> io::Result<()> {
    stream.write_all(answer.as_bytes()).await?;
    let mut bytes = [0; 64];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}
