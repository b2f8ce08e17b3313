//! One client: in, its source address and habits; out, events of its flow: opened, failed, closed.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpSocket, TcpStream},
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::{sleep, timeout},
};

use super::protocol::{CloseHow, Lifetime, Reconnect};

/// A pod answers at once; this is for a machine that is very busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_NAME: usize = 64;

/// What a flow reports to the task that counts.
#[derive(Debug)]
pub enum Event {
    /// The pod's name has arrived.
    Opened { flow: u64, pod: String, reconnect: bool },
    /// An attempt ended without a name.
    Failed { flow: u64, reason: String, reconnect: bool },
    /// The flow that was open is closed.
    Closed { flow: u64, by_server: bool },
    /// The client will not come back.
    Ended { flow: u64 },
}

/// A client that opens one flow at a time.
#[derive(Debug)]
pub struct Client {
    /// Number of this client, unique in the process.
    pub flow: u64,
    pub source: IpAddr,
    pub target: SocketAddr,
    pub lifetime: Lifetime,
    pub close: CloseHow,
    pub reconnect: Option<Reconnect>,
    pub connect_timeout: Duration,
    pub random: Rng,
    pub events: mpsc::Sender<Event>,
    /// The order to close, or its sender dropped: give up.
    pub order: oneshot::Receiver<CloseHow>,
    /// Attempts under way in the process.
    pub attempting: Arc<AtomicU64>,
}

/// Why a flow is no longer held.
enum End {
    Server,
    Client(CloseHow),
}

impl Client {
    /// Opens, holds, closes, and comes back as long as that is its habit. `permit` is given back after the first
    /// attempt.
    pub async fn run(mut self, permit: OwnedSemaphorePermit) {
        let mut permit = Some(permit);
        let mut reconnect = false;
        loop {
            let attempt = self.attempt().await;
            drop(permit.take());
            let flow = self.flow;
            match attempt {
                Err(reason) => {
                    self.report(Event::Failed {
                        flow,
                        reason,
                        reconnect,
                    })
                    .await;
                    if !reconnect {
                        break;
                    }
                }
                Ok((stream, pod)) => {
                    self.report(Event::Opened { flow, pod, reconnect }).await;
                    let by_server = self.hold(stream).await;
                    self.report(Event::Closed { flow, by_server }).await;
                    if !by_server {
                        break;
                    }
                }
            }
            let Some(pause) = self.reconnect else { break };
            reconnect = true;
            let pause = Duration::from_millis(self.random.u64(pause.min_ms..=pause.max_ms.max(pause.min_ms)));
            tokio::select! {
                _ = &mut self.order => break,
                () = sleep(pause) => {}
            }
        }
        self.report(Event::Ended { flow: self.flow }).await;
    }

    /// The receiver is gone only when the process ends.
    async fn report(&self, event: Event) {
        let _ = self.events.send(event).await;
    }

    /// One attempt: the stream and the pod's name, or the reason of failure.
    async fn attempt(&self) -> Result<(TcpStream, String), String> {
        let _counted = Counted::new(&self.attempting);
        let connected = timeout(self.connect_timeout, connect(self.source, self.target)).await;
        let mut stream = connected
            .map_err(|_| "timeout".to_owned())?
            .map_err(|error| reason(&error))?;
        match timeout(ANSWER_TIMEOUT, name(&mut stream)).await {
            Ok(Ok(pod)) => Ok((stream, pod)),
            _ => Err("no-name".to_owned()),
        }
    }

    /// Holds the flow and closes it. Returns whether the server did first.
    async fn hold(&mut self, mut stream: TcpStream) -> bool {
        let mut bytes = [0; 64];
        let server = async {
            // The pod says nothing after its name: whatever comes, an end or an error, is its end of the flow.
            while stream.read(&mut bytes).await.is_ok_and(|length| length > 0) {}
        };
        let lifetime = match self.lifetime {
            Lifetime::Held => None,
            Lifetime::Fixed { ms } => Some(Duration::from_millis(ms)),
            Lifetime::Exponential { mean_ms } => {
                // 1 - f64() is above 0, so the logarithm is finite.
                Some(Duration::from_secs_f64(
                    (-mean_ms * (1.0 - self.random.f64()).ln() / 1000.0).clamp(0.0, 1e9),
                ))
            }
        };
        let close = self.close;
        let end = tokio::select! {
            () = server => End::Server,
            order = &mut self.order => End::Client(order.unwrap_or_default()),
            () = sleep(lifetime.unwrap_or_default()), if lifetime.is_some() => End::Client(close),
        };
        if matches!(end, End::Client(CloseHow::Rst)) {
            // Without it the flow would end with FIN: the count of closes is right all the same.
            let _ = stream.set_zero_linger();
        }
        matches!(end, End::Server)
    }
}

/// Counts an attempt while it lives.
struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn connect(source: IpAddr, target: SocketAddr) -> io::Result<TcpStream> {
    let socket = if source.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(target).await
}

/// Reads the pod's name and the newline after it.
async fn name(stream: &mut TcpStream) -> io::Result<String> {
    let mut bytes = [0; LONGEST_NAME];
    let mut length = 0;
    while length == 0 || bytes[length - 1] != b'\n' {
        match stream.read(&mut bytes[length..]).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
    }
    String::from_utf8(bytes[..length - 1].to_vec()).map_err(|_| ErrorKind::InvalidData.into())
}

/// Short and countable word for why a handshake did not end.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "refused".to_owned(),
        ErrorKind::ConnectionReset => "reset".to_owned(),
        ErrorKind::TimedOut => "timeout".to_owned(),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "unreachable".to_owned(),
        ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable => "no-port".to_owned(),
        _ => error.to_string(),
    }
}
