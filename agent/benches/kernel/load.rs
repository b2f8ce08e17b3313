//! Real connections on loopback: in, numbers of flows or seconds; out, how many were made and what they took. Both ends are in
//! this process. The client closes first, as most clients do.

use std::{
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};

use crate::programs;

/// Local addresses a thread connects to in turn: as many pods as a node may have, with two threads.
const ADDRESSES: u8 = 15;
const FIRST_PORT: u16 = 20_000;

/// Listeners, one for each thread of the load.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    listener: TcpListener,
    addresses: Vec<SocketAddrV4>,
}

/// What a load has done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Done {
    /// Connections made, accepted and closed.
    pub connections: u64,
    /// Wall clock.
    pub elapsed: Duration,
    /// Processor time of the threads of the load, which do the kernel's work on loopback as well.
    pub cpu: Duration,
}

impl Servers {
    /// Listens; as many threads will connect as there are processors, at least two.
    pub fn start() -> Result<Self> {
        let threads = thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        let servers = (0..u8::try_from(threads)?).map(Server::start).collect::<Result<_>>()?;
        Ok(Self { servers })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.servers.len()
    }

    /// All local addresses and ports that connections go to.
    pub fn endpoints(&self) -> impl Iterator<Item = SocketAddrV4> + '_ {
        self.servers.iter().flat_map(|server| &server.addresses).copied()
    }

    /// One connection.
    pub fn connect_once(&self) -> Result<()> {
        let server = self.servers.first().context("there is no server")?;
        server.connect(0).map(drop)
    }

    /// Opens that many flows, one after another, and leaves them open.
    pub fn open(&self, flows: usize) -> Result<Vec<Flow>> {
        let threads = self.servers.len();
        (0..flows)
            .map(|turn| self.servers[turn % threads].connect(turn / threads))
            .collect()
    }

    /// Connects, accepts and closes in all threads until the time is over.
    pub fn run(&self, time: Duration) -> Result<Done> {
        let start = Instant::now();
        let parts: Vec<Result<(u64, Duration)>> = thread::scope(|scope| {
            let threads: Vec<_> = self
                .servers
                .iter()
                .map(|server| scope.spawn(move || server.run(start, time)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err(anyhow!("a thread of the load failed")))
                })
                .collect()
        });
        let elapsed = start.elapsed();
        let mut done = Done {
            connections: 0,
            elapsed,
            cpu: Duration::ZERO,
        };
        for part in parts {
            let (connections, cpu) = part?;
            done.connections += connections;
            done.cpu += cpu;
        }
        Ok(done)
    }
}

/// An open flow: the client's end and the server's. Fields are dropped, and so closed, in this order.
#[derive(Debug)]
pub struct Flow {
    _client: TcpStream,
    _server: TcpStream,
}

impl Server {
    fn start(number: u8) -> Result<Self> {
        let port = FIRST_PORT + u16::from(number);
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
            .with_context(|| format!("cannot listen on port {port}"))?;
        let addresses = (1..=ADDRESSES)
            .map(|host| SocketAddrV4::new(Ipv4Addr::new(127, 1, number, host), port))
            .collect();
        Ok(Self { listener, addresses })
    }

    fn connect(&self, turn: usize) -> Result<Flow> {
        let address = self.addresses[turn % self.addresses.len()];
        let client = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        let (server, _) = self
            .listener
            .accept()
            .with_context(|| format!("cannot accept on {address}"))?;
        Ok(Flow {
            _client: client,
            _server: server,
        })
    }

    fn run(&self, start: Instant, time: Duration) -> Result<(u64, Duration)> {
        let cpu_before = programs::thread_cpu()?;
        let mut connections = 0;
        while start.elapsed() < time {
            for turn in 0..self.addresses.len() {
                drop(self.connect(turn)?);
                connections += 1;
            }
        }
        Ok((connections, programs::thread_cpu()?.saturating_sub(cpu_before)))
    }
}
