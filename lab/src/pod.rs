//! A pod: in, a name and addresses; out, TCP servers that answer each flow with the name and hold it open, and UDP servers
//! that answer each datagram with the name. A flow can cost CPU time.
//!
//! Started by the lab. The accept queue is as long as the kernel allows, so that no flow is lost in a burst.

use std::{io, net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result};
use rustix::{
    net::sockopt::set_socket_recv_buffer_size_force,
    time::{ClockId, clock_gettime},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream, UdpSocket},
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
    /// Where TCP servers listen.
    #[arg(long)]
    tcp: Vec<SocketAddr>,
    /// Where UDP servers listen.
    #[arg(long)]
    udp: Vec<SocketAddr>,
    /// CPU time that each TCP flow costs before it is answered, in microseconds.
    #[arg(long, default_value_t = 0)]
    work_us: u64,
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
    runtime.block_on(serve(args))
}

async fn serve(args: PodArgs) -> Result<()> {
    let answer: &'static str = (args.name + "\n").leak();
    for address in args.tcp {
        tokio::spawn(accept(listener(address)?, answer, Duration::from_micros(args.work_us)));
    }
    for address in args.udp {
        tokio::spawn(echo(datagrams(address)?, answer));
    }
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut parent = child::from_parent()?;
    child::to_parent()?
        .write_all(READY.as_bytes())
        .await
        .context("the lab is gone")?;
    let mut byte = [0];
    tokio::select! {
        _ = terminate.recv() => sleep(LAST_FLOWS).await,
        _ = parent.read(&mut byte) => {}
    }
    // The process ends now: the kernel closes every flow with FIN, for nothing is unread.
    Ok(())
}

fn listener(address: SocketAddr) -> Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket
        .bind(address)
        .and_then(|()| socket.listen(u16::MAX.into()))
        .with_context(|| format!("cannot listen on {address}"))
}

/// A UDP socket that a burst of datagrams fits in.
fn datagrams(address: SocketAddr) -> Result<UdpSocket> {
    const BURST: usize = 8 << 20;
    let socket = std::net::UdpSocket::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    socket.set_nonblocking(true)?;
    set_socket_recv_buffer_size_force(&socket, BURST).context("cannot make the buffer of a UDP server larger")?;
    UdpSocket::from_std(socket).with_context(|| format!("cannot listen on {address}"))
}

/// Answers each datagram, whatever it says.
async fn echo(socket: UdpSocket, answer: &'static str) {
    let mut bytes = [0; 64];
    loop {
        // An error is about an answer whose receiver is gone.
        if let Ok((_, client)) = socket.recv_from(&mut bytes).await {
            let _ = socket.send_to(answer.as_bytes(), client).await;
        }
    }
}

async fn accept(listener: TcpListener, answer: &'static str, cost: Duration) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                work(cost);
                tokio::spawn(hold(stream, answer));
            }
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

/// Keeps the CPU busy, as decoding and checking a client's first words would. It is CPU time, not time: on a busy machine it
/// takes longer, and costs the same.
fn work(cost: Duration) {
    if cost.is_zero() {
        return;
    }
    let used = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        // Neither is negative, and nanoseconds are below a second.
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    };
    let until = used() + cost;
    while used() < until {
        std::hint::spin_loop();
    }
}

/// Answers, then holds the flow until the peer closes it.
async fn hold(mut stream: TcpStream, answer: &str) -> io::Result<()> {
    stream.write_all(answer.as_bytes()).await?;
    let mut bytes = [0; 64];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}
