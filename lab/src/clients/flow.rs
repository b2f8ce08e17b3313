//! One client: in, its source address and habits; out, events of its flow: opened, failed, closed.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpStream, UdpSocket},
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep},
};

use super::{
    Target,
    connection::{self, Connection, Ports},
    protocol::{CloseHow, Lifetime, Reconnect},
};

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
    pub target: Target,
    pub ports: Arc<Ports>,
    pub lifetime: Lifetime,
    pub close: CloseHow,
    pub reconnect: Option<Reconnect>,
    pub connect_timeout: Duration,
    /// Over UDP: how often a flow that is open sends a datagram.
    pub datagram_every: Option<Duration>,
    pub random: Rng,
    pub events: mpsc::Sender<Event>,
    /// The order to close, or its sender dropped: give up.
    pub order: oneshot::Receiver<CloseHow>,
    /// Attempts under way in the process.
    pub attempting: Arc<AtomicU64>,
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
                Ok((connection, pod)) => {
                    let name = pod.clone();
                    self.report(Event::Opened { flow, pod, reconnect }).await;
                    let by_server = self.hold(connection, name).await;
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

    /// One attempt: the flow and the pod's name, or the reason of failure.
    async fn attempt(&self) -> Result<(Connection, String), String> {
        let _counted = Counted::new(&self.attempting);
        connection::open(&self.ports, self.source, self.target, self.connect_timeout).await
    }

    /// Holds the flow and closes it. Returns whether the server did first.
    async fn hold(&mut self, connection: Connection, pod: String) -> bool {
        let (close, lifetime) = (self.close, self.draw_lifetime());
        let ended = async {
            match lifetime {
                Some(lifetime) => sleep(lifetime).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(ended);
        match connection {
            Connection::Tcp(stream) => self.hold_stream(stream, ended, close).await,
            Connection::Udp(socket) => {
                self.hold_socket(socket, ended, pod).await;
                false
            }
        }
    }

    async fn hold_stream(&mut self, mut stream: TcpStream, ended: Pin<&mut impl Future>, close: CloseHow) -> bool {
        let mut bytes = [0; 64];
        let server = async {
            // The pod says nothing after its name: whatever comes, an end or an error, is its end of the flow.
            while stream.read(&mut bytes).await.is_ok_and(|length| length > 0) {}
        };
        let how = tokio::select! {
            () = server => None,
            order = &mut self.order => Some(order.unwrap_or_default()),
            _ = ended => Some(close),
        };
        if how == Some(CloseHow::Rst) {
            // Without it the flow would end with FIN: the count of closes is right all the same.
            let _ = stream.set_zero_linger();
        }
        how.is_none()
    }

    /// Over UDP another pod can take over a flow: then it has closed at the one and opened at the other.
    async fn hold_socket(&mut self, socket: UdpSocket, mut ended: Pin<&mut impl Future>, mut pod: String) {
        let mut ticks = self.datagram_every.map(ticks);
        let flow = self.flow;
        loop {
            let name = tokio::select! {
                _ = &mut self.order => return,
                _ = &mut ended => return,
                () = tick(&mut ticks) => {
                    // What is lost, or refused, is asked again at the next tick.
                    let _ = connection::ask(&socket).await;
                    continue;
                }
                Ok(name) = connection::answer(&socket) => name,
            };
            if name != pod {
                pod.clone_from(&name);
                self.report(Event::Closed { flow, by_server: true }).await;
                self.report(Event::Opened {
                    flow,
                    pod: name,
                    reconnect: true,
                })
                .await;
            }
        }
    }

    fn draw_lifetime(&mut self) -> Option<Duration> {
        match self.lifetime {
            Lifetime::Held => None,
            Lifetime::Fixed { ms } => Some(Duration::from_millis(ms)),
            Lifetime::Exponential { mean_ms } => {
                // 1 - f64() is above 0, so the logarithm is finite.
                Some(Duration::from_secs_f64(
                    (-mean_ms * (1.0 - self.random.f64()).ln() / 1000.0).clamp(0.0, 1e9),
                ))
            }
        }
    }
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Waits for the next tick; for ever without any.
async fn tick(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => std::future::pending().await,
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
